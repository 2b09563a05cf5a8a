"""`from hermes import Agent`: events, answers, leaving early, and independent agents."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hermes import Agent
from hermes.app.build import AppOptions
from hermes.library import EVENT_BUFFER
from hermes.schema.errors import ConfigError, NotFound, Unauthorized, UsageError
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Result, User, text_of
from hermes.testing.fake_openai import Call, FakeOpenAiServer, Fault, Reply, Rule, Script, serve
from support.polling import pause

WORDS = "one two three four five"
SCRIPT = Script(
    rules=[
        Rule("hang", [Reply(WORDS, fault=Fault("hang", after=2), chunk=4)]),
        Rule("tool", [Reply("", [Call("terminal", {"command": "echo hi"})]), Reply("Said hi.")]),
        Rule("many", [Reply("word " * 4000, chunk=5)]),
        Rule("wrong key", [Reply(fault=Fault("status", named="unauthorized"))]),
    ],
    default=Reply(WORDS),
)
EXAMPLE = """
import asyncio
from hermes import Agent

async def main():
    async with Agent() as agent:
        print(await agent.ask("hello"))

asyncio.run(main())
"""


def make_home(path: Path, url: str, key: str = "sk-library") -> Path:
    path.mkdir()
    settings = f"model:\n  default: mock\n  provider: openai\n  base_url: {url}\n  api_key: {key}\n"
    (path / "config.yaml").write_text(settings)
    return path


@asynccontextmanager
async def open_agent(
    folder: Path, script: Script = SCRIPT
) -> AsyncIterator[tuple[Agent, FakeOpenAiServer]]:
    async with serve(script) as server:
        home = make_home(folder / "home", server.url)
        async with Agent(AppOptions(workspace=str(folder)), home=home) as agent:
            yield agent, server


async def collect_events(agent: Agent, prompt: str) -> list[Event]:
    async with agent.events(prompt) as events:
        return [event async for event in events]


async def test_five_line_example_runs(tmp_path: Path) -> None:
    async with serve(SCRIPT) as server:
        home = make_home(tmp_path / "home", server.url)
        done = await anyio.run_process(
            [sys.executable, "-c", EXAMPLE],
            env={"HERMES_HOME": str(home), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.stdout, done.stderr) == (f"{WORDS}\n".encode(), b"")


async def test_events_of_a_turn(tmp_path: Path) -> None:
    async with open_agent(tmp_path) as (agent, _):
        first, *events, last = await collect_events(agent, "use a tool")
    assert isinstance(first, RunStarted)
    assert isinstance(last, RunEnded)
    assert last.outcome is Outcome.DONE
    facts = [event for event in events if isinstance(event, MessageAdded | ToolStarted)]
    kinds = [type(getattr(event, "message", event)) for event in facts]
    assert kinds == [User, Assistant, ToolStarted, Result, Assistant]
    assert "".join(one.text for one in events if isinstance(one, TextDelta)) == "Said hi."


async def test_conversation_continues_across_turns_and_agents(tmp_path: Path) -> None:
    async with open_agent(tmp_path) as (agent, server):
        assert await agent.ask("first") == WORDS
        answer = await agent.answer("second")
        assert answer.text == WORDS
        assert answer.ended.usage.input == 10
        async with Agent(AppOptions(workspace=str(tmp_path)), home=tmp_path / "home") as later:
            await later.resume(agent.session)
            await later.ask("third")
            with pytest.raises(NotFound):
                await later.resume("nobody")
        questions = [one for one in server.requests[-1].json["messages"] if one["role"] == "user"]
        assert [one["content"] for one in questions] == ["first", "second", "third"]


async def test_leaving_early_ends_the_turn_and_keeps_its_text(tmp_path: Path) -> None:
    async with open_agent(tmp_path) as (agent, server):
        with anyio.fail_after(60):
            async with agent.events("hang") as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
            await server.requests[0].ended.wait()
            assert not server.requests[0].completed
            assert await agent.ask("and now") == WORDS
        partial = [one for one in server.requests[1].json["messages"] if one["role"] == "assistant"]
        assert WORDS.startswith(partial[0]["content"])


async def test_leaving_before_the_first_event_sends_no_request(tmp_path: Path) -> None:
    async with open_agent(tmp_path) as (agent, server):
        with anyio.fail_after(60):
            async with agent.events("hang"):
                pass
            assert await agent.ask("and now") == WORDS
        assert len(server.requests) == 1


async def test_slow_reader_misses_only_deltas(tmp_path: Path) -> None:
    async with open_agent(tmp_path) as (agent, server):
        with anyio.fail_after(60):
            async with agent.events("many") as events:
                first = await anext(events)
                while not server.requests:
                    await pause()
                await server.requests[0].ended.wait()
                rest = [event async for event in events]
    assert isinstance(first, RunStarted)
    deltas = [event for event in rest if isinstance(event, TextDelta)]
    assert 0 < len(deltas) <= EVENT_BUFFER
    question, answer, ended = [event for event in rest if not isinstance(event, TextDelta)]
    assert isinstance(question, MessageAdded)
    assert isinstance(answer, MessageAdded)
    assert text_of(answer.message) == "word " * 4000
    assert isinstance(ended, RunEnded)


async def test_error_of_the_reader_is_raised_unchanged(tmp_path: Path) -> None:
    async with open_agent(tmp_path) as (agent, _):
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
            async with agent.events("hello") as events:
                async for _ in events:
                    raise ZeroDivisionError
        assert await agent.ask("still there?") == WORDS


async def test_model_error_is_raised_with_its_class(tmp_path: Path) -> None:
    async with open_agent(tmp_path) as (agent, _):
        with pytest.raises(Unauthorized, match="key"):
            await agent.ask("wrong key")
        assert (await agent.answer("wrong key")).ended.outcome is Outcome.FAILED
        events = await collect_events(agent, "wrong key")
        assert isinstance(events[-1], RunEnded)
        assert events[-1].code == "auth"


async def test_start_error_is_raised_from_the_block(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", "http://127.0.0.1:1/v1")
    async with Agent(home=home, provider="nobody") as agent:
        with pytest.raises(ConfigError, match="nobody"):
            await collect_events(agent, "hello")
        with pytest.raises(ConfigError, match="nobody"):
            await agent.ask("hello")


async def test_agent_runs_one_turn_at_a_time(tmp_path: Path) -> None:
    async with open_agent(tmp_path) as (agent, _), agent.events("hang") as events:
        await anext(events)
        with pytest.raises(UsageError, match="already running a turn"):
            await agent.ask("me too")
        assert agent.interrupt()
        rest = [event async for event in events]
        assert rest[-1].outcome is Outcome.CANCELLED
    with pytest.raises(UsageError, match="not open"):
        await agent.ask("are you there?")


async def test_choices_exclude_other_arguments() -> None:
    with pytest.raises(UsageError, match="choices"):
        Agent(AppOptions(workspace="/"), model="mock")


async def test_two_agents_in_one_process_are_independent(tmp_path: Path) -> None:
    async with serve(SCRIPT) as one_server, serve(SCRIPT) as two_server:
        homes = [
            make_home(tmp_path / "one", one_server.url, "sk-of-one"),
            make_home(tmp_path / "two", two_server.url, "sk-of-two"),
        ]
        (homes[0] / "SOUL.md").write_text("You are ONE.")
        (homes[1] / "SOUL.md").write_text("You are TWO.")
        choices = AppOptions(workspace=str(tmp_path))
        async with Agent(choices, home=homes[0]) as one, Agent(choices, home=homes[1]) as two:
            for _ in range(2):
                async with anyio.create_task_group() as group:
                    group.start_soon(one.ask, "a question to one")
                    group.start_soon(two.ask, "a question to two")
            assert not await one.app.conversation.exists(two.session)
            assert not await two.app.conversation.exists(one.session)
    for server, own, other in ((one_server, b"one", b"two"), (two_server, b"two", b"one")):
        assert len(server.requests) == 2
        for request in server.requests:
            assert request.headers["authorization"] == f"Bearer sk-of-{own.decode()}"
            assert b"You are " + own.upper() in request.body
            assert b"a question to " + own in request.body
            assert b"You are " + other.upper() not in request.body
            assert b"a question to " + other not in request.body
