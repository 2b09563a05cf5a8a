"""Threads of codex that are told in short: because somebody wants it, or because they are long."""

from pathlib import Path

import pytest

from hermes.app.codex import NEVER_COMPACT
from hermes.kit.ids import new_id
from hermes.ports.runtime import RuntimeCompaction, RuntimeRequest
from hermes.runtimes.codex.service import CodexTimeouts
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

pytestmark = pytest.mark.anyio

LIMIT = "model_auto_compact_token_limit"
SUMMARY = "The word was swordfish."
LONG = Reply(text="I will remember.", usage=TokenCounts(prompt=257_000))
"""More than nine tenths of what the model takes."""


def is_compaction(request: RecordedRequest) -> bool:
    return "compaction" in request.body.decode() and '"tools":[]' in request.body.decode()


async def shortened(house: CodexHarness) -> RuntimeCompaction:
    scope = Scope("default", house.session, new_id("run"), str(house.bench.path / "work"))
    return await house.runtime.compact(RuntimeRequest(scope, "", list(house.said)))


def shown(house: CodexHarness) -> list[str]:
    return [event.text for event in house.events if isinstance(event, Notice)]


async def test_somebody_wants_it(tmp_path: Path, program: str) -> None:
    script = Script(default=Reply(text="I will remember."))
    async with served_codex(script, tmp_path, program) as (model, house):
        await house.ask("the word is swordfish")
        model.script.default = Reply(text=SUMMARY)
        done = await shortened(house)
        assert is_compaction(model.requests[-1])
        assert (done.before, done.usage, done.model) == (15, Usage(10, 5), "mock-model")
        assert done.after > 0
        assert await house.ask("which word?") is Outcome.DONE, house.ended
        asked = model.requests[-1].body.decode()
        assert SUMMARY in asked
        assert "I will remember." not in asked
        assert house.ended is not None
        assert house.ended.usage == Usage(10, 5)


async def test_a_branch_knows_what_was_shortened(tmp_path: Path, program: str) -> None:
    script = Script(default=Reply(text="I will remember."))
    async with served_codex(script, tmp_path, program) as (model, house):
        await house.ask("the word is swordfish")
        model.script.default = Reply(text=SUMMARY)
        await shortened(house)
        house.session = "ses_2"
        house.choose(ThreadSettings(parent="ses_1"))
        assert await house.ask("which word?") is Outcome.DONE, house.ended
        asked = model.requests[-1].body.decode()
    assert SUMMARY in asked
    assert "I will remember." not in asked


async def test_when_it_fails_nothing_is_forgotten(tmp_path: Path, program: str) -> None:
    script = Script(default=Reply(text="I will remember."))
    async with served_codex(script, tmp_path, program) as (model, house):
        await house.ask("the word is swordfish")
        body = '{"error":{"message":"the model burns"}}'
        model.script.default = Reply(fault=Fault("status", status=500, body=body))
        with pytest.raises(ModelError, match="Codex could not answer"):
            await shortened(house)
        model.script.default = Reply(text="Swordfish.")
        assert await house.ask("which word?") is Outcome.DONE, house.ended
        assert "I will remember." in model.requests[-1].body.decode()


async def test_one_that_takes_for_ever_is_given_up_on(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(text="I will remember."))) as model:
        bench = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(bench) as house:
            await house.ask("the word is swordfish")
        model.script.default = Reply(fault=Fault("hang"))
        bench.patience = CodexTimeouts(deadline=1.0)
        async with codex_harness(bench) as later:
            later.said = list(house.said)
            with pytest.raises(ModelError, match="did not answer thread/compact/start in 1 s"):
                await shortened(later)
            model.script.default = Reply(text="Swordfish.")
            bench.patience = CodexTimeouts()
        async with codex_harness(bench) as again:
            again.said = list(house.said)
            assert await again.ask("which word?") is Outcome.DONE, again.ended
        assert "I will remember." in model.requests[-1].body.decode()


async def test_codex_does_it_by_itself(tmp_path: Path, program: str) -> None:
    async with served_codex(Script(default=LONG), tmp_path, program) as (model, house):
        await house.ask("the word is swordfish")
        model.script.default = Reply(text=SUMMARY)
        assert await house.ask("which word?") is Outcome.DONE, house.ended
        assert is_compaction(model.requests[1])
        assert any("compacted this conversation" in text for text in shown(house))
        assert house.ended is not None
        assert house.ended.usage == Usage(20, 10)


@pytest.mark.parametrize(("config", "times"), [({}, 1), ({LIMIT: NEVER_COMPACT}, 0)])
async def test_codex_is_told_to_leave_it(
    tmp_path: Path, program: str, config: dict[str, object], times: int
) -> None:
    """Its own settings want it early; what we give to the thread counts more."""
    much = Reply(text="I will remember.", usage=TokenCounts(prompt=140_000))
    async with serve(Script(default=much)) as model:
        bench = CodexSetup(
            url=model.url, path=tmp_path, program=program, settings=ThreadSettings(config=config)
        )
        bench.before = f"{LIMIT} = 100000"
        async with codex_harness(bench) as house:
            await house.ask("the word is swordfish")
            assert await house.ask("which word?") is Outcome.DONE, house.ended
    assert sum(map(is_compaction, model.requests)) == times


async def test_we_have_it_done_from_our_own_limit_on(tmp_path: Path, program: str) -> None:
    spent = Reply(text="I will remember.", usage=TokenCounts(prompt=140_000))
    short = Rule(contains="short", steps=[Reply(text="Yes.", usage=TokenCounts(prompt=1_000))])
    async with serve(Script(rules=[short], default=spent)) as model:
        bench = CodexSetup(
            url=model.url, path=tmp_path, program=program, settings=ThreadSettings(compact_at=0.5)
        )
        async with codex_harness(bench) as house:
            await house.ask("the short word is swordfish")
            await house.ask("now much of it")
            assert not any(map(is_compaction, model.requests))
        async with codex_harness(bench) as later:
            later.said = list(house.said)
            model.script.default = Reply(text=SUMMARY)
            assert await later.ask("which word?") is Outcome.DONE, later.ended
            assert is_compaction(model.requests[-2])
            (text,) = [one for one in shown(later) if "has shortened" in one]
            assert "about 140,005 tokens became" in text
            assert await later.ask("and now?") is Outcome.DONE, later.ended
            assert not is_compaction(model.requests[-2])
    assert SUMMARY in model.requests[-1].body.decode()


async def test_what_cannot_be_shortened_is_asked_all_the_same(tmp_path: Path, program: str) -> None:
    spent = Reply(text="I will remember.", usage=TokenCounts(prompt=140_000))
    async with serve(Script(default=spent)) as model:
        bench = CodexSetup(
            url=model.url, path=tmp_path, program=program, settings=ThreadSettings(compact_at=0.5)
        )
        async with codex_harness(bench) as house:
            await house.ask("the word is swordfish")
            fault = Fault("status", status=500, body='{"error":{"message":"the model burns"}}')
            model.script.rules = [
                Rule(contains="which word", steps=[Reply(text="Swordfish.")]),
                Rule(contains="summary", steps=[Reply(fault=fault)]),
            ]
            assert await house.ask("which word?") is Outcome.DONE, house.ended
            assert is_compaction(model.requests[-2])
    assert "I will remember." in model.requests[-1].body.decode()
    assert not any("has shortened" in text for text in shown(house))
