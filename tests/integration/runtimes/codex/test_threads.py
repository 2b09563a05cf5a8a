"""Codex threads over many turns, processes and sessions."""

import shutil
from pathlib import Path

import anyio

from hermes.kit.clock import SystemClock
from hermes.runtimes.codex.service import CodexTimeouts
from hermes.runtimes.codex.threads import MAX_OPEN_THREADS
from hermes.schema.events import Outcome
from hermes.schema.messages import Assistant, Message, Stop, Text, User
from hermes.testing.fake_openai import Call, Reply, Rule, Script, serve
from support.cli_process import TEST_TIMEOUT
from support.codex_runtime import CodexSetup, codex_harness, codex_pids
from support.codex_scenarios import served_codex
from support.turns import FakeTool


async def test_thread_continues_in_another_process(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(text="I will remember."))) as model:
        setup = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(setup) as harness:
            await harness.ask("the word is swordfish")
        async with codex_harness(setup) as later:
            later.messages = list(harness.messages)
            assert await later.ask("which word?") is Outcome.DONE, later.ended
    body = model.requests[-1].body.decode()
    assert body.count("the word is swordfish") == 1
    assert body.count("I will remember.") == 1


async def test_missing_thread_is_started_again(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(text="I will remember."))) as model:
        setup = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(setup) as harness:
            await harness.ask("the word is swordfish")
        shutil.rmtree(tmp_path / "codex")
        async with codex_harness(setup) as later:
            later.messages = list(harness.messages)
            assert await later.ask("which word?") is Outcome.DONE, later.ended
    body = model.requests[-1].body.decode()
    assert body.count("the word is swordfish") == 1
    assert body.count("I will remember.") == 1


async def test_new_thread_gets_the_history(tmp_path: Path, program: str) -> None:
    async with served_codex(Script(default=Reply(text="Yes.")), tmp_path, program) as (
        model,
        harness,
    ):
        harness.messages = [
            User("msg_1", (Text("the word is swordfish"),)),
            Assistant("msg_2", (Text("Understood."),), Stop.END),
        ]
        assert await harness.ask("which word?") is Outcome.DONE, harness.ended
    body = model.requests[-1].body.decode()
    assert body.count("the word is swordfish") == 1
    assert body.count("Understood.") == 1


async def test_undone_turns_are_forgotten(tmp_path: Path, program: str) -> None:
    async with served_codex(Script(default=Reply(text="Yes.")), tmp_path, program) as (
        model,
        harness,
    ):
        await harness.ask("keep this")
        await harness.ask("forget this")
        del harness.messages[2:]
        assert await harness.ask("what now?") is Outcome.DONE, harness.ended
        body = model.requests[-1].body.decode()
        assert body.count("keep this") == 1
        assert "forget this" not in body


async def test_our_tools_are_available_in_another_process(tmp_path: Path, program: str) -> None:
    tool = FakeTool("session_search")
    reply = Reply(calls=[Call("session_search", {"query": "boats"})])
    script = Script(rules=[Rule(contains="go", steps=[reply, Reply(text="found")])])
    async with serve(script) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, tools={"session_search": tool}
        )
        async with codex_harness(setup) as harness:
            await harness.ask("hello")
        async with codex_harness(setup) as later:
            later.messages = list(harness.messages)
            assert await later.ask("go") is Outcome.DONE, later.ended
    assert tool.asked == [{"query": "boats"}]


async def test_idle_process_is_ended(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(text="Yes."))) as model:
        patience = CodexTimeouts(idle=0.3)
        setup = CodexSetup(url=model.url, path=tmp_path, program=program, timeouts=patience)
        async with codex_harness(setup) as harness:
            await harness.ask("the word is swordfish")
            with anyio.fail_after(TEST_TIMEOUT):
                while codex_pids(tmp_path):
                    await SystemClock().sleep(0.05)
            assert await harness.ask("which word?") is Outcome.DONE, harness.ended
            assert harness.service.started == 2
    assert model.requests[-1].body.decode().count("the word is swordfish") == 1


async def test_idle_threads_are_unsubscribed(tmp_path: Path, program: str) -> None:
    async with served_codex(Script(default=Reply(text="Yes.")), tmp_path, program) as (
        model,
        harness,
    ):
        first: list[Message] = []
        for number in range(MAX_OPEN_THREADS + 2):
            harness.session, harness.messages = f"ses_{number}", []
            assert await harness.ask(f"word {number}") is Outcome.DONE, harness.ended
            first = first or list(harness.messages)
        async with harness.service.server() as server:
            assert len(server.threads) == MAX_OPEN_THREADS
        harness.session, harness.messages = "ses_0", first
        assert await harness.ask("which word?") is Outcome.DONE, harness.ended
        assert "word 0" in model.requests[-1].body.decode()
