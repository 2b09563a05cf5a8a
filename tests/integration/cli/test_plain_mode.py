"""`--plain` prints no escape codes."""

from pathlib import Path

import pexpect
import pytest

from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import (
    HERMES_PROGRAM,
    TEST_TIMEOUT,
    FakeModelProcess,
    HermesCli,
    exit_status,
)

WRITE = Call("write_file", {"path": "a.txt", "content": "one\ntwo\n"})
DELETE = {"command": "rm -rf build", "escalate": "outside", "reason": "to build anew"}
SCRIPT = Script(
    rules=[
        Rule("write", [Reply("Writing.", [WRITE], reasoning="A thought."), Reply("Written.")]),
        Rule("ask me", [Reply("", [Call("terminal", DELETE)]), Reply("Ok")]),
    ],
    default=Reply("Plain answer."),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "env", "settings"),
    [
        (["--plain"], {}, ""),
        (["--plain"], {"NO_COLOR": "1"}, ""),
        ([], {"TERM": "dumb"}, ""),
        ([], {}, "display:\n  interface: plain\n"),
    ],
)
def test_plain_chat_has_no_escape_codes(
    tmp_path: Path, model: FakeModelProcess, words: list[str], env: dict[str, str], settings: str
) -> None:
    hermes = HermesCli(tmp_path, model.url)
    hermes.configure(settings + "approvals:\n  mode: manual\n")
    with (tmp_path / "transcript").open("w+", encoding="utf-8") as transcript:
        child = pexpect.spawn(
            HERMES_PROGRAM,
            words,
            cwd=str(hermes.work),
            env=hermes.env | env,
            encoding="utf-8",
            dimensions=(24, 80),
            timeout=TEST_TIMEOUT,
        )
        child.logfile_read = transcript
        child.delaybeforesend = None
        child.expect_exact("\r\n> ")
        child.sendline("write a file")
        child.expect_exact("thinking…")
        child.expect_exact("Written.")
        child.expect_exact("\r\n> ")
        child.sendline("ask me")
        child.expect(r"\(Enter denies\): ")
        child.sendline("n")
        child.expect_exact("Ok")
        child.expect_exact("\r\n> ")
        for line in ("/copy", "/clear", "/nonsense"):
            child.sendline(line)
            child.expect_exact("\r\n> ")
        # What was typed before comes back, a command is completed, and a line is taken back.
        child.send("\x1b[A\x15/usa\t")
        child.expect_exact("/usage ")
        child.sendintr()
        child.expect_exact("\r\n> ")
        child.sendline("/quit")
        assert exit_status(child) == 0
        transcript.seek(0)
        assert "\x1b" not in transcript.read()
