"""The text of an answer is stored while it is written, and survives the process."""

import anyio
import pytest

from hermes.ports.run_records import PartialText, PutPartialText
from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.events import StreamReset, TextDelta
from hermes.schema.messages import Assistant, Stop, text_of
from hermes.schema.sessions import Session
from hermes.session.recorder import INTERVAL
from hermes.testing.clock import FakeClock, wait_until_idle
from hermes.testing.scripted_model import Pause, Script, answer_script
from support.conversation import ConversationHarness, conversation_harness
from support.turns import user_message

CLOCK = FakeClock()
SHOWN = "twenty words were shown"


async def stored_texts(harness: ConversationHarness) -> list[str]:
    """The text that would be recovered if the process were killed now."""
    session = harness.conversation.session.id
    return [one.text for one in await harness.store.runs.partial_texts(session)]


@pytest.mark.parametrize(
    "script",
    [
        [TextDelta("twenty words "), TextDelta("were shown"), Pause.FOREVER],
        [TextDelta("forgotten"), StreamReset("again"), TextDelta(SHOWN), Pause.FOREVER],
    ],
)
async def test_answer_that_takes_long_is_stored_and_closed_with_its_end(
    script: Script,
) -> None:
    clock = FakeClock()
    async with conversation_harness(script, clock=clock) as harness:
        async with anyio.create_task_group() as group:
            group.start_soon(harness.submit, "hello")
            await harness.ear.until(
                lambda event: isinstance(event, TextDelta) and event.text.endswith("shown")
            )
            assert await stored_texts(harness) == []
            await clock.advance(INTERVAL)
            await wait_until_idle()
            assert await stored_texts(harness) == [SHOWN]
            group.cancel_scope.cancel()
        assert await stored_texts(harness) == []
        last = (await harness.rows())[-1].message
        assert isinstance(last, Assistant)
        assert (text_of(last), last.stop) == (SHOWN, Stop.CANCELLED)
        await harness.runner.aclose()


async def leave_partial_answer(harness: ConversationHarness) -> None:
    """The store as a killed process left it."""
    now = CLOCK.now()
    write = AppendMessage("s1", "run_0", user_message("question"), now)
    left = PartialText(run="run_0", session="s1", text=SHOWN, holder="dead/boot/1/1")
    session = Session(id="s1", started_at=now)
    await harness.store.commit(OpenSession(session), write, PutPartialText(left))


@pytest.mark.parametrize("sweeps", [0, 2])
async def test_text_of_a_killed_process_is_in_the_transcript_once(sweeps: int) -> None:
    async with conversation_harness(answer_script("and more")) as harness:
        await leave_partial_answer(harness)
        for _ in range(sweeps):
            await harness.runner.recover_partial_answers()
        await harness.conversation.resume("s1")
        await harness.submit("go on")
        texts = [text_of(row.message) for row in await harness.rows()]
        assert texts == ["question", SHOWN, "go on", "and more"]
        body = [text_of(message) for message in harness.model.requests[-1].messages]
        assert body == ["question", SHOWN, "go on"]
        assert await stored_texts(harness) == []
