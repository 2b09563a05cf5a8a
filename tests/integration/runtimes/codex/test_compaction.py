"""Compaction of codex threads, on request or when they are long."""

from pathlib import Path

import pytest

from hermes.kit.ids import new_id
from hermes.ports.runtime import RuntimeCompaction, RuntimeRequest
from hermes.runtimes.codex.service import CodexTimeouts
from hermes.runtimes.codex.settings import NEVER_COMPACT
from hermes.runtimes.codex.threads import ThreadSettings
from hermes.schema.errors import ModelError
from hermes.schema.events import Notice, Outcome
from hermes.schema.messages import Usage
from hermes.schema.scope import Scope
from hermes.testing.fake_openai import Fault, Reply, Rule, Script, serve
from hermes.testing.fake_openai.script import TokenCounts
from hermes.testing.fake_openai.server import RecordedRequest
from support.codex_runtime import CodexHarness, CodexSetup, codex_harness
from support.codex_scenarios import served_codex

LIMIT = "model_auto_compact_token_limit"
SUMMARY = "The word was swordfish."
LONG = Reply(text="I will remember.", usage=TokenCounts(prompt=257_000))
"""More than nine tenths of the model's context window."""


def is_compaction(request: RecordedRequest) -> bool:
    return "compaction" in request.body.decode() and '"tools":[]' in request.body.decode()


async def compact(harness: CodexHarness) -> RuntimeCompaction:
    scope = Scope("default", harness.session, new_id("run"), str(harness.setup.path / "work"))
    return await harness.runtime.compact(RuntimeRequest(scope, "", list(harness.messages)))


def shown(harness: CodexHarness) -> list[str]:
    return [event.text for event in harness.events if isinstance(event, Notice)]


async def test_compaction_on_request(tmp_path: Path, program: str) -> None:
    script = Script(default=Reply(text="I will remember."))
    async with served_codex(script, tmp_path, program) as (model, harness):
        await harness.ask("the word is swordfish")
        model.script.default = Reply(text=SUMMARY)
        done = await compact(harness)
        assert is_compaction(model.requests[-1])
        assert (done.before, done.usage, done.model) == (15, Usage(10, 5), "mock-model")
        assert done.after > 0
        assert await harness.ask("which word?") is Outcome.DONE, harness.ended
        body = model.requests[-1].body.decode()
        assert SUMMARY in body
        assert "I will remember." not in body
        assert harness.ended is not None
        assert harness.ended.usage == Usage(10, 5)


async def test_branch_has_the_compacted_history(tmp_path: Path, program: str) -> None:
    script = Script(default=Reply(text="I will remember."))
    async with served_codex(script, tmp_path, program) as (model, harness):
        await harness.ask("the word is swordfish")
        model.script.default = Reply(text=SUMMARY)
        await compact(harness)
        harness.session = "ses_2"
        harness.choose(ThreadSettings(parent="ses_1"))
        assert await harness.ask("which word?") is Outcome.DONE, harness.ended
        body = model.requests[-1].body.decode()
    assert SUMMARY in body
    assert "I will remember." not in body


async def test_failed_compaction_keeps_the_history(tmp_path: Path, program: str) -> None:
    script = Script(default=Reply(text="I will remember."))
    async with served_codex(script, tmp_path, program) as (model, harness):
        await harness.ask("the word is swordfish")
        body = '{"error":{"message":"the model burns"}}'
        model.script.default = Reply(fault=Fault("status", status=500, body=body))
        with pytest.raises(ModelError, match="Codex could not answer"):
            await compact(harness)
        model.script.default = Reply(text="Swordfish.")
        assert await harness.ask("which word?") is Outcome.DONE, harness.ended
        assert "I will remember." in model.requests[-1].body.decode()


