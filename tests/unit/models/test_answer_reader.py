"""Reading one of many concurrent answers: reads are coalesced, and no data is lost."""

import asyncio
import time
from collections.abc import Callable, Iterable

import anyio
import pytest
from msgspec import Struct, field

from hermes.models.endpoint import EndpointSettings, StreamCoalescer
from hermes.models.http_client import Disconnected, HttpResponse
from hermes.models.wire.codec import StreamDelta
from hermes.models.wire_model import AnswerReader
from hermes.schema.events import TextDelta
from hermes.schema.messages import Assistant, Stop

TIMEOUT = 60.0


class ManualCoalescer(StreamCoalescer):
    """Simulates many answers; the test ends their pauses."""

    answers: int = 1000
    rests: list[asyncio.Future[None]] = field(default_factory=list)
    _rested: anyio.Event = field(default_factory=anyio.Event)

    def wait_for_pause(self) -> "asyncio.Future[None]":
        self.rests.append(asyncio.get_running_loop().create_future())
        self._rested.set()
        return self.rests[-1]

    async def resting(self) -> None:
        with anyio.fail_after(TIMEOUT):
            await self._rested.wait()


class PlainStream(Struct):
    """Every event is a text."""

    finish_reason: str = ""
    ended: bool = False
    size: int = 0
    runaway: str = ""

    def feed(self, batch: Iterable[bytes]) -> list[StreamDelta]:
        deltas: list[StreamDelta] = [TextDelta(data.decode()) for data in batch]
        self.size += len(deltas)
        return deltas

    def finish(self, model: str, provider: str) -> tuple[list[StreamDelta], Assistant]:
        return [], Assistant("msg", (), Stop.END, model=model, provider=provider)


class FakeAnswer:
    """An answer whose data is provided by the test."""

    def __init__(self, coalescer: StreamCoalescer, idle: float = TIMEOUT) -> None:
        self.content = HttpResponse()
        self.content.headers["content-type"] = "text/event-stream"
        self.content.start(200)
        place = EndpointSettings(base_url="http://127.0.0.1", idle=idle)
        self.stream = PlainStream()
        self.reader = AnswerReader(self.content, self.stream, place, coalescer)

    def comes(self, *texts: str) -> None:
        for word in texts:
            self.content.feed(f"data: {word}\n\n".encode())
        self.content.wake()

    async def next(self) -> list[str]:
        with anyio.fail_after(TIMEOUT):
            deltas = await self.reader.next()
        return [delta.text for delta in deltas if isinstance(delta, TextDelta)]


async def coalesced_next(
    answer: FakeAnswer, coalescer: ManualCoalescer, meanwhile: Callable[[], object]
) -> list[str]:
    """Return the next events, with `meanwhile` called during the pause."""
    received: list[list[str]] = []
    async with anyio.create_task_group() as group:

        async def listen() -> None:
            received.append(await answer.next())

        group.start_soon(listen)
        await coalescer.resting()
        assert received == []
        meanwhile()
        if not coalescer.rests[0].done():
            coalescer.rests[0].set_result(None)
    return received[0]


async def test_pause_depends_on_the_number_of_answers() -> None:
    coalescer = StreamCoalescer()
    coalescer.answers = 10
    assert coalescer.pause == 0.0
    assert 0.0 < ManualCoalescer().pause <= 0.05


async def test_nearby_pauses_share_a_timer_and_do_not_end_early() -> None:
    coalescer, loop = StreamCoalescer(), asyncio.get_running_loop()
    coalescer.answers = 1000
    begun = loop.time()
    left, *stayed = [coalescer.wait_for_pause() for _ in range(100)]
    left.cancel()
    with anyio.fail_after(TIMEOUT):
        await asyncio.gather(*stayed)
    # The loop treats timers within its clock resolution as due.
    assert loop.time() >= begun + coalescer.pause - time.get_clock_info("monotonic").resolution


async def test_later_events_are_coalesced() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    assert await answer.next() == ["one"]
    answer.comes("two")
    together = await coalesced_next(answer, coalescer, lambda: answer.comes("three", "four"))
    assert together == ["two", "three", "four"]


async def test_end_of_the_answer_ends_the_pause() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    await answer.next()

    def ends() -> None:
        answer.comes("two", "[DONE]")
        answer.content.finish()
        assert coalescer.rests[0].done()

    assert await coalesced_next(answer, coalescer, ends) == ["two"]
    assert answer.reader.received_done


async def test_data_before_a_broken_connection_is_returned() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    await answer.next()
    answer.comes("two")
    cut = Disconnected(reused=False)
    received = await coalesced_next(answer, coalescer, lambda: answer.content.fail(cut))
    assert received == ["two"]
    with pytest.raises(Disconnected):
        await answer.next()


async def test_empty_pause_is_followed_by_a_normal_read() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    await answer.next()
    received: list[list[str]] = []

    async def listen() -> None:
        received.append(await answer.next())

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await coalescer.resting()
        coalescer.rests[0].set_result(None)
        await asyncio.sleep(0)
        assert received == []
        answer.comes("two")
    assert received == [["two"]]
    assert len(coalescer.rests) == 1


async def test_empty_pause_is_not_the_end() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer, idle=0.01)
    answer.comes("one")
    await answer.next()
    with pytest.raises(ExceptionGroup) as caught:
        await coalesced_next(answer, coalescer, lambda: None)
    assert caught.group_contains(TimeoutError)
    assert not answer.reader.done


async def test_data_after_a_complete_answer_is_read_without_a_pause() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    await answer.next()
    answer.comes("[DONE]")
    answer.stream.finish_reason = "stop"
    assert await answer.next() == []
    assert answer.reader.received_done
    assert coalescer.rests == []


async def test_end_needs_no_pause() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    await answer.next()
    answer.comes("two", "[DONE]")
    answer.content.finish()
    assert await answer.next() == ["two"]
    assert answer.reader.received_done
    assert coalescer.rests == []


async def test_close_uncounts_the_answer_once() -> None:
    coalescer = StreamCoalescer()
    first, second = FakeAnswer(coalescer), FakeAnswer(coalescer)
    assert coalescer.answers == 2
    first.reader.close()
    first.reader.close()
    assert coalescer.answers == 1
    second.reader.close()
    assert coalescer.answers == 0
