"""Turns of codex that fail: what is said then, and that the next one goes well."""

from pathlib import Path

import anyio
import pytest

from hermes.runtimes.codex.service import CodexTimeouts
from hermes.schema.events import MessageAdded, Outcome
from hermes.schema.messages import Assistant
from hermes.testing.fake_openai import Fault, Reply, Script, serve
from support.cli_process import TEST_TIMEOUT
from support.codex_runtime import CodexSetup, codex_harness
from support.codex_scenarios import command_script, served_codex

pytestmark = pytest.mark.anyio


async def test_a_model_that_fails_is_told_with_what_to_do(tmp_path: Path, program: str) -> None:
    fault = Fault("status", status=500, body='{"error":{"message":"the model burns"}}')
    async with served_codex(Script(default=Reply(fault=fault)), tmp_path, program) as (
        model,
        house,
    ):
        outcome = await house.ask("go")
        assert outcome is Outcome.FAILED
        assert house.ended is not None
        assert "/codex-runtime auto" in house.ended.reason
        assert "codex login" not in house.ended.reason
        model.script.default = Reply(text="well again")
        assert await house.ask("again") is Outcome.DONE


async def test_a_login_that_is_refused_says_codex_login(tmp_path: Path, program: str) -> None:
    fault = Fault("status", status=401, body='{"error":{"message":"token expired"}}')
    async with served_codex(Script(default=Reply(fault=fault)), tmp_path, program) as (_, house):
        outcome = await house.ask("go")
        assert outcome is Outcome.FAILED
        assert house.ended is not None
        assert "codex login" in house.ended.reason
        assert house.ended.code == "auth"


async def test_silence_after_a_tool_is_given_up_on(tmp_path: Path, program: str) -> None:
    hangs = Reply(fault=Fault("hang"))
    async with serve(command_script("echo hi", hangs)) as model:
        patience = CodexTimeouts(quiet=1.0)
        bench = CodexSetup(url=model.url, path=tmp_path, program=program, patience=patience)
        async with codex_harness(bench) as house:
            with anyio.fail_after(TEST_TIMEOUT):
                outcome = await house.ask("go")
            assert outcome is Outcome.FAILED
            assert house.ended is not None
            assert "sent nothing for 1 s after a tool" in house.ended.reason
            model.script.rules.clear()
            assert await house.ask("again") is Outcome.DONE, house.ended
            assert house.service.started == 2


async def test_a_turn_has_a_deadline(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(fault=Fault("hang")))) as model:
        patience = CodexTimeouts(deadline=1.0)
        bench = CodexSetup(url=model.url, path=tmp_path, program=program, patience=patience)
        async with codex_harness(bench) as house:
            with anyio.fail_after(TEST_TIMEOUT):
                outcome = await house.ask("go")
    assert outcome is Outcome.FAILED
    assert house.ended is not None
    assert "timed out after 1 s" in house.ended.reason


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    bench = CodexSetup(url="http://127.0.0.1:1", path=tmp_path, program=str(tmp_path / "nothing"))
    async with codex_harness(bench) as house:
        outcome = await house.ask("go")
    assert outcome is Outcome.FAILED
    assert house.ended is not None
    assert "could not be started" in house.ended.reason
    assert "/codex-runtime auto" in house.ended.reason
    assert not any(
        isinstance(event, MessageAdded) and isinstance(event.message, Assistant)
        for event in house.events
    )
