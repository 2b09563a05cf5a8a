"""Facts are durable before they are published."""

from collections.abc import Callable, Sequence

import pytest

from hermes.bus.memory import MemoryBus
from hermes.ports.store import (
    AppendMessage,
    BeginTurn,
    BeginTurnResult,
    CompleteItem,
    Fence,
    RecordIntent,
    ReleaseLease,
    SettleIntent,
    Store,
    Write,
)
from hermes.ports.turn import Emit
from hermes.schema.errors import StoreError
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    RunEnded,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Result, Usage
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.session.lease import Lease
from hermes.session.recorder import (
    AcceptedMessages,
    PartialAnswer,
    PartialAnswerWriter,
    Recorder,
)
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import ScriptedModel, answer_script
from support.conversation import (
    FakePlanner,
    PatchedStore,
    conversation_harness,
    fixed_price,
    run_turn,
)
from support.turns import SCOPE, EventRecorder, FakeTool, assistant_message, tool_call, user_message


class Order:
    """What was committed and what was published, in order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seen: list[Write | Event] = []

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        await self._store.commit(*writes, fence=fence)
        self.seen += writes

    async def begin_turn(self, begin: BeginTurn, *writes: Write) -> BeginTurnResult:
        begun = await self._store.begin_turn(begin, *writes)
        self.seen += [*writes, *([begin.first] if begin.first else [])]
        return begun

    def observe(self, request: TurnRequest, scope: Scope) -> Callable[[Event], None]:
        return self.seen.append


def needed_writes(event: Event, seen: "Sequence[Write | Event]") -> list[bool]:
    """Whether each write that the event reports was committed before."""
    match event:
        case MessageAdded(message=message):
            stored = [write.message for write in seen if isinstance(write, AppendMessage)]
            settled = [write.call for write in seen if isinstance(write, SettleIntent)]
            return [message in stored, not isinstance(message, Result) or message.call in settled]
        case ToolStarted(call=call, effect=effect) if effect is not Effect.READ:
            return [
                any(isinstance(one, RecordIntent) and one.intent.call == call.id for one in seen)
            ]
        case RunEnded():
            kinds = {type(one) for one in seen}
            return [CompleteItem in kinds, ReleaseLease in kinds]
        case _:
            return []


async def test_fact_is_committed_before_it_is_published() -> None:
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
    model = ScriptedModel(
        [TextDelta("Let "), assistant_message("Let me.", *calls)],
        [assistant_message()],
        answer_script("Done."),
    )
    async with conversation_harness() as harness:
        order = Order(harness.store)
        runner = Runner(
            store=PatchedStore(harness.store, commit=order.commit, begin_turn=order.begin_turn),  # type: ignore[arg-type]
            clock=FakeClock(),
            planner=FakePlanner(model, {tool.spec.name: tool for tool in tools}),
            price=fixed_price,
            profile="default",
            bus=MemoryBus(),
        )
        turn = TurnRequest(
            session=harness.conversation.session, message=user_message("go"), new=True
        )
        with runner.observed_by(order.observe):
            assert await run_turn(runner, turn) is Outcome.DONE
    checks = [(one, needed_writes(one, order.seen[:at])) for at, one in enumerate(order.seen)]  # type: ignore[arg-type]
    assert [one for one, found in checks if not all(found)] == []
    assert sum(len(found) for _, found in checks) == 2 * 10 + 2 + 2


async def test_every_model_call_is_metered_with_its_price() -> None:
    scripts = (
        [assistant_message(tool_call("look"), usage=Usage(100, 10))],
        [assistant_message("Done.", usage=Usage(200, 20, 50))],
        [assistant_message("Free.")],
    )
    async with conversation_harness(*scripts, tools=[FakeTool("look")]) as harness:
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
    lease = Lease(store, "somebody", Fence(SCOPE.session, 1))  # type: ignore[arg-type]
    clock = FakeClock()
    partial_answers = PartialAnswerWriter(store, clock)  # type: ignore[arg-type]
    return Recorder(
        store=store,  # type: ignore[arg-type]
        clock=clock,
        price=lambda *_: None,
        scope=SCOPE,
        lease=lease,
        partial=PartialAnswer(partial_answers, SCOPE, lease),
        publish=ear.events.append,
        accepted=accepted,
        own=own,
    ).emit


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


async def test_intermediate_answer_is_stored_before_the_next_step() -> None:
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
