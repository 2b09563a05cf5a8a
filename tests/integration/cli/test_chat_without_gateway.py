"""A chat survives the end of its gateway, and background work in the gateway that of the chat."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from hermes.app.service.lock import running_gateway
from hermes.config.home import Home
from hermes.testing.fake_openai import Fault, Reply, Rule, Script
from support.cli_process import (
    HERMES_PROGRAM,
    TEST_TIMEOUT,
    FakeModelProcess,
    HermesCli,
    exit_status,
    wait_for_process_exit,
)

PROMPT = "\x1b[1;36m> \x1b[0m"
ALONE = "The gateway has stopped; this chat continues without it."
BACK = "Reconnected to the gateway."
SCRIPT = Script(
    rules=[
        Rule("STEERED", [Reply("Steered answer.")]),
        Rule("instead", [Reply("Another answer.")]),
        Rule("typed before", [Reply("It was kept.")]),
        Rule("hang", [Reply("first words", fault=Fault("hang", after=1), chunk=6)]),
    ],
    default=Reply("Plain answer."),
)


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess) -> Iterator[HermesCli]:
    """With a running gateway, which is stopped afterwards."""
    hermes = HermesCli(tmp_path, model.url)
    hermes.home.mkdir()
    started = hermes("gateway", "start")
    assert started.code == 0, started.err
    yield hermes
    kill_gateway(hermes)


def kill_gateway(hermes: HermesCli) -> None:
    record = running_gateway(Home(hermes.home, hermes.home))
    if record is not None:
        os.kill(record.pid, signal.SIGKILL)
        wait_for_process_exit(record.pid)


def quit_chat(child: pexpect.spawn) -> int | None:
    child.expect_exact(PROMPT)
    child.send("\x04")
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus


def test_line_chat_survives_gateway_stop_and_restart(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("first")
        child.expect_exact("Plain answer.")
        child.expect_exact(PROMPT)
        # What has been begun is not disturbed, and is there when the gateway is back.
        child.send("typed be")
        child.expect_exact("typed be")
        assert hermes("gateway", "restart").code == 0
        child.sendline("fore")
        child.expect_exact(BACK)
        child.expect_exact("It was kept.")
        child.expect_exact(PROMPT)
        assert hermes("gateway", "stop").code == 0
        child.expect_exact(ALONE)
        child.expect_exact(PROMPT)
        child.sendline("this instead")
        child.expect_exact("Another answer.")
        assert quit_chat(child) == 0
    (request,) = model.requests("this instead")
    texts = [str(one["content"]) for one in request["messages"] if one["role"] == "user"]
    assert [any(word in one for one in texts) for word in ("first", "typed before")] == [True, True]


def test_chats_survive_a_gateway_crash(hermes: HermesCli, model: FakeModelProcess) -> None:
    with full_screen(hermes) as idle, hermes.terminal() as child:
        idle.send("first\r")
        idle.expect_exact("Plain answer.")
        child.expect_exact(PROMPT)
        child.sendline("hang")
        child.expect_exact("first")
        child.sendline("/queue this instead")
        child.expect_exact("(queued)")
        child.sendline("/steer STEERED words")
        child.expect_exact("(sent)")
        kill_gateway(hermes)
        child.expect_exact(ALONE)
        child.expect_exact("The gateway stopped during this turn.")
        child.expect_exact("Steered answer.")
        child.expect_exact("this instead")
        child.expect_exact("Another answer.")
        assert quit_chat(child) == 0
        idle.expect_exact("this chat continues without it.")
        idle.send("this instead\r")
        idle.expect_exact("Another answer.")
        idle.send("\x04")
        assert exit_status(idle) == 0
    requests = model.requests("STEERED")
    assert [json.dumps(one["messages"]).count("STEERED") for one in requests] == [1] * len(requests)


def test_background_work_outlives_the_chat(hermes: HermesCli) -> None:
    going_on = "1 background task continues in the gateway; its result is shown when you resume"
    with full_screen(hermes) as screen, hermes.terminal() as child:
        screen.send("/bg hang\r")
        screen.expect_exact("Started dlg_")
        screen.send("\x04")
        screen.expect_exact(going_on)
        screen.expect_exact("Resume: hermes -r ")
        assert exit_status(screen) == 0
        child.expect_exact(PROMPT)
        child.sendline("/bg hang")
        child.expect_exact("Started dlg_")
        child.expect_exact(PROMPT)
        child.send("\x04")
        child.expect_exact(going_on[:70])
        child.expect_exact("Resume: hermes -r ")
        assert exit_status(child) == 0
    assert "2 delegations" in hermes("status").out


@contextmanager
def full_screen(hermes: HermesCli) -> Iterator[pexpect.spawn]:
    child = pexpect.spawn(
        HERMES_PROGRAM,
        [],
        cwd=str(hermes.work),
        env=hermes.env,
        encoding="utf-8",
        codec_errors="replace",
        dimensions=(24, 80),
        timeout=TEST_TIMEOUT,
    )
    child.delaybeforesend = None
    try:
        child.expect_exact("sk anything")
        yield child
    finally:
        child.close(force=True)
