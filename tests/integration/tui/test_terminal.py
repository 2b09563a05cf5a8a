"""The terminal UI in a real terminal with a real agent, in process or over the socket."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pexpect
import pytest

from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, FakeModelProcess, HermesCli
from support.ipc_server import ipc_server_process

READY = "sk anything"
DELETE = {"command": "rm -rf build", "escalate": "outside", "reason": "to build anew"}
WAIT = "until test -e GO; do sleep 0.1; done"
SCRIPT = Script(
    rules=[
        Rule("delete", [Reply("", [Call("terminal", DELETE)]), Reply("That was it.")]),
        Rule("wait for it", [Reply("", [Call("terminal", {"command": WAIT})]), Reply("So.")]),
        Rule("hang", [Reply("first words, then none", fault=Fault("hang", after=3), chunk=6)]),
    ],
    default=Reply("Plain answer."),
    models=("mock", "other"),
)  # fmt: skip


@pytest.fixture(params=["here", "remote"])
def hermes(
    request: pytest.FixtureRequest, tmp_path: Path, model: FakeModelProcess
) -> Iterator[HermesCli]:
    hermes = HermesCli(tmp_path, model.url)
    hermes.configure("approvals:\n  mode: manual\n")
    (hermes.work / "build").mkdir(parents=True)
    if request.param == "here":
        yield hermes
        return
    with ipc_server_process(hermes):
        yield hermes


@contextmanager
def full_screen(hermes: HermesCli, *words: str, **env: str) -> Iterator[pexpect.spawn]:
    child = pexpect.spawn(
        HERMES_PROGRAM,
        list(words),
        cwd=str(hermes.work),
        env=hermes.env | env,
        encoding="utf-8",
        codec_errors="replace",
        dimensions=(24, 80),
        timeout=TEST_TIMEOUT,
    )
    child.delaybeforesend = None
    try:
        child.expect_exact(READY)
        yield child
    finally:
        child.close(force=True)


def ended(child: pexpect.spawn) -> int:
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus


def test_conversation_with_approval_is_resumed(hermes: HermesCli) -> None:
    with full_screen(hermes) as child:
        child.send("delete it\r")
        child.expect_exact("Allow once")
        # What comes in the first moment is not taken for an answer.
        while child.expect_exact(["That was it.", pexpect.TIMEOUT], timeout=0.5) == 1:
            child.send("o")
        assert not (hermes.work / "build").exists()
        # A key of before may still be on its way to the question.
        for _ in range(10):
            child.send("\x1b[200~\x1b[201~\x15\x15/quit\r")
            expected = ["Resume: hermes -r", pexpect.TIMEOUT]
            if child.expect_exact(expected, timeout=5) == 0:
                break
        assert "> delete it" in child.before
        assert ended(child) == 0
    with full_screen(hermes, "-c") as child:
        child.send("\x04")
        assert ended(child) == 0


def test_message_steers_the_running_turn(hermes: HermesCli, model: FakeModelProcess) -> None:
    hermes.configure("display:\n  interface: cli\n")
    with full_screen(hermes, "--tui") as child:
        child.send("wait for it\r")
        child.expect_exact("running")
        child.send("and the STEERED one\x07")
        child.expect_exact("↳ and the STEERED one")
        child.send("hang\x0e")
        child.expect_exact("1 queued")
        (hermes.work / "GO").touch()
        child.expect_exact("first")
        child.send("\x03\x03")
        assert ended(child) == 130
    assert model.requests("STEERED")


def test_hanging_turn_is_interrupted(hermes: HermesCli) -> None:
    with full_screen(hermes) as child:
        child.send("hang\r")
        child.expect_exact("first")
        child.send("\x03")
        child.expect_exact("Interrupted.")
        child.send("hello\r")
        child.expect_exact("Plain answer.")
        child.send("hang\r")
        child.expect_exact("first")
        child.send("\x03\x03")
        assert ended(child) == 130


def test_sigterm_exits_cleanly(hermes: HermesCli) -> None:
    with full_screen(hermes) as child:
        child.send("hang\r")
        child.expect_exact("first")
        child.kill(signal.SIGTERM)
        assert ended(child) == 128 + signal.SIGTERM
    assert "hang" in hermes("sessions", "list").out


@pytest.mark.parametrize(
    ("words", "env", "settings"),
    [
        (["--plain"], {}, ""),
        (["--cli"], {}, ""),
        ([], {"TERM": "dumb"}, ""),
        ([], {}, "display:\n  interface: cli\n"),
    ],
)
def test_plain_mode_prints_lines(
    tmp_path: Path, model: FakeModelProcess, words: list[str], env: dict[str, str], settings: str
) -> None:
    hermes = HermesCli(tmp_path, model.url)
    hermes.configure(settings)
    child = pexpect.spawn(
        HERMES_PROGRAM,
        words,
        cwd=str(hermes.work),
        env=hermes.env | env,
        encoding="utf-8",
        timeout=TEST_TIMEOUT,
    )
    child.logfile_read = transcript = StringIO()
    child.expect_exact("Ctrl+C interrupts, Ctrl+D exits.")
    child.sendline("hello")
    child.expect_exact("Plain answer.")
    child.expect_exact("> ")
    child.sendline("/quit")
    assert ended(child) == 0
    assert "Plain answer." in transcript.getvalue()
    assert "\x1b[?1049h" not in transcript.getvalue()
