"""An idle turn is ended, but not while it waits for a person."""

import anyio
import pytest

from hermes.gateway.chat_runs import (
    ActiveRun,
    ActorRules,
    CancelCause,
    end_when_idle,
    format_duration,
    show_still_working,
)
from hermes.gateway.progress_message import ProgressTiming
from hermes.schema.events import Notice
from hermes.testing.channel import FakeFaultyChannel
from hermes.testing.clock import FakeClock
from support.gateway import progress_message

RULES = ActorRules(idle=100.0, idle_warning=60.0)


async def test_turn_waiting_for_a_person_is_not_idle() -> None:
    clock, warnings = FakeClock(), list[str]()
    now = clock.monotonic()
    run = ActiveRun(
        id="r", batch=[], keys=set(), scope=anyio.CancelScope(), started=now, last_active=now
    )
    run.open_questions = {"q"}

    async def warn(text: str) -> None:
        warnings.append(text)

    async with anyio.create_task_group() as group:
        group.start_soon(end_when_idle, run, RULES, clock, warn)
        await anyio.wait_all_tasks_blocked()
        await clock.advance(500)
        assert (warnings, run.cause) == ([], None)
        run.open_questions.discard("q")
        run.last_active = clock.monotonic()
        await clock.advance(61)
        assert len(warnings) == 1
        run.last_active = clock.monotonic()
        await clock.advance(99)
        # Every idle period is announced again.
        assert (len(warnings), run.cause) == (2, None)
        await clock.advance(2)
        assert run.cause is CancelCause.IDLE


async def test_long_running_turn_sends_a_progress_notice() -> None:
    clock, channel = FakeClock(), FakeFaultyChannel()
    bubble = progress_message(channel, clock, ProgressTiming(typing=9_000.0))
    now = clock.monotonic()
    run = ActiveRun(
        id="r",
        batch=[],
        keys=set(),
        scope=anyio.CancelScope(),
        started=now,
        last_active=now,
        progress=bubble,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        group.start_soon(show_still_working, run, ActorRules(notify=180.0), clock)
        await anyio.wait_all_tasks_blocked()
        bubble.handle_event(Notice("begun"))
        await anyio.wait_all_tasks_blocked()
        await clock.advance(181)
        await clock.advance(2)
        assert channel.texts_in("1") == ["begun\nStill working after 3 minutes."]
        run.open_questions = {"q"}
        await clock.advance(180)
        await clock.advance(2)
        assert channel.texts_in("1") == ["begun\nStill working after 3 minutes."]
        run.open_questions = set()
        await clock.advance(180)
        await clock.advance(2)
        assert channel.texts_in("1") == ["begun\nStill working after 9 minutes."]
        bubble.freeze()
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(1, "1 second"), (90, "90 seconds"), (900, "15 minutes"), (30_000, "8 hours")],
)
def test_format_duration(seconds: float, expected: str) -> None:
    assert format_duration(seconds) == expected
