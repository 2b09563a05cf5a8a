"""Words to a turn that is running: heard by it, given back, or kept for the next one."""

from pathlib import Path

import anyio
import pytest

from hermes.schema.events import Outcome, ToolStarted
from hermes.schema.messages import text_of
from hermes.testing.scripted import says
from talks import HANGS, Talk, talk
from workbench import Ear, FakeTool, answer, call

pytestmark = pytest.mark.anyio


async def texts(one: Talk) -> list[str]:
    return [text_of(row.message) for row in await one.rows()]


async def inbox(one: Talk) -> bool:
    return one.conversation.session.id in await one.store.lanes.topics("inbox")


class Steers(Ear):
    """Says something as soon as the first tool is used."""

    def __init__(self, one: Talk) -> None:
        super().__init__()
        self._one = one
        self.passed: list[bool] = []

    async def __call__(self, event: object) -> None:
        await super().__call__(event)
        if isinstance(event, ToolStarted):
            self.passed.append(await self._one.conversation.steer("msg_1", "the other one"))


async def test_the_next_step_hears_it(tmp_path: Path) -> None:
    async with talk(
        tmp_path, [answer(call("look"))], says("Yes."), tools=[FakeTool("look")]
    ) as one:
        ear = Steers(one)
        assert await one.say("look", ear) is Outcome.DONE
        assert ear.passed == [True]
        assert (await texts(one))[-2:] == ["the other one", "Yes."]
        assert "the other one" in text_of(one.model.requests[1].messages[-1])
        assert not await inbox(one)


async def test_without_a_turn_nobody_hears_it(tmp_path: Path) -> None:
    async with talk(tmp_path, says("Hi.")) as one:
        assert not await one.conversation.steer("msg_1", "hello?")
        await one.say("hello")
        assert not await one.conversation.steer("msg_2", "still there?")
        assert not await inbox(one)


@pytest.mark.parametrize("gone", [False, True])
async def test_what_was_not_heard_is_given_back_or_left_to_the_next_turn(
    tmp_path: Path, gone: bool
) -> None:
    """Left to it only where whoever said it is gone."""
    async with talk(tmp_path, HANGS, says("To all.")) as one:
        async with anyio.create_task_group() as group:
            group.start_soon(one.say, "first")
            await one.until_it_hangs()
            assert not await one.conversation.steer("msg_0", "  ")
            assert await one.conversation.steer("msg_1", "and this")
            assert await inbox(one)
            if gone:
                one.conversation.bequeath()
            one.conversation.interrupt()
        assert one.ear.ended.outcome is Outcome.CANCELLED
        assert await inbox(one) is gone
        await one.say("second", Ear())
        assert ("and this" in await texts(one)) is gone
        assert not await inbox(one)


async def test_it_is_on_disk_before_it_is_heard(tmp_path: Path) -> None:
    """So that whoever goes on after a crash finds it."""
    async with talk(tmp_path, HANGS) as one, anyio.create_task_group() as group:
        group.start_soon(one.say, "first")
        await one.until_it_hangs()
        await one.conversation.steer("msg_1", "and this")
        async with talk(tmp_path) as other:
            assert one.conversation.session.id in await other.store.lanes.topics("inbox")
        one.conversation.interrupt()
