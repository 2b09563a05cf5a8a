"""Reading one answer among many: words wait for each other, and none is lost."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from aiohttp import ClientPayloadError, StreamReader
from aiohttp.base_protocol import BaseProtocol

from hermes.models.answer_events import AnswerEvents
from hermes.models.endpoint import EndpointSettings, StreamCoalescer

pytestmark = pytest.mark.anyio

PATIENCE = 60.0


class Crowded(StreamCoalescer):
    """Many at once, whose pauses are over when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 1000
        self.rests: list[asyncio.Future[None]] = []
        self._rested = anyio.Event()

    def rest(self) -> "asyncio.Future[None]":
        self.rests.append(asyncio.get_running_loop().create_future())
        self._rested.set()
        return self.rests[-1]

    async def resting(self) -> None:
        with anyio.fail_after(PATIENCE):
            await self._rested.wait()


class Answer:
    """An answer of which the test decides what has come."""

    def __init__(self, crowd: StreamCoalescer, idle: float = PATIENCE) -> None:
        loop = asyncio.get_running_loop()
        protocol = BaseProtocol(loop)
        protocol.transport = asyncio.Transport()
        self.content = StreamReader(protocol, 2**16, loop=loop)
        response: Any = SimpleNamespace(
            content=self.content, content_type="text/event-stream", connection=None
        )
        place = EndpointSettings(base_url="http://127.0.0.1", idle=idle)
        self.events = AnswerEvents(response, place, crowd)

    def comes(self, *words: str) -> None:
        for word in words:
            self.content.feed_data(f"data: {word}\n\n".encode())

    async def next(self) -> list[bytes]:
        with anyio.fail_after(PATIENCE):
            batch = await self.events.next(hurry=False)
        self.events.note(moved=True, ended=False)
        return batch


async def gathered(answer: Answer, crowd: Crowded, meanwhile: Callable[[], object]) -> list[bytes]:
    """With what happens in the pause; it is over if that did not end it."""
    heard: list[list[bytes]] = []
    async with anyio.create_task_group() as group:

        async def listen() -> None:
            heard.append(await answer.next())

        group.start_soon(listen)
        await crowd.resting()
        assert heard == []
        meanwhile()
        if not crowd.rests[0].done():
            crowd.rests[0].set_result(None)
    return heard[0]


async def test_a_few_answers_wait_for_nothing_and_many_not_for_long() -> None:
    crowd = StreamCoalescer()
    crowd.answers = 10
    assert crowd.pause == 0.0
    assert 0.0 < Crowded().pause <= 0.05


async def test_pauses_that_end_about_then_end_together_and_not_before_their_time() -> None:
    crowd, loop = StreamCoalescer(), asyncio.get_running_loop()
    crowd.answers = 1000
    begun = loop.time()
    left, *stayed = [crowd.rest() for _ in range(100)]
    left.cancel()
    with anyio.fail_after(PATIENCE):
        await asyncio.gather(*stayed)
    # The loop takes what is due within the resolution of its clock for due.
    assert loop.time() >= begun + crowd.pause - time.get_clock_info("monotonic").resolution


async def test_in_a_crowd_words_after_the_first_come_together() -> None:
    crowd = Crowded()
    answer = Answer(crowd)
    answer.comes("one")
    assert await answer.next() == [b"one"]
    answer.comes("two")
    together = await gathered(answer, crowd, lambda: answer.comes("three", "four"))
    assert together == [b"two", b"three", b"four"]


async def test_who_has_all_in_a_pause_waits_no_longer() -> None:
    crowd = Crowded()
    answer = Answer(crowd)
    answer.comes("one")
    await answer.next()

    def ends() -> None:
        answer.comes("two", "[DONE]")
        answer.content.feed_eof()
        assert crowd.rests[0].done()

    assert await gathered(answer, crowd, ends) == [b"two"]
    assert answer.events.received_done


async def test_what_came_before_a_broken_line_is_told() -> None:
    crowd = Crowded()
    answer = Answer(crowd)
    answer.comes("one")
    await answer.next()
    answer.comes("two")
    cut = ClientPayloadError("cut")
    told = await gathered(answer, crowd, lambda: answer.content.set_exception(cut))
    assert told == [b"two"]
    with pytest.raises(ClientPayloadError):
        await answer.next()


async def test_who_has_paused_in_vain_waits_for_the_next_word_alone() -> None:
    crowd = Crowded()
    answer = Answer(crowd)
    answer.comes("one")
    await answer.next()
    heard: list[list[bytes]] = []

    async def listen() -> None:
        heard.append(await answer.next())

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await crowd.resting()
        crowd.rests[0].set_result(None)
        await asyncio.sleep(0)
        assert heard == []
        answer.comes("two")
    assert heard == [[b"two"]]
    assert len(crowd.rests) == 1


async def test_silence_in_a_crowd_is_no_end() -> None:
    crowd = Crowded()
    answer = Answer(crowd, idle=0.01)
    answer.comes("one")
    await answer.next()
    with pytest.raises(ExceptionGroup) as caught:
        await gathered(answer, crowd, lambda: None)
    assert caught.group_contains(TimeoutError)
    assert not answer.events.done


async def test_what_follows_a_whole_answer_is_read_at_once() -> None:
    crowd = Crowded()
    answer = Answer(crowd)
    answer.comes("one")
    await answer.next()
    answer.comes("[DONE]")
    with anyio.fail_after(PATIENCE):
        assert await answer.events.next(hurry=True) == []
    assert answer.events.received_done
    assert crowd.rests == []


async def test_the_end_is_not_waited_for() -> None:
    crowd = Crowded()
    answer = Answer(crowd)
    answer.comes("one")
    await answer.next()
    answer.comes("two", "[DONE]")
    answer.content.feed_eof()
    assert await answer.next() == [b"two"]
    assert answer.events.received_done
    assert crowd.rests == []


async def test_who_leaves_makes_the_crowd_smaller_once() -> None:
    crowd = StreamCoalescer()
    first, second = Answer(crowd), Answer(crowd)
    assert crowd.answers == 2
    first.events.close()
    first.events.close()
    assert crowd.answers == 1
    second.events.close()
    assert crowd.answers == 0
