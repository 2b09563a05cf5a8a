"""Facts are durable before they are emitted."""

from datetime import timedelta
from pathlib import Path

import pytest

from hermes.ports.store import Fence, Store, Write
from hermes.ports.turn import Emit
from hermes.schema.errors import StoreError
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Result, Usage
from hermes.schema.scope import OWNER
from hermes.schema.tools import Effect
from hermes.session.lease import Lease
from hermes.session.recorder import AcceptedMessages, Recorder
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import conversation_harness
from support.turns import SCOPE, EventRecorder, FakeTool, assistant_message, tool_call, user_message

pytestmark = pytest.mark.anyio


class Reader(EventRecorder):
    """Reads every event's facts through another connection."""

    def __init__(self, other: Store, session: str) -> None:
        super().__init__()
        self._other = other
        self._session = session
        self.intents: list[list[str]] = []

    async def __call__(self, event: Event) -> None:
        await super().__call__(event)
        rows = await self._other.archive_for(OWNER).messages(self._session)
        assert [row.message for row in rows][: len(self.said)] == self.said
        open_now = [intent.call for intent in await self._other.open_intents(self._session)]
        waiting = await self._other.queues.claim(
            "inbox", self._session, "somebody", timedelta(0), 10
        )
        match event:
            case ToolStarted(call=started, effect=effect):
                assert (started.id in open_now) == (effect is not Effect.READ)
            case MessageAdded(message=Result(call=ended)):
                assert ended not in open_now
            case RunEnded():
                assert open_now == []
                assert list(waiting) == []
            case MessageAdded(message=Assistant() as message) if not message.calls:
                # The last answer is committed together with the end of its run.
                assert not waiting or not message.text
            case _:
                assert waiting


async def test_fact_is_readable_elsewhere_before_it_is_emitted(tmp_path: Path) -> None:
    tools = [
        FakeTool("look"),
        FakeTool("change", effect=Effect.WRITE),
        FakeTool("act", effect=Effect.OUTSIDE),
    ]
    calls = [
        tool_call("look"),
        tool_call("look", at=2),
        tool_call("change"),
        tool_call("act"),
        tool_call("nobody"),
    ]
    scripts = (
        [TextDelta("Let "), assistant_message("Let me.", *calls)],
        [assistant_message()],
        answer_script("Done."),
    )
    async with (
        conversation_harness(tmp_path, *scripts, tools=tools) as harness,
        open_store(tmp_path / "hermes.db", FakeClock()) as other,
    ):
        ear = Reader(other, harness.conversation.session.id)
        assert await harness.submit("go", ear) is Outcome.DONE
    assert len(ear.results) == 5
    kinds = {type(event) for event in ear.events}
    assert kinds == {RunStarted, MessageAdded, TextDelta, ToolStarted, RunEnded}


async def test_every_model_call_is_metered_with_its_price(tmp_path: Path) -> None:
    scripts = (
        [assistant_message(tool_call("look"), usage=Usage(100, 10))],
        [assistant_message("Done.", usage=Usage(200, 20, 50))],
        [assistant_message("Free.")],
    )
    async with conversation_harness(tmp_path, *scripts, tools=[FakeTool("look")]) as harness:
        await harness.submit("go")
        await harness.submit("again")
        (use,) = await harness.conversation.usage()
    assert (use.model, use.provider, use.calls) == ("scripted", "testing", 2)
    assert (use.usage, use.cost) == (Usage(300, 30, 50), pytest.approx(0.01))


class FullDisk:
    """A store that refuses every write."""

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        raise StoreError("The disk is full.")


def broken_sink(
    ear: EventRecorder,
    accepted: AcceptedMessages = AcceptedMessages(),  # noqa: B008 - frozen
    *,
    own: bool = False,
) -> Emit:
    store = FullDisk()
    lease = Lease(store, SCOPE.session, "somebody", 1)  # type: ignore[arg-type]
    recorder = Recorder(store, FakeClock(), lambda *_: None, SCOPE, lease)  # type: ignore[arg-type]
    return recorder.sink(accepted, ear, own=own)


async def test_fact_that_cannot_be_written_is_not_emitted() -> None:
    ear = EventRecorder()
    with pytest.raises(StoreError):
        await broken_sink(ear)(MessageAdded(assistant_message("Good.")))
    assert ear.events == []


async def test_failed_write_of_answer_and_end_fails_the_run() -> None:
    ear = EventRecorder()
    emit = broken_sink(ear, own=True)
    await emit(MessageAdded(assistant_message("Good.")))
    assert ear.events == []
    with pytest.raises(StoreError):
        await emit(RunEnded("run_1", Outcome.DONE))
    (ended,) = ear.events
    assert ended == RunEnded("run_1", Outcome.FAILED, "The disk is full.", "store")


async def test_intermediate_answer_is_written_before_what_follows() -> None:
    ear = EventRecorder()
    emit = broken_sink(ear, own=True)
    await emit(MessageAdded(assistant_message("Good.")))
    with pytest.raises(StoreError):
        await emit(TextDelta("more"))
    assert ear.events == []


async def test_end_is_emitted_even_if_it_cannot_be_written() -> None:
    ear = EventRecorder()
    emit = broken_sink(ear, AcceptedMessages((user_message("hello"),)))
    with pytest.raises(StoreError):
        await emit(RunEnded("run_1", Outcome.FAILED))
    assert ear.ended.outcome is Outcome.FAILED


async def test_deltas_are_not_written() -> None:
    ear = EventRecorder()
    await broken_sink(ear)(TextDelta("word"))
    assert ear.events == [TextDelta("word")]
