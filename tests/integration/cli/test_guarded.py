"""A guard of the owner's, in the program as a person has it: before every call, and not without."""

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


class House(HermesCli):
    def __init__(self, root: Path, url: str) -> None:
        super().__init__(root, url)
        self.notes = root / "notes"
        self.guard = root / "guard"
        self.guard.write_text(GUARD.format(notes=self.notes))
        self.guard.chmod(0o700)
        hook = {"matcher": "write_file", "command": str(self.guard)}
        self.configure("hooks: " + json.dumps({"pre_tool_call": [hook]}) + "\n")

    def told(self) -> list[str]:
        if not self.notes.exists():
            return []
        return [json.loads(line)["tool_name"] for line in self.notes.read_text().splitlines()]


@pytest.fixture
def house(tmp_path: Path, model: FakeModelProcess) -> House:
    return House(tmp_path, model.url)


def heard(model: FakeModelProcess, about: str) -> str:
    """What the model was told last."""
    return str(model.requests(about)[-1]["messages"][-1]["content"])


@pytest.mark.parametrize("how", ["by hand", "by program"])
def test_a_call_passes_the_guard_however_it_is_made(
    house: House, model: FakeModelProcess, how: str
) -> None:
    ran = house("--accept-hooks", "-z", how)
    assert (ran.code, ran.out) == (0, "So be it.\n")
    assert "Nothing is written on Sundays." in heard(model, how)
    assert not (house.work / "made.txt").exists()
    assert house.told() == ["write_file"]


def test_without_consent_nothing_is_done_and_it_is_said_how(
    house: House, model: FakeModelProcess
) -> None:
    ran = house("-z", "by hand")
    assert ran.code == 0
    assert "hermes hooks accept" in heard(model, "by hand")
    assert not (house.work / "made.txt").exists()
    assert house.told() == []
    # What nobody guards is done as ever.
    house("-z", "only look")
    assert "hooks accept" not in heard(model, "only look")
    assert "accepted for pre_tool_call" in house("hooks", "accept").out
    house("-z", "by hand")
    assert house.told() == ["write_file"]