async def test_endless_compaction_times_out(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(text="I will remember."))) as model:
        setup = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(setup) as harness:
            await harness.ask("the word is swordfish")
        model.script.default = Reply(fault=Fault("hang"))
        setup.timeouts = CodexTimeouts(deadline=1.0)
        async with codex_harness(setup) as later:
            later.messages = list(harness.messages)
            with pytest.raises(ModelError, match="did not answer thread/compact/start in 1 s"):
                await compact(later)
            model.script.default = Reply(text="Swordfish.")
            setup.timeouts = CodexTimeouts()
        async with codex_harness(setup) as again:
            again.messages = list(harness.messages)
            assert await again.ask("which word?") is Outcome.DONE, again.ended
        assert "I will remember." in model.requests[-1].body.decode()


async def test_codex_compacts_by_itself(tmp_path: Path, program: str) -> None:
    async with served_codex(Script(default=LONG), tmp_path, program) as (model, harness):
        await harness.ask("the word is swordfish")
        model.script.default = Reply(text=SUMMARY)
        assert await harness.ask("which word?") is Outcome.DONE, harness.ended
        assert is_compaction(model.requests[1])
        assert any("compacted this conversation" in text for text in shown(harness))
        assert harness.ended is not None
        assert harness.ended.usage == Usage(20, 10)


@pytest.mark.parametrize(("config", "times"), [({}, 1), ({LIMIT: NEVER_COMPACT}, 0)])
async def test_automatic_compaction_can_be_disabled(
    tmp_path: Path, program: str, config: dict[str, object], times: int
) -> None:
    """Codex's own settings want it early; our thread settings take precedence."""
    much = Reply(text="I will remember.", usage=TokenCounts(prompt=140_000))
    async with serve(Script(default=much)) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, settings=ThreadSettings(config=config)
        )
        setup.before = f"{LIMIT} = 100000"
        async with codex_harness(setup) as harness:
            await harness.ask("the word is swordfish")
            assert await harness.ask("which word?") is Outcome.DONE, harness.ended
    assert sum(map(is_compaction, model.requests)) == times


async def test_compaction_starts_at_our_own_limit(tmp_path: Path, program: str) -> None:
    spent = Reply(text="I will remember.", usage=TokenCounts(prompt=140_000))
    short = Rule(contains="short", steps=[Reply(text="Yes.", usage=TokenCounts(prompt=1_000))])
    async with serve(Script(rules=[short], default=spent)) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, settings=ThreadSettings(compact_at=0.5)
        )
        async with codex_harness(setup) as harness:
            await harness.ask("the short word is swordfish")
            await harness.ask("now much of it")
            assert not any(map(is_compaction, model.requests))
        async with codex_harness(setup) as later:
            later.messages = list(harness.messages)
            model.script.default = Reply(text=SUMMARY)
            assert await later.ask("which word?") is Outcome.DONE, later.ended
            assert is_compaction(model.requests[-2])
            (text,) = [one for one in shown(later) if "compacted this" in one]
            assert "about 140,005 tokens became" in text
            assert await later.ask("and now?") is Outcome.DONE, later.ended
            assert not is_compaction(model.requests[-2])
    assert SUMMARY in model.requests[-1].body.decode()


async def test_turn_runs_even_if_compaction_fails(tmp_path: Path, program: str) -> None:
    spent = Reply(text="I will remember.", usage=TokenCounts(prompt=140_000))
    async with serve(Script(default=spent)) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, settings=ThreadSettings(compact_at=0.5)
        )
        async with codex_harness(setup) as harness:
            await harness.ask("the word is swordfish")
            fault = Fault("status", status=500, body='{"error":{"message":"the model burns"}}')
            model.script.rules = [
                Rule(contains="which word", steps=[Reply(text="Swordfish.")]),
                Rule(contains="summary", steps=[Reply(fault=fault)]),
            ]
            assert await harness.ask("which word?") is Outcome.DONE, harness.ended
            assert is_compaction(model.requests[-2])
    assert "I will remember." in model.requests[-1].body.decode()
    assert not any("compacted this" in text for text in shown(harness))
