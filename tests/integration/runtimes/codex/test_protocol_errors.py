"""A process with protocol errors: the turn continues, or ends with a clear error."""

import sys
from pathlib import Path

import anyio
import pytest

from hermes.runtimes.codex.service import CodexTimeouts
from hermes.schema.events import Outcome
from hermes.schema.messages import text_of
from support.cli_process import TEST_TIMEOUT
from support.codex_runtime import CodexSetup, codex_harness

FAKE = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import json, sys

behaviour = "{behaviour}"
out = sys.stdout.buffer


def say(**fields):
    out.write(json.dumps(fields).encode() + b"\\n")
    out.flush()


def notify(method, **params):
    say(method=method, params=dict(params, threadId="th1", turnId="tu1"))


for line in sys.stdin:
    asked = json.loads(line)
    method, number = asked.get("method"), asked.get("id")
    if number is None:
        continue
    if method == "turn/start":
        texts = [part["text"] for part in asked["params"]["input"]]
        with open("asked.txt", "a") as heard:
            heard.write(" + ".join(texts) + "\\n")
    if method == "thread/start":
        shape = dict(
            plain=dict(thread=dict(id="th1")),
            session=dict(thread=dict(sessionId="th1")),
            flat=dict(threadId="th1"),
            flatter=dict(sessionId="th1"),
            nameless=dict(thread=dict()),
        )
        say(id=number, result=shape.get(behaviour, shape["plain"]))
    elif method == "turn/start":
        if behaviour == "deaf":
            continue
        if behaviour == "expired":
            say(id=number, error=dict(code=-1, message="token refresh failed: invalid_grant"))
            continue
        if behaviour == "wordy":
            sys.stderr.write("panicked: out of cheese\\n")
            sys.stderr.flush()
            sys.exit(3)
        if behaviour == "complaining":
            sys.stderr.write("x" * 3_000_000)
            sys.stderr.flush()
        say(id=number, result=dict(turn=dict(id="tu1")))
        if behaviour == "garbage":
            out.write(b"\\x00\\xff not json\\n[1,2]\\n{{\\"half\\": \\n\\n42\\nnull\\n" * 50)
            say(method="somebody/invented/this", params=dict(threadId="th1", x=[1]))
            say(method="item/completed", params=dict(threadId="th1", item=17))
            say(id=999, result=dict())
        if behaviour == "huge":
            out.write(b'{{"method":"warning","params":{{"threadId":"th1","message":"')
            for _ in range(50):
                out.write(b"x" * 1_000_000)
            out.write(b'"}}}}\\n')
        message = "<turn_aborted/>" if behaviour == "aborted" else "still here"
        item = dict(type="agentMessage", id="m1", text=message)
        notify("item/completed", item=item)
        if behaviour != "aborted":
            notify("turn/completed", turn=dict(id="tu1", status="completed"))
    else:
        say(id=number, result=dict())
"""


def write_fake(path: Path, behaviour: str) -> str:
    program = path / "write_fake"
    program.write_text(FAKE.format(python=sys.executable, behaviour=behaviour))
    program.chmod(0o755)
    return str(program)


def setup(path: Path, behaviour: str, patience: CodexTimeouts | None = None) -> CodexSetup:
    patience = patience or CodexTimeouts()
    return CodexSetup(
        url="http://127.0.0.1:1", path=path, program=write_fake(path, behaviour), timeouts=patience
    )


@pytest.mark.parametrize("behaviour", ["plain", "session", "flat", "flatter", "garbage", "huge"])
async def test_answer_is_received(tmp_path: Path, behaviour: str) -> None:
    async with codex_harness(setup(tmp_path, behaviour)) as harness:
        with anyio.fail_after(TEST_TIMEOUT):
            outcome = await harness.ask("go")
    assert outcome is Outcome.DONE, harness.ended
    assert text_of(harness.messages[-1]) == "still here"


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("nameless", "has no thread id"),
        ("aborted", "stopped the turn"),
        ("wordy", "out of cheese"),
    ],
)
async def test_failure_is_reported(tmp_path: Path, behaviour: str, message: str) -> None:
    async with codex_harness(setup(tmp_path, behaviour)) as harness:
        with anyio.fail_after(TEST_TIMEOUT):
            outcome = await harness.ask("go")
    assert outcome is Outcome.FAILED
    assert harness.ended is not None
    assert message in harness.ended.reason
    assert "/codex-runtime auto" in harness.ended.reason


async def test_log_is_truncated(tmp_path: Path) -> None:
    async with codex_harness(setup(tmp_path, "complaining")) as harness:
        with anyio.fail_after(TEST_TIMEOUT):
            for _ in range(3):
                assert await harness.ask("go") is Outcome.DONE
        assert harness.service.started == 1
    assert (tmp_path / "codex.log").stat().st_size < 2 * 3_000_000


async def test_expired_login_is_recognised(tmp_path: Path) -> None:
    async with codex_harness(setup(tmp_path, "expired")) as harness:
        with anyio.fail_after(TEST_TIMEOUT):
            await harness.ask("go")
            await harness.ask("again")
        assert (tmp_path / "asked.txt").read_text() == "go\ngo + again\n"
        # It reads its login only when it starts.
        assert harness.service.started == 2
    assert harness.ended is not None
    assert "codex login" in harness.ended.reason


async def test_unresponsive_process_is_replaced(tmp_path: Path) -> None:
    patience = CodexTimeouts(turn=0.3)
    async with codex_harness(setup(tmp_path, "deaf", patience)) as harness:
        with anyio.fail_after(TEST_TIMEOUT):
            assert await harness.ask("go") is Outcome.FAILED
            await harness.ask("again")
        assert harness.service.started == 2
    assert harness.ended is not None
    assert "did not answer turn/start in 0.3 s" in harness.ended.reason
