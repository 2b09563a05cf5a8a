"""Reading one answer among many: words wait for each other, and none is lost."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from aiohttp import ClientPayloadError, StreamReader
from aiohttp.base_protocol import BaseProtocol

from hermes.models.answer_events import AnswerEvents
from hermes.models.endpoint import Crowd, Place
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

PATIENCE = 60.0


class Answer:
    """An answer of which the test decides what has come, and when a pause is over."""

    def __init__(self, crowd: Crowd, idle: float = PATIENCE) -> None:
        loop = asyncio.get_running_loop()
        protocol = BaseProtocol(loop)
        protocol.transport = asyncio.Transport()
        self.content = StreamReader(protocol, 2**16, loop=loop)
        response: Any = SimpleNamespace(
            content=self.content, content_type="text/event-stream", connection=None
        )
        self.crowd = crowd
        self.clock = FakeClock()
        place = Place(base_url="http://127.0.0.1", idle=idle)
        self.events = AnswerEvents(response, place, crowd, self.clock)

    def comes(self, *words: str) -> None:
        for word in words:
            self.content.feed_data(f"data: {word}\n\n".encode())

    async def next(self) -> list[bytes]:
        with anyio.fail_after(PATIENCE):
            batch = await self.events.next(hurry=False)
        self.events.note(moved=True, ended=False)
        return batch

    async def gathered(self, meanwhile: Callable[[], object]) -> list[bytes]:
        """With what happens in the pause."""
        heard: list[list[bytes]] = []
        async with anyio.create_task_group() as group:

            async def listen() -> None:
                heard.append(await self.next())

            group.start_soon(listen)
            await self.clock.advance(0)
            assert (heard, self.clock.slept) == ([], [self.crowd.pause])
            meanwhile()
            await self.clock.advance(self.crowd.pause)
        return heard[0]


def crowded() -> Crowd:
    crowd = Crowd()
    crowd.answers = 1000
    return crowd


async def test_a_few_answers_wait_for_nothing_and_many_not_for_long() -> None:
    crowd = Crowd()
    crowd.answers = 10
    assert crowd.pause == 0.0
    assert 0.0 < crowded().pause <= 0.05


async def test_in_a_crowd_words_after_the_first_come_together() -> None:
    answer = Answer(crowded())
    answer.comes("one")
    assert await answer.next() == [b"one"]
    answer.comes("two")
    together = await answer.gathered(lambda: answer.comes("three", "four"))
    assert together == [b"two", b"three", b"four"]


async def test_what_came_before_a_broken_line_is_told() -> None:
    answer = Answer(crowded())
    answer.comes("one")
    await answer.next()
    answer.comes("two")
    cut = ClientPayloadError("cut")
    assert await answer.gathered(lambda: answer.content.set_exception(cut)) == [b"two"]
    with pytest.raises(ClientPayloadError):
        await answer.next()


async def test_who_has_paused_in_vain_waits_for_the_next_word_alone() -> None:
    answer = Answer(crowded())
    answer.comes("one")
    await answer.next()
    heard: list[list[bytes]] = []

    async def listen() -> None:
        heard.append(await answer.next())

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await answer.clock.advance(0)
        await answer.clock.advance(answer.crowd.pause)
        assert heard == []
        answer.comes("two")
    assert heard == [[b"two"]]
    assert answer.clock.slept == [answer.crowd.pause]


async def test_silence_in_a_crowd_is_no_end() -> None:
    answer = Answer(crowded(), idle=0.01)
    answer.comes("one")
    await answer.next()
    with pytest.raises(ExceptionGroup) as caught:
        await answer.gathered(lambda: None)
    assert caught.group_contains(TimeoutError)
    assert not answer.events.done


async def test_what_follows_a_whole_answer_is_read_at_once() -> None:
    answer = Answer(crowded())
    answer.comes("one")
    await answer.next()
    answer.comes("[DONE]")
    with anyio.fail_after(PATIENCE):
        assert await answer.events.next(hurry=True) == []
    assert answer.events.said_done
    assert answer.clock.slept == []


async def test_the_end_is_not_waited_for() -> None:
    answer = Answer(crowded())
    answer.comes("one")
    await answer.next()
    answer.comes("two", "[DONE]")
    answer.content.feed_eof()
    assert await answer.next() == [b"two"]
    assert answer.events.said_done
    assert answer.clock.slept == []


async def test_who_leaves_makes_the_crowd_smaller_once() -> None:
    crowd = Crowd()
    first, second = Answer(crowd), Answer(crowd)
    assert crowd.answers == 2
    first.events.close()
    first.events.close()
    assert crowd.answers == 1
    second.events.close()
    assert crowd.answers == 0
