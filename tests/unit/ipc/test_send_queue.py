"""The send queue: frames in order, complete, and within the size limit."""

import socket
from collections.abc import Iterator

import anyio
import pytest

from hermes.ipc.protocol import (
    MAX_FRAME,
    EventFrame,
    FrameBuffer,
    FrameDecoder,
    ServerFrame,
    TurnEnded,
)
from hermes.ipc.send_queue import MAX_QUEUED_BYTES, SendQueue
from hermes.schema.events import (
    MessageAdded,
    Notice,
    Outcome,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
)
from hermes.schema.messages import Assistant, Stop, Text
from hermes.schema.terminal import ConversationState

LAST = TurnEnded(Outcome.DONE, ConversationState("s"))


class Pair:
    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.queue = SendQueue(self.ours)
        self._frames = FrameBuffer(MAX_FRAME)
        self._reader = FrameDecoder[ServerFrame](ServerFrame)

    async def next(self) -> ServerFrame:
        while (frame := self._frames.take()) is None:
            await anyio.wait_readable(self.theirs)
            self._frames.feed(self.theirs.recv(65536))
        return self._reader.decode(frame)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.ours.close()
    pair.theirs.close()


def message_added(text: str) -> MessageAdded:
    return MessageAdded(Assistant("m", (Text(text),), Stop.END))


async def test_frames_arrive_in_order(pair: Pair) -> None:
    events = [
        RunStarted("r", "s"),
        ReasoningDelta("hm"),
        TextDelta("a"),
        Notice("n"),
        TextDelta("b"),
        message_added("ab"),
        RunEnded("r", Outcome.DONE),
    ]
    async with anyio.create_task_group() as group:
        group.start_soon(pair.queue.send)
        for event in events:
            await pair.queue.put_event(event)
        await pair.queue.put(LAST)
        assert [await pair.next() for _ in events] == [EventFrame(event) for event in events]
        assert await pair.next() == LAST
        group.cancel_scope.cancel()


async def test_waiting_deltas_are_merged(pair: Pair) -> None:
    for text in ("one ", "two ", "three"):
        await pair.queue.put_event(TextDelta(text))
    await pair.queue.put_event(ReasoningDelta("x"))
    await pair.queue.finish()
    assert await pair.next() == EventFrame(TextDelta("one two three"))
    assert await pair.next() == EventFrame(ReasoningDelta("x"))


async def test_slow_reader_delays_facts_and_loses_only_deltas(pair: Pair) -> None:
    big = message_added("x" * (MAX_QUEUED_BYTES // 4))
    sent = 0

    async def send_events() -> None:
        nonlocal sent
        for _ in range(20):
            await pair.queue.put_event(big)
            await pair.queue.put_event(Notice("may be missed"))
            sent += 1
        await pair.queue.put(LAST)

    async with anyio.create_task_group() as group:
        group.start_soon(pair.queue.send)
        group.start_soon(send_events)
        await anyio.wait_all_tasks_blocked()
        assert sent < 8
        facts = 0
        while (answer := await pair.next()) != LAST:
            facts += answer == EventFrame(big)
        assert facts == 20
        group.cancel_scope.cancel()


async def test_queued_deltas_are_bounded(pair: Pair) -> None:
    for _ in range(40):
        await pair.queue.put_event(TextDelta("x" * (MAX_QUEUED_BYTES // 10)))
    async with anyio.create_task_group() as group:
        group.start_soon(pair.queue.send)
        answer = await pair.next()
        group.cancel_scope.cancel()
    assert isinstance(answer, EventFrame)
    assert isinstance(answer.event, TextDelta)
    assert MAX_QUEUED_BYTES <= len(answer.event.text) <= 2 * MAX_QUEUED_BYTES


async def test_put_does_not_block_after_the_reader_has_gone(pair: Pair) -> None:
    big = message_added("x" * MAX_QUEUED_BYTES)
    async with anyio.create_task_group() as group:
        group.start_soon(pair.queue.send)
        pair.theirs.close()
        for _ in range(10):
            await pair.queue.put_event(big)
        await pair.queue.put(LAST)


async def test_put_does_not_block_without_a_sender(pair: Pair) -> None:
    """A turn cancelled together with the sender still queues its last frame."""
    async with anyio.create_task_group() as group:
        group.start_soon(pair.queue.send)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    for _ in range(5):
        await pair.queue.put(EventFrame(message_added("x" * MAX_QUEUED_BYTES)))


@pytest.mark.slow
async def test_close_after_sending_has_a_timeout(pair: Pair) -> None:
    await pair.queue.put(EventFrame(message_added("x" * MAX_QUEUED_BYTES)))
    await pair.queue.finish()
    await pair.queue.put(LAST)
    await pair.queue.finish()
