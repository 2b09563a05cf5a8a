"""Branches and undone turns: the thread is forked with codex's own items."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from hermes.runtimes.codex.threads import ThreadSettings
from hermes.schema.events import Outcome
from hermes.schema.messages import Message
from hermes.testing.fake_openai import Call, Reply, Rule, Script, serve
from hermes.testing.fake_openai.server import FakeOpenAiServer
from support.codex_runtime import CodexHarness, CodexSetup, codex_harness
from support.codex_scenarios import served_codex
from support.turns import FakeTool

OUTPUT = '"type":"function_call_output"'
"""How codex itself stores a command; messages that we inject are text only."""


def script() -> Script:
    run = Reply(calls=[Call("exec_command", {"cmd": "echo swordfish"})])
    return Script(
        rules=[Rule(contains="go", steps=[run, Reply(text="I ran it.")])],
        default=Reply(text="Yes."),
    )


def start_branch(
    harness: CodexHarness, name: str, parent: str, messages: Sequence[Message]
) -> None:
    harness.session, harness.messages = name, list(messages)
    harness.choose(ThreadSettings(parent=parent))


def last_request(model: FakeOpenAiServer) -> str:
    return model.requests[-1].body.decode()


async def test_branch_continues_in_a_forked_thread(tmp_path: Path, program: str) -> None:
    async with served_codex(script(), tmp_path, program) as (model, harness):
        await harness.ask("go")
        trunk = list(harness.messages)
        start_branch(harness, "ses_2", "ses_1", trunk)
        assert await harness.ask("in the branch") is Outcome.DONE, harness.ended
        assert OUTPUT in last_request(model)
        assert last_request(model).count("I ran it.") == 1
        start_branch(harness, "ses_1", "", trunk)
        assert await harness.ask("in the trunk") is Outcome.DONE, harness.ended
        assert OUTPUT in last_request(model)
        assert "in the branch" not in last_request(model)


async def test_branch_does_not_contain_later_messages_of_its_parent(
    tmp_path: Path, program: str
) -> None:
    async with served_codex(script(), tmp_path, program) as (model, harness):
        await harness.ask("go")
        trunk = list(harness.messages)
        await harness.ask("only in the trunk")
        start_branch(harness, "ses_2", "ses_1", trunk)
        assert await harness.ask("in the branch") is Outcome.DONE, harness.ended
        assert OUTPUT in last_request(model)
        assert "only in the trunk" not in last_request(model)


async def test_branch_of_a_branch_is_forked(tmp_path: Path, program: str) -> None:
    async with served_codex(script(), tmp_path, program) as (model, harness):
        await harness.ask("go")
        trunk = list(harness.messages)
        start_branch(harness, "ses_2", "ses_1", trunk)
        assert await harness.ask("first") is Outcome.DONE, harness.ended
        start_branch(harness, "ses_3", "ses_2", harness.messages)
        assert await harness.ask("second") is Outcome.DONE, harness.ended
        assert OUTPUT in last_request(model)
        assert last_request(model).count('"first"') == 1


async def test_our_tools_are_available_in_a_branch(tmp_path: Path, program: str) -> None:
    tool = FakeTool("session_search")
    call = Reply(calls=[Call("session_search", {"query": "boats"})])
    rules = [Rule(contains="look", steps=[call, Reply(text="found")])]
    async with serve(Script(rules=rules)) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, tools={"session_search": tool}
        )
        async with codex_harness(setup) as harness:
            await harness.ask("hello")
        async with codex_harness(setup) as later:
            start_branch(later, "ses_2", "ses_1", harness.messages)
            assert await later.ask("look") is Outcome.DONE, later.ended
    assert tool.asked == [{"query": "boats"}]


async def test_repeated_undo_forks_at_earlier_turns(tmp_path: Path, program: str) -> None:
    async with served_codex(script(), tmp_path, program) as (model, harness):
        await harness.ask("go")
        first = len(harness.messages)
        await harness.ask("keep this")
        second = len(harness.messages)
        await harness.ask("forget this")
        del harness.messages[second:]
        assert await harness.ask("forget that") is Outcome.DONE, harness.ended
        assert OUTPUT in last_request(model)
        assert "keep this" in last_request(model)
        assert "forget this" not in last_request(model)
        del harness.messages[first:]
        assert await harness.ask("what now?") is Outcome.DONE, harness.ended
        assert OUTPUT in last_request(model)
        assert not any(
            word in last_request(model) for word in ("keep this", "forget this", "forget that")
        )


async def test_branch_without_a_thread_gets_the_history(tmp_path: Path, program: str) -> None:
    async with serve(script()) as model:
        setup = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(setup) as harness:
            await harness.ask("go")
        shutil.rmtree(tmp_path / "codex")
        async with codex_harness(setup) as later:
            start_branch(later, "ses_2", "ses_1", harness.messages)
            assert await later.ask("in the branch") is Outcome.DONE, later.ended
    assert OUTPUT not in last_request(model)
    assert last_request(model).count("I ran it.") == 1
