"""The terminal UI in a real terminal: screen content, keys and clicks."""

import base64
from pathlib import Path

import pytest

from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli
from support.terminal_emulator import terminal_program

READY = "Ask anything."
DELETE = {"command": "rm -rf build", "escalate": "outside", "reason": "to build anew"}
ANSWER = "Two beds, as *you* know.\n\n```sh\nwater --all\n```\n\nThat is all."
SCRIPT = Script(
    rules=[
        Rule("look", [Reply("", [Call("terminal", {"command": "cat beds.txt"})]), Reply(ANSWER)]),
        Rule("delete", [Reply("", [Call("terminal", DELETE)]), Reply("It is gone.")]),
        Rule("hang", [Reply("first words, then none", fault=Fault("hang", after=3), chunk=6)]),
    ],
    models=("mock", "other"),
)
LIGHT, DARK = "2;251;251;249", "2;22;23;29"
"""Background colours of the two themes."""


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess) -> HermesCli:
    hermes = HermesCli(tmp_path, model.url)
    hermes.env["COLORTERM"] = "truecolor"
    hermes.configure("approvals:\n  mode: manual\n")
    (hermes.work / "build").mkdir()
    (hermes.work / "beds.txt").write_text("beans in the first\npeas in the second\n")
    return hermes


def test_session_and_its_continuation(hermes: HermesCli) -> None:
    with terminal_program(hermes) as at:
        at.shows(READY)
        at.keys("look\r")
        at.shows("That is all.")
        at.shows(READY)
        assert "peas" not in at.text
        at.opens("terminal cat beds.txt", "   peas in the second")
        assert "   $ cat beds.txt" in at.text
        copied = base64.b64encode(b"water --all").decode()
        at.click("[copy]", lambda: f"52;c;{copied}" in at.screen.told)
        at.keys("delete\r")
        at.shows("Auto-denied in")
        at.opens("Allow once", "→ allowed once")
        at.shows("It is gone.")
        at.shows(READY)
        assert not (hermes.work / "build").exists()
        at.keys("hang\r")
        at.shows("first words")
        at.keys("\x1b")
        at.shows("Interrupted.")
        assert at.screen.ground(0, 0) == DARK
        at.opens("terminal rm -rf build", "$ rm -rf build")
        at.keys("\x04")
        assert at.ends() == 0
    with terminal_program(hermes, "-c", COLORFGBG="0;15") as at:
        at.shows("Interrupted.")
        at.shows(READY)
        assert at.screen.ground(0, 0) == LIGHT
        at.shows("✓ terminal rm -rf build")
        at.keys("\x1b[5~")
        at.shows("✓ terminal cat beds.txt")
        at.shows("↓ more below")
        at.opens("terminal cat beds.txt", "   peas in the second")
        at.keys("\x14")
        at.until(lambda: at.screen.ground(0, 0) == DARK)
        at.keys("\x1a")
        at.shows("There is no shell to return to")
        at.keys("\x04")
        assert at.ends() == 0
        assert "cat beds.txt" not in at.text


def test_first_start_without_model_and_colours(tmp_path: Path, model: FakeModelProcess) -> None:
    hermes = HermesCli(tmp_path, "")
    for name in [name for name in hermes.env if name.startswith(("OPENAI", "HERMES_INFERENCE"))]:
        del hermes.env[name]
    with terminal_program(hermes, NO_COLOR="1") as at:
        at.shows("Number or name [")
        at.keys("custom\r")
        at.shows("Its address")
        at.keys(f"{model.url}\r")
        at.shows("Number or name [mock]")
        at.keys("\r")
        at.shows(READY)
        at.keys("hello\r")
        at.shows("▌ hello")
        at.shows("Hello from the mock model.")
        assert not at.screen.coloured
        at.shows(READY)
        at.keys("\x04")
        assert at.ends() == 0
