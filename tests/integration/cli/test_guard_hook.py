"""A `pre_tool_call` hook guards every call of the real program."""

import json
from pathlib import Path

import pytest

from hermes.testing.fake_openai.script import Call, Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli

CODE = "from hermes_tools import write_file\nprint(write_file(path='made.txt', content='x'))\n"
SCRIPT = Script(
    rules=[
        Rule("by hand", [Reply(calls=[Call("write_file", {"path": "made.txt",
            "content": "x"})]), Reply("So be it.")]),
        Rule("by program", [Reply(calls=[Call("execute_code", {"code": CODE})]),
            Reply("So be it.")]),
        Rule("only look", [Reply(calls=[Call("search_files", {"pattern": "x"})]),
            Reply("Nothing.")]),
    ]
)  # fmt: skip
GUARD = """#!/bin/sh
cat >> {notes}
echo '{{"decision": "block", "reason": "Nothing is written on Sundays."}}'
"""


class GuardedCli(HermesCli):
    def __init__(self, root: Path, url: str) -> None:
        super().__init__(root, url)
        self.notes = root / "notes"
        self.guard = root / "guard"
        self.guard.write_text(GUARD.format(notes=self.notes))
        self.guard.chmod(0o700)
        hook = {"matcher": "write_file", "command": str(self.guard)}
        self.configure("hooks: " + json.dumps({"pre_tool_call": [hook]}) + "\n")

    def guarded_calls(self) -> list[str]:
        if not self.notes.exists():
            return []
        return [json.loads(line)["tool_name"] for line in self.notes.read_text().splitlines()]


@pytest.fixture
def cli(tmp_path: Path, model: FakeModelProcess) -> GuardedCli:
    return GuardedCli(tmp_path, model.url)


def last_request(model: FakeModelProcess, about: str) -> str:
    """The last request to the model."""
    return str(model.requests(about)[-1]["messages"][-1]["content"])


@pytest.mark.parametrize("how", ["by hand", "by program"])
def test_hook_sees_every_kind_of_call(cli: GuardedCli, model: FakeModelProcess, how: str) -> None:
    ran = cli("--accept-hooks", "-z", how)
    assert (ran.code, ran.out) == (0, "So be it.\n")
    assert "Nothing is written on Sundays." in last_request(model, how)
    assert not (cli.work / "made.txt").exists()
    assert cli.guarded_calls() == ["write_file"]


def test_unaccepted_hook_blocks_calls_with_a_hint(cli: GuardedCli, model: FakeModelProcess) -> None:
    ran = cli("-z", "by hand")
    assert ran.code == 0
    assert "hermes hooks accept" in last_request(model, "by hand")
    assert not (cli.work / "made.txt").exists()
    assert cli.guarded_calls() == []
    # Calls without a hook are not affected.
    cli("-z", "only look")
    assert "hooks accept" not in last_request(model, "only look")
    assert "accepted for pre_tool_call" in cli("hooks", "accept").out
    cli("-z", "by hand")
    assert cli.guarded_calls() == ["write_file"]
