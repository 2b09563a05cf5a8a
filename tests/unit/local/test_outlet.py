"""What is sent to a guest: in order, whole, and never more than there is room for."""

import socket
from collections.abc import Iterator

import anyio
import pytest

from hermes.ipc.client import ConversationState
from hermes.ipc.protocol import (
    MAX_FRAME,
    EventFrame,
    FrameBuffer,
    ServerFrame,
    TurnEnded,
    server_frame_decoder,
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

pytestmark = pytest.mark.anyio

LAST = TurnEnded(Outcome.DONE, ConversationState("s"))


class Pair:
    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.outlet = SendQueue(self.ours)
        self._frames = FrameBuffer(MAX_FRAME)
        self._reader = server_frame_decoder()

    async def next(self) -> ServerFrame:
        while (frame := self._frames.take()) is None:
            await anyio.wait_readable(self.theirs)
            self._frames.feed(self.theirs.recv(65536))
        return self._reader.read(frame)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.ours.close()
    pair.theirs.close()


def said(text: str) -> MessageAdded:
    return MessageAdded(Assistant("m", (Text(text),), Stop.END))


async def test_everything_comes_in_order(pair: Pair) -> None:
    events = [
        RunStarted("r", "s"),
        ReasoningDelta("hm"),
        TextDelta("a"),
        Notice("n"),
        TextDelta("b"),
        said("ab"),
        RunEnded("r", Outcome.DONE),
    ]
    async with anyio.create_task_group() as group:
        group.start_soon(pair.outlet.send)
        for event in events:
            await pair.outlet.tell(event)
        await pair.outlet.put(LAST)
        assert [await pair.next() for _ in events] == [EventFrame(event) for event in events]
        assert await pair.next() == LAST
        group.cancel_scope.cancel()


async def test_words_that_wait_become_one_piece(pair: Pair) -> None:
    for text in ("one ", "two ", "three"):
        await pair.outlet.tell(TextDelta(text))
    await pair.outlet.tell(ReasoningDelta("x"))
    await pair.outlet.part()
    assert await pair.next() == EventFrame(TextDelta("one two three"))
    assert await pair.next() == EventFrame(ReasoningDelta("x"))


async def test_a_slow_reader_makes_facts_wait_and_misses_only_deltas(pair: Pair) -> None:
    big = said("x" * (MAX_QUEUED_BYTES // 4))
    told = 0

    async def tell() -> None:
        nonlocal told
        for _ in range(20):
            await pair.outlet.tell(big)
            await pair.outlet.tell(Notice("may be missed"))
            told += 1
        await pair.outlet.put(LAST)

    async with anyio.create_task_group() as group:
        group.start_soon(pair.outlet.send)
        group.start_soon(tell)
        await anyio.wait_all_tasks_blocked()
        assert told < 8
        facts = 0
        while (answer := await pair.next()) != LAST:
            facts += answer == EventFrame(big)
        assert facts == 20
        group.cancel_scope.cancel()


async def test_words_without_end_are_bounded(pair: Pair) -> None:
    for _ in range(40):
        await pair.outlet.tell(TextDelta("x" * (MAX_QUEUED_BYTES // 10)))
    async with anyio.create_task_group() as group:
        group.start_soon(pair.outlet.send)
        answer = await pair.next()
        group.cancel_scope.cancel()
    assert isinstance(answer, EventFrame)
    assert isinstance(answer.event, TextDelta)
    assert MAX_QUEUED_BYTES <= len(answer.event.text) <= 2 * MAX_QUEUED_BYTES


async def test_when_the_reader_has_gone_nobody_waits(pair: Pair) -> None:
    big = said("x" * MAX_QUEUED_BYTES)
    async with anyio.create_task_group() as group:
        group.start_soon(pair.outlet.send)
        pair.theirs.close()
        for _ in range(10):
            await pair.outlet.tell(big)
        await pair.outlet.put(LAST)


async def test_when_nobody_sends_nobody_waits(pair: Pair) -> None:
    """A turn that is cancelled together with the sender still says its last word."""
    async with anyio.create_task_group() as group:
        group.start_soon(pair.outlet.send)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    for _ in range(5):
        await pair.outlet.put(EventFrame(said("x" * MAX_QUEUED_BYTES)))


@pytest.mark.slow
async def test_parting_does_not_wait_for_ever(pair: Pair) -> None:
    await pair.outlet.put(EventFrame(said("x" * MAX_QUEUED_BYTES)))
    await pair.outlet.part()
    await pair.outlet.put(LAST)
    await pair.outlet.part()
