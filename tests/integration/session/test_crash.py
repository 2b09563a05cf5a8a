"""A process killed anywhere in a turn loses nothing and repeats nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from hermes.kit.clock import SystemClock
from hermes.schema.errors import NotFound, SessionBusy
from hermes.schema.events import Outcome
from hermes.schema.messages import Assistant, Result, User, text_of
from hermes.schema.tools import Effect
from hermes.store.sqlite import open_store
from hermes.testing.scripted_model import answer_script
from support.cli_process import TEST_TIMEOUT, wait_for_data
from support.conversation import ConversationHarness
from support.history_validators import check_request
from support.turns import EventRecorder, FakeTool

CHILD = Path(__file__).with_name("crashing_child.py")
EVENTS = 13
"""How many events a whole turn of the child has."""

PLACES = ["plan", "tool:look", "tool:act", "tool:peek", *(f"event:{n}" for n in range(EVENTS))]


def start_child(folder: Path, place: str) -> "subprocess.Popen[bytes]":
    """A process that runs a turn and now waits at the place."""
    reader, writer = os.pipe()
    env = {"PYTHONPATH": str(CHILD.parents[2]), "PATH": os.defpath, "HOME": str(folder)}
    command = [sys.executable, str(CHILD), str(folder), place, str(writer)]
    child = subprocess.Popen(command, pass_fds=[writer], env=env)
    os.close(writer)
    reached = wait_for_data(reader)
    os.close(reader)
    if not reached:
        child.wait(TEST_TIMEOUT)
        raise EOFError(f"the child ended before {place}")
    return child


def kill_at(folder: Path, place: str) -> None:
    child = start_child(folder, place)
    child.send_signal(signal.SIGKILL)
    assert child.wait(TEST_TIMEOUT) == -signal.SIGKILL


@asynccontextmanager
async def reopened(folder: Path) -> AsyncGenerator[tuple[ConversationHarness, list[FakeTool]]]:
    """The same home in another process: here."""
    tools = [FakeTool("look"), FakeTool("act", effect=Effect.OUTSIDE), FakeTool("peek")]
    clock = SystemClock()
    async with open_store(folder / "hermes.db", clock) as store:
        yield (
            ConversationHarness(
                store, clock, [answer_script("Here we are."), answer_script("And on.")], tools
            ),
            tools,
        )


def effects(folder: Path) -> int:
    path = folder / "effects"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("place", PLACES[1:])
async def test_session_continues_after_kill_9(tmp_path: Path, place: str) -> None:
    await check_going_on(tmp_path, place)


async def check_going_on(tmp_path: Path, place: str) -> None:
    await anyio.to_thread.run_sync(kill_at, tmp_path, place)
    before = effects(tmp_path)
    async with reopened(tmp_path) as (one, tools):
        await one.conversation.resume("s1")
        assert await one.submit("and?") is Outcome.DONE
        assert await one.submit("more?", EventRecorder()) is Outcome.DONE
        rows = [row.message for row in await one.rows()]
        left = await one.store.queues.claim("inbox", None, "me", timedelta(0), 10)
        assert list(left) == []
        assert list(await one.store.open_intents("s1")) == []
        assert list(await one.store.maintenance.integrity()) == []
    # Every word of the person is there once, in order.
    question = [text_of(m) for m in rows if isinstance(m, User)]
    assert question == ["do it", "and?", "more?"]
    # Nothing was run again, and at most once at all.
    assert [tool.asked for tool in tools] == [[], [], []]
    assert effects(tmp_path) == before <= 1
    # Every call has exactly one result.
    calls = [c.id for m in rows if isinstance(m, Assistant) for c in m.calls]
    results = {m.call: m for m in rows if isinstance(m, Result)}
    assert sorted(results) == sorted(calls)
    assert sum(isinstance(m, Result) for m in rows) == len(calls)
    if act := results.get("call_act"):
        outcome = text_of(act)
        assert (
            outcome == "acted"
            or "outcome is unknown" in outcome
            or "Nothing was changed" in outcome
        )
        assert before == 0 or "Nothing was changed" not in outcome
    for request in one.model.requests:
        check_request(request.messages)


async def test_message_not_yet_accepted_leaves_no_trace(tmp_path: Path) -> None:
    await anyio.to_thread.run_sync(kill_at, tmp_path, "plan")
    async with reopened(tmp_path) as (one, _):
        assert await one.sessions() == []
        with pytest.raises(NotFound):
            await one.conversation.resume("s1")
        await one.conversation.begin_with([], "s1")
        assert await one.submit("again") is Outcome.DONE
        assert [text_of(row.message) for row in await one.rows()] == ["again", "Here we are."]


async def test_effect_with_unknown_outcome_is_reported_as_such(tmp_path: Path) -> None:
    await anyio.to_thread.run_sync(kill_at, tmp_path, "tool:act")
    assert effects(tmp_path) == 1
    async with reopened(tmp_path) as (one, _):
        await one.conversation.resume("s1")
        (begun,) = await one.store.open_intents("s1")
        assert (begun.call, begun.tool) == ("call_act", "act")
        await one.submit("and?")
    outcomes = {m.call: text_of(m) for m in one.model.requests[0].messages if isinstance(m, Result)}
    assert outcomes["call_look"] == "seen"
    assert "outcome is unknown" in outcomes["call_act"]
    assert "Nothing was changed" in outcomes["call_peek"]


async def test_two_processes_do_not_run_the_same_session(tmp_path: Path) -> None:
    child = await anyio.to_thread.run_sync(start_child, tmp_path, "tool:act")
    try:
        async with reopened(tmp_path) as (one, _):
            await one.conversation.resume("s1")
            with pytest.raises(SessionBusy) as busy:
                await one.submit("me too")
            assert f"process {child.pid}" in str(busy.value)
            assert busy.value.hint
            with pytest.raises(SessionBusy):
                await one.conversation.undo()
            assert [text_of(row.message) for row in await one.rows()][:1] == ["do it"]
            # Its lease still has a minute to go, but a dead process needs no lease.
            child.kill()
            await anyio.to_thread.run_sync(child.wait)
            assert await one.submit("now me") is Outcome.DONE
            questions = [m for m in one.model.requests[0].messages if isinstance(m, User)]
            assert [text_of(m) for m in questions] == ["do it", "now me"]
    finally:
        child.kill()
        await anyio.to_thread.run_sync(child.wait)


def test_failpoints_cover_the_whole_turn(tmp_path: Path) -> None:
    """The last event's number is right: one more is never reached."""
    with pytest.raises(EOFError):
        kill_at(tmp_path, f"event:{EVENTS}")


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES[1:])
async def test_a_night_of_kills(tmp_path: Path, place: str) -> None:
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        await check_going_on(folder, place)
