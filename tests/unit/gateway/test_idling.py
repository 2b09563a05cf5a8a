"""A silent turn comes to an end, but not while it waits for a person."""

import anyio
import pytest

from hermes.gateway.idling import end_when_idle, spoken
from hermes.gateway.runs import ActorRules, Cause, Running
from hermes.schema.events import Answered, Notice
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

RULES = ActorRules(idle=100.0, idle_warning=60.0)


async def test_who_waits_for_a_person_is_not_idle() -> None:
    clock, warnings = FakeClock(), list[str]()
    now = clock.monotonic()
    run = Running(id="r", batch=[], scope=anyio.CancelScope(), begun=now, active=now)
    run.asking = {"q"}

    async def warn(text: str) -> None:
        warnings.append(text)

    async with anyio.create_task_group() as group:
        group.start_soon(end_when_idle, run, RULES, clock, warn)
        await anyio.wait_all_tasks_blocked()
        await clock.advance(500)
        assert (warnings, run.cause) == ([], None)
        run.note(Answered("q", "yes"), clock.monotonic())
        await clock.advance(61)
        assert len(warnings) == 1
        run.note(Notice("there it is"), clock.monotonic())
        await clock.advance(99)
        # Every silence is announced anew.
        assert (len(warnings), run.cause) == (2, None)
        await clock.advance(2)
        assert run.cause is Cause.IDLE


@pytest.mark.parametrize(
    ("seconds", "said"), [(1, "1 second"), (90, "90 seconds"), (900, "15 minutes")]
)
def test_lengths_in_words(seconds: float, said: str) -> None:
    assert spoken(seconds) == said
