"""Messages to a running turn: taken, returned, or kept for the next one."""

from pathlib import Path

import anyio
import pytest

from hermes.schema.events import Outcome, ToolStarted
from hermes.schema.messages import text_of
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT, ConversationHarness, conversation_harness
from support.turns import EventRecorder, FakeTool, assistant_message, tool_call

pytestmark = pytest.mark.anyio


async def texts(one: ConversationHarness) -> list[str]:
    return [text_of(row.message) for row in await one.rows()]


async def inbox(one: ConversationHarness) -> bool:
    return one.conversation.session.id in await one.store.queues.topics("inbox")


class Steers(EventRecorder):
    """Says something as soon as the first tool is used."""

    def __init__(self, one: ConversationHarness) -> None:
        super().__init__()
        self._one = one
        self.passed: list[bool] = []

    async def __call__(self, event: object) -> None:
        await super().__call__(event)
        if isinstance(event, ToolStarted):
            self.passed.append(await self._one.conversation.steer("msg_1", "the other one"))


async def test_next_step_takes_the_message(tmp_path: Path) -> None:
    async with conversation_harness(
        tmp_path,
        [assistant_message(tool_call("look"))],
        answer_script("Yes."),
        tools=[FakeTool("look")],
    ) as one:
        ear = Steers(one)
        assert await one.say("look", ear) is Outcome.DONE
        assert ear.passed == [True]
        assert (await texts(one))[-2:] == ["the other one", "Yes."]
        assert "the other one" in text_of(one.model.requests[1].messages[-1])
        assert not await inbox(one)


async def test_without_a_turn_the_message_is_refused(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("Hi.")) as one:
        assert not await one.conversation.steer("msg_1", "hello?")
        await one.say("hello")
        assert not await one.conversation.steer("msg_2", "still there?")
        assert not await inbox(one)


@pytest.mark.parametrize("gone", [False, True])
async def test_untaken_message_is_returned_or_kept_for_the_next_turn(
    tmp_path: Path, gone: bool
) -> None:
    """Left to it only where whoever said it is gone."""
    async with conversation_harness(tmp_path, HANGING_SCRIPT, answer_script("To all.")) as one:
        async with anyio.create_task_group() as group:
            group.start_soon(one.say, "first")
            await one.wait_until_hanging()
            assert not await one.conversation.steer("msg_0", "  ")
            assert await one.conversation.steer("msg_1", "and this")
            assert await inbox(one)
            if gone:
                one.conversation.keep_for_next_turn()
            one.conversation.interrupt()
        assert one.ear.ended.outcome is Outcome.CANCELLED
        assert await inbox(one) is gone
        await one.say("second", EventRecorder())
        assert ("and this" in await texts(one)) is gone
        assert not await inbox(one)


async def test_message_is_stored_before_it_is_taken(tmp_path: Path) -> None:
    """So that whoever goes on after a crash finds it."""
    async with (
        conversation_harness(tmp_path, HANGING_SCRIPT) as one,
        anyio.create_task_group() as group,
    ):
        group.start_soon(one.say, "first")
        await one.wait_until_hanging()
        await one.conversation.steer("msg_1", "and this")
        async with conversation_harness(tmp_path) as other:
            assert one.conversation.session.id in await other.store.queues.topics("inbox")
        one.conversation.interrupt()
