"""Messages to a running turn: taken, returned, or kept for the next one."""

import anyio
import pytest

from hermes.schema.events import Outcome
from hermes.schema.messages import text_of
from hermes.store.memory import MemoryDatabase
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT, ConversationHarness, conversation_harness
from support.turns import EventRecorder, FakeTool, GatedBody, assistant_message, tool_call


async def texts(harness: ConversationHarness) -> list[str]:
    return [text_of(row.message) for row in await harness.rows()]


async def inbox(harness: ConversationHarness) -> bool:
    return harness.conversation.session.id in await harness.store.queues.topics("inbox")


async def test_next_step_takes_the_message() -> None:
    gates = GatedBody()
    async with conversation_harness(
        [assistant_message(tool_call("look", gate="a"))],
        answer_script("Yes."),
        tools=[FakeTool("look", gates)],
    ) as harness:
        async with anyio.create_task_group() as group:
            group.start_soon(harness.submit, "look")
            await gates.reached("a")
            assert await harness.conversation.steer("msg_1", "the other one")
            gates.open("a")
        assert harness.ear.ended.outcome is Outcome.DONE
        assert (await texts(harness))[-2:] == ["the other one", "Yes."]
        assert "the other one" in text_of(harness.model.requests[1].messages[-1])
        assert not await inbox(harness)


async def test_without_a_turn_the_message_is_refused() -> None:
    async with conversation_harness(answer_script("Hi.")) as harness:
        assert not await harness.conversation.steer("msg_1", "hello?")
        await harness.submit("hello")
        assert not await harness.conversation.steer("msg_2", "still there?")
        assert not await inbox(harness)


@pytest.mark.parametrize("gone", [False, True])
async def test_untaken_message_is_returned_or_kept_for_the_next_turn(gone: bool) -> None:
    """Kept only if its sender is gone."""
    async with conversation_harness(HANGING_SCRIPT, answer_script("To all.")) as harness:
        async with anyio.create_task_group() as group:
            group.start_soon(harness.submit, "first")
            await harness.wait_until_hanging()
            assert not await harness.conversation.steer("msg_0", "  ")
            assert await harness.conversation.steer("msg_1", "and this")
            assert await inbox(harness)
            if gone:
                harness.conversation.keep_for_next_turn()
            harness.conversation.interrupt()
        assert harness.ear.ended.outcome is Outcome.CANCELLED
        assert await inbox(harness) is gone
        await harness.submit("second", EventRecorder())
        assert ("and this" in await texts(harness)) is gone
        assert not await inbox(harness)


async def test_message_is_stored_before_it_is_taken(database: MemoryDatabase) -> None:
    """So that it is found after a crash."""
    async with (
        conversation_harness(HANGING_SCRIPT, database=database) as harness,
        anyio.create_task_group() as group,
    ):
        group.start_soon(harness.submit, "first")
        await harness.wait_until_hanging()
        await harness.conversation.steer("msg_1", "and this")
        async with conversation_harness(database=database) as other:
            assert harness.conversation.session.id in await other.store.queues.topics("inbox")
        harness.conversation.interrupt()
