"""Branches and turns that were taken back: the thread is forked, and codex's own items go along."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from hermes.runtimes.codex.threads import ThreadSettings
from hermes.schema.events import Outcome
from hermes.schema.messages import Message
from hermes.testing.fake_openai import Call, Reply, Rule, Script, serve
from hermes.testing.fake_openai.server import FakeOpenAiServer
from support.codex_runtime import CodexHarness, CodexSetup, codex_harness
from support.codex_scenarios import served_codex
from support.turns import FakeTool

pytestmark = pytest.mark.anyio

OUTPUT = '"type":"function_call_output"'
"""What codex itself remembers of a command; what we tell it has only words."""


def script() -> Script:
    run = Reply(calls=[Call("exec_command", {"cmd": "echo swordfish"})])
    return Script(
        rules=[Rule(contains="go", steps=[run, Reply(text="I ran it.")])],
        default=Reply(text="Yes."),
    )


def branched(house: CodexHarness, name: str, parent: str, said: Sequence[Message]) -> None:
    house.session, house.said = name, list(said)
    house.choose(ThreadSettings(parent=parent))


def asked(model: FakeOpenAiServer) -> str:
    return model.requests[-1].body.decode()


async def test_a_branch_goes_on_in_a_thread_of_its_own(tmp_path: Path, program: str) -> None:
    async with served_codex(script(), tmp_path, program) as (model, house):
        await house.ask("go")
        trunk = list(house.said)
        branched(house, "ses_2", "ses_1", trunk)
        assert await house.ask("in the branch") is Outcome.DONE, house.ended
        assert OUTPUT in asked(model)
        assert asked(model).count("I ran it.") == 1
        branched(house, "ses_1", "", trunk)
        assert await house.ask("in the trunk") is Outcome.DONE, house.ended
        assert OUTPUT in asked(model)
        assert "in the branch" not in asked(model)


async def test_what_the_trunk_said_since_is_not_in_the_branch(tmp_path: Path, program: str) -> None:
    async with served_codex(script(), tmp_path, program) as (model, house):
        await house.ask("go")
        trunk = list(house.said)
        await house.ask("only in the trunk")
        branched(house, "ses_2", "ses_1", trunk)
        assert await house.ask("in the branch") is Outcome.DONE, house.ended
        assert OUTPUT in asked(model)
        assert "only in the trunk" not in asked(model)


async def test_a_branch_of_a_branch(tmp_path: Path, program: str) -> None:
    async with served_codex(script(), tmp_path, program) as (model, house):
        await house.ask("go")
        trunk = list(house.said)
        branched(house, "ses_2", "ses_1", trunk)
        assert await house.ask("first") is Outcome.DONE, house.ended
        branched(house, "ses_3", "ses_2", house.said)
        assert await house.ask("second") is Outcome.DONE, house.ended
        assert OUTPUT in asked(model)
        assert asked(model).count('"first"') == 1


async def test_our_tools_are_there_in_a_branch(tmp_path: Path, program: str) -> None:
    tool = FakeTool("session_search")
    call = Reply(calls=[Call("session_search", {"query": "boats"})])
    rules = [Rule(contains="look", steps=[call, Reply(text="found")])]
    async with serve(Script(rules=rules)) as model:
        bench = CodexSetup(
            url=model.url, path=tmp_path, program=program, tools={"session_search": tool}
        )
        async with codex_harness(bench) as house:
            await house.ask("hello")
        async with codex_harness(bench) as later:
            branched(later, "ses_2", "ses_1", house.said)
            assert await later.ask("look") is Outcome.DONE, later.ended
    assert tool.asked == [{"query": "boats"}]


async def test_turns_that_were_taken_back_one_after_the_other(tmp_path: Path, program: str) -> None:
    async with served_codex(script(), tmp_path, program) as (model, house):
        await house.ask("go")
        first = len(house.said)
        await house.ask("keep this")
        second = len(house.said)
        await house.ask("forget this")
        del house.said[second:]
        assert await house.ask("forget that") is Outcome.DONE, house.ended
        assert OUTPUT in asked(model)
        assert "keep this" in asked(model)
        assert "forget this" not in asked(model)
        del house.said[first:]
        assert await house.ask("what now?") is Outcome.DONE, house.ended
        assert OUTPUT in asked(model)
        assert not any(word in asked(model) for word in ("keep this", "forget this", "forget that"))


async def test_without_the_thread_a_branch_is_told_what_was_said(
    tmp_path: Path, program: str
) -> None:
    async with serve(script()) as model:
        bench = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(bench) as house:
            await house.ask("go")
        shutil.rmtree(tmp_path / "codex")
        async with codex_harness(bench) as later:
            branched(later, "ses_2", "ses_1", house.said)
            assert await later.ask("in the branch") is Outcome.DONE, later.ended
    assert OUTPUT not in asked(model)
    assert asked(model).count("I ran it.") == 1
