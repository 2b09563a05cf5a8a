"""The agent's memory does not grow with the output of a program."""

import subprocess
import sys

import pytest

from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import TEST_TIMEOUT, HermesCli

LITTLE, MUCH = 1_000, 8_000_000
ROOM = 32_000
"""Kilobytes of growth allowed; any copy of the output would take more."""
WATCHED = """
import re, sys
from pathlib import Path
from hermes.cli.main import main
code = main()
status = Path("/proc/self/status").read_text()
print("peak", re.search(r"VmHWM:\\s+(\\d+) kB", status)[1], file=sys.stderr)
raise SystemExit(code)
"""

FILL_COMMAND = "head -c {size} /dev/zero | tr '\\000' '{letter}'"
SHAPES = {
    "bells": FILL_COMMAND.replace("{letter}", "\\007"),
    "one line": FILL_COMMAND.replace("{letter}", "x"),
    "no UTF-8": FILL_COMMAND.replace("{letter}", "\\377"),
    "a title without end": "printf '\\033]0;'; " + FILL_COMMAND.replace("{letter}", "x"),
}


def _foreground(command: str, *, pty: bool) -> list[Call]:
    return [Call("terminal", {"command": command, "pty": pty, "timeout": 100})]


def _background(command: str) -> list[Call]:
    run = {"command": f"{command}; touch over", "background": True}
    wait = {"command": "while ! test -e over; do sleep 0.02; done; rm over", "timeout": 100}
    return [Call("terminal", run), Call("terminal", wait)]


RUN_MODES = {
    "plain": lambda command: _foreground(command, pty=False),
    "pty": lambda command: _foreground(command, pty=True),
    "background": _background,
}


def _rule(way: str, size: int) -> Rule:
    calls = [RUN_MODES[way](shape.replace("{size}", str(size))) for shape in SHAPES.values()]
    steps = [Reply("", [call]) for group in calls for call in group]
    return Rule(f"{way} {size}", [*steps, Reply("All of it was printed.")])


SCRIPT = Script(
    rules=[_rule(way, size) for way in RUN_MODES for size in (LITTLE, MUCH)],
    default=Reply("I do not know what to do."),
    models=("mock",),
)


def _peak(hermes: HermesCli, question: str) -> int:
    """Peak memory of the program in kilobytes."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "-z", question],
        cwd=hermes.work,
        env=hermes.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3 * TEST_TIMEOUT,
        check=True,
    )
    assert "All of it was printed." in done.stdout
    return int(done.stderr.rpartition("peak ")[2])


@pytest.mark.parametrize("way", RUN_MODES)
def test_memory_does_not_grow_with_output(hermes: HermesCli, way: str) -> None:
    hermes.configure("terminal:\n  backend: local\napprovals:\n  mode: off\n")
    little = _peak(hermes, f"{way} {LITTLE}")
    much = _peak(hermes, f"{way} {MUCH}")
    assert much - little < ROOM
