"""A turn runs in a task of its own while its surface reads the events."""

from collections.abc import Sequence

import anyio
import pytest

from hermes.bus.memory import MemoryBus
from hermes.ports.bus import RUN_TOPIC, Subscription
from hermes.ports.store import CompleteItem, Write
from hermes.schema.events import Event, Outcome, RunEnded, RunStarted, TextDelta
from hermes.schema.messages import Message
from hermes.session.followed_run import FollowedRun, RunReading

STARTED = RunStarted("r1", "s1")
CANCELLED = RunEnded("r1", Outcome.CANCELLED)


class Work:
    """Publishes its start, waits until it is let go or cancelled, and publishes its end."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.started = anyio.Event()
        self.may_end = anyio.Event()

    async def __call__(self) -> None:
        self.publish(STARTED)
        self.started.set()
        ended = CANCELLED
        try:
            await self.may_end.wait()
            ended = RunEnded("r1", Outcome.DONE)
        finally:
            self.publish(ended)

    def publish(self, event: Event) -> None:
        self.bus.publish(RUN_TOPIC.format("r1"), event)


class Reader:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.before_end: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    async def flush(self) -> None: ...

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        self.before_end = self.events.copy()
        return [CompleteItem("m1")]


async def read_all(run: Subscription) -> list[Event]:
    found: list[Event] = []
    while events := await run.read():
        found += events
    return found


async def test_events_are_read_until_the_run_is_over() -> None:
    work = Work()
    work.may_end.set()
    reader = Reader()
    reading = RunReading(reader)
    assert not reading.started
    await reading.read(FollowedRun(work.bus, "r1", work))
    assert reader.events == [STARTED, RunEnded("r1", Outcome.DONE)]
    assert reading.started
    assert reading.ended == RunEnded("r1", Outcome.DONE)


async def test_stop_ends_the_run_and_its_last_events_are_read() -> None:
    work, stop = Work(), anyio.CancelScope()
    async with FollowedRun(work.bus, "r1", work, stop) as run:
        await work.started.wait()
        stop.cancel()
        assert await read_all(run) == [STARTED, CANCELLED]


async def test_cancelled_reader_ends_the_run_and_gets_missed_events() -> None:
    work, reader = Work(), Reader()
    reading = RunReading(reader)
    async with anyio.create_task_group() as group:
        group.start_soon(reading.read, FollowedRun(work.bus, "r1", work))
        await work.started.wait()
        group.cancel_scope.cancel()
    assert reader.events == [STARTED, CANCELLED]
    assert reading.ended == CANCELLED


async def test_error_of_the_run_is_raised_after_its_events() -> None:
    async def fail() -> None:
        work.publish(STARTED)
        raise OSError("broken")

    work, seen = Work(), list[Event]()
    with pytest.raises(OSError, match="broken"):
        async with FollowedRun(work.bus, "r1", fail) as run:
            seen += await read_all(run)
    assert seen == [STARTED]


async def test_error_of_the_reader_ends_the_run() -> None:
    class Broken(Reader):
        async def flush(self) -> None:
            raise BrokenPipeError

    work, reader = Work(), Broken()
    with pytest.raises(BrokenPipeError):
        await RunReading(reader).read(FollowedRun(work.bus, "r1", work))
    assert reader.events == [STARTED, CANCELLED]


async def test_final_writes_are_asked_for_after_all_earlier_events() -> None:
    reader = Reader()
    reading = RunReading(reader)
    writes: list[Write] = []

    async def work_without_a_pause() -> None:
        work.publish(STARTED)
        work.publish(TextDelta("a"))
        ended = RunEnded("r1", Outcome.DONE)
        writes.extend(reading.final_writes(ended, []))
        work.publish(ended)

    work = Work()
    await reading.read(FollowedRun(work.bus, "r1", work_without_a_pause))
    assert reader.before_end == [STARTED, TextDelta("a")]
    assert writes == [CompleteItem("m1")]
    assert reader.events[-1] == RunEnded("r1", Outcome.DONE)
