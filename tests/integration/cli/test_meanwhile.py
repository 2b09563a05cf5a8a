"""The plain chat while a turn runs: a line that is typed interrupts it, waits for it, steers it."""

import os

import pexpect
import pytest

from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import FakeModelProcess, Fifo, HermesCli

PROMPT = "\x1b[1;36m> \x1b[0m"
STEPS = "echo go > told; read answer < answer"
SCRIPT = Script(
    rules=[
        Rule("instead", [Reply("Another answer.")]),
        Rule("hang", [Reply("first words", fault=Fault("hang", after=1), chunk=6)]),
        Rule("tool", [Reply("", [Call("terminal", {"command": STEPS})]), Reply("Tool done.")]),
    ],
    default=Reply("Plain answer."),
)


def leave(child: pexpect.spawn) -> int | None:
    child.expect_exact(PROMPT)
    child.send("\x04")
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus


def test_a_line_interrupts_and_is_said_instead(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("hang")
        child.expect_exact("first")
        child.sendline("this instead")
        child.expect_exact("Interrupted.")
        child.expect_exact("Another answer.")
        assert leave(child) == 0


def test_lines_wait_or_steer_as_they_say(hermes: HermesCli, model: FakeModelProcess) -> None:
    """The tool goes on when all has been typed, so that its turn cannot end before that."""
    fifo = Fifo(hermes.work / "told")
    answer = hermes.work / "answer"
    os.mkfifo(answer)
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("tool")
        assert fifo.words() == ["go"]
        child.sendline("/queue afterwards")
        child.expect_exact("(queued)")
        child.sendline("/steer the STEERED one")
        child.expect_exact("(passed on)")
        with answer.open("w") as opened:
            opened.write("on\n")
        child.expect_exact("(heard)")
        child.expect_exact("afterwards")
        child.expect_exact("Plain answer.")
        assert leave(child) == 0
    fifo.close()
    assert model.requests("STEERED")


@pytest.mark.parametrize("way", ["\x03", "/stop\r"])
def test_who_gives_up_has_back_what_waited(
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
        child.expect_exact("(not said, Up brings it back: UNSAID)")
        child.expect_exact(PROMPT)
        child.send("\x1b[A\r")
        child.expect_exact("Plain answer.")
        assert leave(child) == 0
    assert len(model.requests("UNSAID")) == before + 1
