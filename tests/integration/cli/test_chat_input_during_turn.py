"""Lines typed during a turn interrupt it, are queued or steer it."""

import os

import pexpect
import pytest

from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import FakeModelProcess, Fifo, HermesCli

PROMPT = "\x1b[1;36m> \x1b[0m"
STEPS = "echo go > ready; read answer < answer"
SCRIPT = Script(
    rules=[
        Rule("instead", [Reply("Another answer.")]),
        Rule("hang", [Reply("first words", fault=Fault("hang", after=1), chunk=6)]),
        Rule("tool", [Reply("", [Call("terminal", {"command": STEPS})]), Reply("Tool done.")]),
    ],
    default=Reply("Plain answer."),
)


def quit_chat(child: pexpect.spawn) -> int | None:
    child.expect_exact(PROMPT)
    child.send("\x04")
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus


def test_typed_line_interrupts_and_replaces_the_turn(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("hang")
        child.expect_exact("first")
        child.sendline("this instead")
        child.expect_exact("Interrupted.")
        child.expect_exact("Another answer.")
        assert quit_chat(child) == 0


def test_typed_lines_are_queued_or_steer(hermes: HermesCli, model: FakeModelProcess) -> None:
    """The tool waits until everything is typed, so that the turn cannot end earlier."""
    fifo = Fifo(hermes.work / "ready")
    answer = hermes.work / "answer"
    os.mkfifo(answer)
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("tool")
        assert fifo.lines() == ["go"]
        child.sendline("/queue afterwards")
        child.expect_exact("(queued)")
        child.sendline("/steer the STEERED one")
        child.expect_exact("(sent)")
        with answer.open("w") as opened:
            opened.write("on\n")
        child.expect_exact("(received)")
        child.expect_exact("afterwards")
        child.expect_exact("Plain answer.")
        assert quit_chat(child) == 0
    fifo.close()
    assert model.requests("STEERED")


@pytest.mark.parametrize("way", ["\x03", "/stop\r"])
def test_interrupting_returns_queued_lines(
    hermes: HermesCli, model: FakeModelProcess, way: str
) -> None:
    before = len(model.requests("UNSAID"))
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("hang")
        child.expect_exact("first")
        child.sendline("/queue UNSAID")
        child.expect_exact("(queued)")
        child.send(way)
        child.expect_exact("(not sent; press Up to edit: UNSAID)")
        child.expect_exact(PROMPT)
        child.send("\x1b[A\r")
        child.expect_exact("Plain answer.")
        assert quit_chat(child) == 0
    assert len(model.requests("UNSAID")) == before + 1
