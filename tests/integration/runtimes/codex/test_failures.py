"""Codex turns that fail, and the recovery of the next one."""

from pathlib import Path

import anyio

from hermes.runtimes.codex.service import CodexTimeouts
from hermes.schema.events import MessageAdded, Outcome
from hermes.schema.messages import Assistant
from hermes.testing.fake_openai import Fault, Reply, Script, serve
from support.cli_process import TEST_TIMEOUT
from support.codex_runtime import CodexSetup, codex_harness
from support.codex_scenarios import command_script, served_codex


async def test_model_failure_has_a_hint(tmp_path: Path, program: str) -> None:
    fault = Fault("status", status=500, body='{"error":{"message":"the model burns"}}')
    async with served_codex(Script(default=Reply(fault=fault)), tmp_path, program) as (
        model,
        harness,
    ):
        outcome = await harness.ask("go")
        assert outcome is Outcome.FAILED
        assert harness.ended is not None
        assert "/codex-runtime auto" in harness.ended.reason
        assert "codex login" not in harness.ended.reason
        model.script.default = Reply(text="well again")
        assert await harness.ask("again") is Outcome.DONE


async def test_refused_login_hints_at_codex_login(tmp_path: Path, program: str) -> None:
    fault = Fault("status", status=401, body='{"error":{"message":"token expired"}}')
    async with served_codex(Script(default=Reply(fault=fault)), tmp_path, program) as (_, harness):
        outcome = await harness.ask("go")
        assert outcome is Outcome.FAILED
        assert harness.ended is not None
        assert "codex login" in harness.ended.reason
        assert harness.ended.code == "auth"


async def test_silence_after_a_tool_times_out(tmp_path: Path, program: str) -> None:
    hangs = Reply(fault=Fault("hang"))
    async with serve(command_script("echo hi", hangs)) as model:
        timeouts = CodexTimeouts(quiet=1.0)
        setup = CodexSetup(url=model.url, path=tmp_path, program=program, timeouts=timeouts)
        async with codex_harness(setup) as harness:
            with anyio.fail_after(TEST_TIMEOUT):
                outcome = await harness.ask("go")
            assert outcome is Outcome.FAILED
            assert harness.ended is not None
            assert "sent nothing for 1 s after a tool" in harness.ended.reason
            model.script.rules.clear()
            assert await harness.ask("again") is Outcome.DONE, harness.ended
            assert harness.service.started == 2


async def test_turn_has_a_deadline(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(fault=Fault("hang")))) as model:
        timeouts = CodexTimeouts(deadline=1.0)
        setup = CodexSetup(url=model.url, path=tmp_path, program=program, timeouts=timeouts)
        async with codex_harness(setup) as harness:
            with anyio.fail_after(TEST_TIMEOUT):
                outcome = await harness.ask("go")
    assert outcome is Outcome.FAILED
    assert harness.ended is not None
    assert "timed out after 1 s" in harness.ended.reason


async def test_missing_program_is_reported(tmp_path: Path) -> None:
    setup = CodexSetup(url="http://127.0.0.1:1", path=tmp_path, program=str(tmp_path / "nothing"))
    async with codex_harness(setup) as harness:
        outcome = await harness.ask("go")
    assert outcome is Outcome.FAILED
    assert harness.ended is not None
    assert "could not be started" in harness.ended.reason
    assert "/codex-runtime auto" in harness.ended.reason
    assert not any(
        isinstance(event, MessageAdded) and isinstance(event.message, Assistant)
        for event in harness.events
    )
