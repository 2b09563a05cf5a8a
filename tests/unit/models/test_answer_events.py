"""Reading one of many concurrent answers: reads are coalesced, and no data is lost."""

import asyncio
import time
from collections.abc import Callable

import anyio
import pytest
from msgspec import field

from hermes.models.endpoint import EndpointSettings, StreamCoalescer
from hermes.models.http_client import Disconnected, HttpResponse
from hermes.models.wire_model import AnswerEvents

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


class FakeAnswer:
    """An answer whose data is provided by the test."""

    def __init__(self, coalescer: StreamCoalescer, idle: float = TIMEOUT) -> None:
        self.content = HttpResponse()
        self.content.headers["content-type"] = "text/event-stream"
        self.content.start(200)
        place = EndpointSettings(base_url="http://127.0.0.1", idle=idle)
        self.events = AnswerEvents(self.content, place, coalescer)

    def comes(self, *texts: str) -> None:
        for word in texts:
            self.content.feed(f"data: {word}\n\n".encode())
        self.content.wake()

    async def next(self) -> list[bytes]:
        with anyio.fail_after(TIMEOUT):
            batch = await self.events.next(finishing=False)
        self.events.record_progress(moved=True, ended=False)
        return batch


async def coalesced_next(
    answer: FakeAnswer, coalescer: ManualCoalescer, meanwhile: Callable[[], object]
) -> list[bytes]:
    """Return the next events, with `meanwhile` called during the pause."""
    received: list[list[bytes]] = []
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
    assert await answer.next() == [b"one"]
    answer.comes("two")
    together = await coalesced_next(answer, coalescer, lambda: answer.comes("three", "four"))
    assert together == [b"two", b"three", b"four"]


async def test_end_of_the_answer_ends_the_pause() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    await answer.next()

    def ends() -> None:
        answer.comes("two", "[DONE]")
        answer.content.finish()
        assert coalescer.rests[0].done()

    assert await coalesced_next(answer, coalescer, ends) == [b"two"]
    assert answer.events.received_done


async def test_data_before_a_broken_connection_is_returned() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    await answer.next()
    answer.comes("two")
    cut = Disconnected(reused=False)
    told = await coalesced_next(answer, coalescer, lambda: answer.content.fail(cut))
    assert told == [b"two"]
    with pytest.raises(Disconnected):
        await answer.next()


async def test_empty_pause_is_followed_by_a_normal_read() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    await answer.next()
    received: list[list[bytes]] = []

    async def listen() -> None:
        received.append(await answer.next())

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await coalescer.resting()
        coalescer.rests[0].set_result(None)
        await asyncio.sleep(0)
        assert received == []
        answer.comes("two")
    assert received == [[b"two"]]
    assert len(coalescer.rests) == 1


async def test_empty_pause_is_not_the_end() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer, idle=0.01)
    answer.comes("one")
    await answer.next()
    with pytest.raises(ExceptionGroup) as caught:
        await coalesced_next(answer, coalescer, lambda: None)
    assert caught.group_contains(TimeoutError)
    assert not answer.events.done


async def test_data_after_a_complete_answer_is_read_without_a_pause() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    await answer.next()
    answer.comes("[DONE]")
    with anyio.fail_after(TIMEOUT):
        assert await answer.events.next(finishing=True) == []
    assert answer.events.received_done
    assert coalescer.rests == []


async def test_end_needs_no_pause() -> None:
    coalescer = ManualCoalescer()
    answer = FakeAnswer(coalescer)
    answer.comes("one")
    await answer.next()
    answer.comes("two", "[DONE]")
    answer.content.finish()
    assert await answer.next() == [b"two"]
    assert answer.events.received_done
    assert coalescer.rests == []


async def test_close_uncounts_the_answer_once() -> None:
    coalescer = StreamCoalescer()
    first, second = FakeAnswer(coalescer), FakeAnswer(coalescer)
    assert coalescer.answers == 2
    first.events.close()
    first.events.close()
    assert coalescer.answers == 1
    second.events.close()
    assert coalescer.answers == 0
