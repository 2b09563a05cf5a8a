"""A turn runs in a task of its own while its surface reads the events."""

from collections.abc import Callable, Sequence
from functools import partial

import anyio
import pytest

from hermes.bus.memory import MemoryBus
from hermes.ports.bus import RUN_TOPIC
from hermes.ports.store import CompleteItem, Write
from hermes.schema.events import Event, Notice, Outcome, RunEnded, RunStarted, TextDelta
from hermes.schema.messages import Message
from hermes.session.followed_run import RunReading

STARTED = RunStarted("r1", "s1")
CANCELLED = RunEnded("r1", Outcome.CANCELLED)
DONE = RunEnded("r1", Outcome.DONE)
MANY = 5_000


class Reader:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.flushed = 0
        self.before_end: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    async def flush(self) -> None:
        self.flushed = len(self.events)

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        self.before_end = self.events.copy()
        return [CompleteItem("m1")]


def _followed(reader: Reader) -> tuple[RunReading, Callable[[Event], None]]:
    """A run that is read, and what publishes its events."""
    bus = MemoryBus()
    return RunReading(reader, bus, "r1"), partial(bus.publish, RUN_TOPIC.format("r1"))


class Work:
    """Publishes its start, waits until it is let go or cancelled, and publishes its end."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self.publish = publish
        self.started = anyio.Event()
        self.may_end = anyio.Event()

    async def __call__(self) -> None:
        self.publish(STARTED)
        self.started.set()
        ended = CANCELLED
        try:
            await self.may_end.wait()
            ended = DONE
        finally:
            self.publish(ended)


async def test_events_are_read_until_the_run_is_over() -> None:
    reading, publish = _followed(reader := Reader())
    work = Work(publish)
    work.may_end.set()
    assert not reading.started
    await reading.follow(work)
    assert reader.events == [STARTED, DONE]
    assert reader.flushed == 2
    assert reading.started
    assert reading.ended == DONE


async def test_events_are_read_while_the_run_goes_on() -> None:
    reading, publish = _followed(reader := Reader())
    work = Work(publish)
    async with anyio.create_task_group() as group:
        group.start_soon(reading.follow, work)
        await anyio.wait_all_tasks_blocked()
        assert reader.flushed == 1
        work.publish(TextDelta("a"))
        await anyio.wait_all_tasks_blocked()
        assert reader.events == [STARTED, TextDelta("a")]
        assert reader.flushed == 2
        work.may_end.set()
    assert reader.events[-1] == DONE


async def test_run_without_events_is_over() -> None:
    async def do_nothing() -> None: ...

    reading, _ = _followed(reader := Reader())
    await reading.follow(do_nothing)
    assert not reading.started
    assert reader.events == []


async def test_stop_ends_the_run_and_its_last_events_are_read() -> None:
    reading, publish = _followed(reader := Reader())
    stop = anyio.CancelScope()
    work = Work(publish)
    async with anyio.create_task_group() as group:
        group.start_soon(reading.follow, work, stop)
        await work.started.wait()
        stop.cancel()
    assert reader.events == [STARTED, CANCELLED]
    assert reader.flushed == 2


async def test_cancelled_reader_ends_the_run_and_gets_missed_events() -> None:
    reading, publish = _followed(reader := Reader())
    work = Work(publish)
    async with anyio.create_task_group() as group:
        group.start_soon(reading.follow, work)
        await work.started.wait()
        group.cancel_scope.cancel()
    assert reader.events == [STARTED, CANCELLED]
    assert reading.ended == CANCELLED


async def test_error_of_the_run_is_raised_after_its_events() -> None:
    async def fail() -> None:
        publish(STARTED)
        raise OSError("broken")

    reading, publish = _followed(reader := Reader())
    with pytest.raises(OSError, match="broken"):
        await reading.follow(fail)
    assert reader.events == [STARTED]
    assert reader.flushed == 1


async def test_error_of_the_reader_ends_the_run() -> None:
    class Broken(Reader):
        async def flush(self) -> None:
            raise BrokenPipeError

    reading, publish = _followed(reader := Broken())
    with pytest.raises(BrokenPipeError):
        await reading.follow(Work(publish))
    assert reader.events == [STARTED, CANCELLED]


async def test_final_writes_are_asked_for_after_all_earlier_events() -> None:
    writes: list[Write] = []

    async def work_without_a_pause() -> None:
        publish(STARTED)
        publish(TextDelta("a"))
        writes.extend(reading.final_writes(DONE, []))
        publish(DONE)

    reading, publish = _followed(reader := Reader())
    await reading.follow(work_without_a_pause)
    assert reader.before_end == [STARTED, TextDelta("a")]
    assert writes == [CompleteItem("m1")]
    assert reader.events[-1] == DONE


async def test_slow_reader_gets_joined_text_and_every_fact() -> None:
    async def write_much() -> None:
        for number in range(MANY):
            publish(TextDelta(f"{number} "))
        publish(Notice("slow"))
        publish(DONE)

    reading, publish = _followed(reader := Reader())
    await reading.follow(write_much)
    assert len(reader.events) < MANY
    text = "".join(event.text for event in reader.events if isinstance(event, TextDelta))
    assert text == "".join(f"{number} " for number in range(MANY))
    assert reader.events[-2:] == [Notice("slow"), DONE]
