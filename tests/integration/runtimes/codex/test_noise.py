"""A process that speaks the protocol badly: the turn goes on, or ends with a sentence."""

import sys
from pathlib import Path

import anyio
import pytest

from hermes.runtimes.codex.service import CodexTimeouts
from hermes.schema.events import Outcome
from hermes.schema.messages import text_of
from support.cli_process import TEST_TIMEOUT
from support.codex_runtime import CodexSetup, codex_harness

pytestmark = pytest.mark.anyio

FAKE = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import json, sys

how = "{how}"
out = sys.stdout.buffer


def say(**fields):
    out.write(json.dumps(fields).encode() + b"\\n")
    out.flush()


def told(method, **params):
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
        say(id=number, result=shape.get(how, shape["plain"]))
    elif method == "turn/start":
        if how == "deaf":
            continue
        if how == "expired":
            say(id=number, error=dict(code=-1, message="token refresh failed: invalid_grant"))
            continue
        if how == "wordy":
            sys.stderr.write("panicked: out of cheese\\n")
            sys.stderr.flush()
            sys.exit(3)
        if how == "complaining":
            sys.stderr.write("x" * 3_000_000)
            sys.stderr.flush()
        say(id=number, result=dict(turn=dict(id="tu1")))
        if how == "garbage":
            out.write(b"\\x00\\xff not json\\n[1,2]\\n{{\\"half\\": \\n\\n42\\nnull\\n" * 50)
            say(method="somebody/invented/this", params=dict(threadId="th1", x=[1]))
            say(method="item/completed", params=dict(threadId="th1", item=17))
            say(id=999, result=dict())
        if how == "huge":
            out.write(b'{{"method":"warning","params":{{"threadId":"th1","message":"')
            for _ in range(50):
                out.write(b"x" * 1_000_000)
            out.write(b'"}}}}\\n')
        words = "<turn_aborted/>" if how == "aborted" else "still here"
        item = dict(type="agentMessage", id="m1", text=words)
        told("item/completed", item=item)
        if how != "aborted":
            told("turn/completed", turn=dict(id="tu1", status="completed"))
    else:
        say(id=number, result=dict())
"""


def fake(path: Path, how: str) -> str:
    program = path / "fake"
    program.write_text(FAKE.format(python=sys.executable, how=how))
    program.chmod(0o755)
    return str(program)


def bench(path: Path, how: str, patience: CodexTimeouts | None = None) -> CodexSetup:
    patience = patience or CodexTimeouts()
    return CodexSetup(
        url="http://127.0.0.1:1", path=path, program=fake(path, how), patience=patience
    )


@pytest.mark.parametrize("how", ["plain", "session", "flat", "flatter", "garbage", "huge"])
async def test_the_answer_is_heard(tmp_path: Path, how: str) -> None:
    async with codex_harness(bench(tmp_path, how)) as house:
        with anyio.fail_after(TEST_TIMEOUT):
            outcome = await house.ask("go")
    assert outcome is Outcome.DONE, house.ended
    assert text_of(house.said[-1]) == "still here"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("nameless", "has no thread id"),
        ("aborted", "stopped the turn"),
        ("wordy", "out of cheese"),
    ],
)
async def test_the_failure_is_told(tmp_path: Path, how: str, words: str) -> None:
    async with codex_harness(bench(tmp_path, how)) as house:
        with anyio.fail_after(TEST_TIMEOUT):
            outcome = await house.ask("go")
    assert outcome is Outcome.FAILED
    assert house.ended is not None
    assert words in house.ended.reason
    assert "/codex-runtime auto" in house.ended.reason


async def test_its_log_does_not_grow_with_every_turn(tmp_path: Path) -> None:
    async with codex_harness(bench(tmp_path, "complaining")) as house:
        with anyio.fail_after(TEST_TIMEOUT):
            for _ in range(3):
                assert await house.ask("go") is Outcome.DONE
        assert house.service.started == 1
    assert (tmp_path / "codex.log").stat().st_size < 2 * 3_000_000


async def test_a_login_that_has_expired_is_known(tmp_path: Path) -> None:
    async with codex_harness(bench(tmp_path, "expired")) as house:
        with anyio.fail_after(TEST_TIMEOUT):
            await house.ask("go")
            await house.ask("again")
        assert (tmp_path / "asked.txt").read_text() == "go\ngo + again\n"
        # What it knows of its login is read when it starts.
        assert house.service.started == 2
    assert house.ended is not None
    assert "codex login" in house.ended.reason


async def test_one_that_does_not_answer_is_replaced(tmp_path: Path) -> None:
    patience = CodexTimeouts(turn=0.3)
    async with codex_harness(bench(tmp_path, "deaf", patience)) as house:
        with anyio.fail_after(TEST_TIMEOUT):
            assert await house.ask("go") is Outcome.FAILED
            await house.ask("again")
        assert house.service.started == 2
    assert house.ended is not None
    assert "did not answer turn/start in 0.3 s" in house.ended.reason
