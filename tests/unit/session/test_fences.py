"""All writes of a run are fenced by its lease."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.bus.memory import MemoryBus
from hermes.ports.approvals import RecoveredQuestions
from hermes.ports.ownership import WORKER_TTL
from hermes.ports.store import AppendMessage, Fence, OpenSession, QueueItem, Write
from hermes.schema.errors import LeaseLost, StoreError
from hermes.schema.events import Outcome
from hermes.schema.messages import Message, Result, Text, User
from hermes.schema.sessions import Session
from hermes.session.lease import Lease
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest, close_lost_calls
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import ScriptedModel, answer_script
from support.conversation import (
    ConversationHarness,
    FakePlanner,
    PatchedStore,
    conversation_harness,
    fixed_price,
    run_turn,
)
from support.turns import FakeTool, assistant_message, tool_call, user_message

CLOCK = FakeClock()
ELSEWHERE = "elsewhere/boot/7/1"
SESSION = Session(id="s1", started_at=CLOCK.now())


class WatchedHarness:
    """A runner, and what it committed without a fence."""

    def __init__(self, harness: ConversationHarness) -> None:
        self.unfenced: list[Write] = []
        self._store = harness.store
        planner = FakePlanner(ScriptedModel(answer_script("Well.")), {"act": FakeTool("act")})
        store = PatchedStore(harness.store, commit=self._commit)
        self.runner = Runner(
            store=store,
            clock=CLOCK,
            planner=planner,
            price=fixed_price,
            profile="default",
            bus=MemoryBus(),
        )  # type: ignore[arg-type]

    async def _commit(self, *writes: Write, fence: Fence | None = None) -> None:
        if fence is None:
            self.unfenced += writes
        await self._store.commit(*writes, fence=fence)


async def said_before(harness: ConversationHarness, *messages: Message) -> None:
    history = [AppendMessage("s1", "run_0", message, CLOCK.now()) for message in messages]
    await harness.store.commit(OpenSession(SESSION), *history)


@asynccontextmanager
async def watched_harness(folder: Path, *messages: Message) -> AsyncGenerator[WatchedHarness]:
    async with conversation_harness() as harness:
        await said_before(harness, *messages)
        yield WatchedHarness(harness)


async def test_client_results_are_fenced(tmp_path: Path) -> None:
    handed = tool_call("weather")
    results = (Result("r1", handed.id, (Text("rain"),)),)
    async with watched_harness(tmp_path, user_message(), assistant_message(handed)) as harness:
        turn = TurnRequest(session=SESSION, message=None, results=results, new=False)
        assert await run_turn(harness.runner, turn) is Outcome.DONE
        assert harness.unfenced == []


async def test_results_of_lost_calls_are_fenced(tmp_path: Path) -> None:
    async with watched_harness(
        tmp_path, user_message(), assistant_message(tool_call("act"))
    ) as harness:
        turn = TurnRequest(session=SESSION, message=user_message("and?"))
        assert await run_turn(harness.runner, turn) is Outcome.DONE
        assert harness.unfenced == []


async def test_completion_of_known_messages_is_fenced() -> None:
    processed = user_message("heard")
    async with conversation_harness() as talking:
        await said_before(talking, processed)
        body = Raw(msgspec.json.encode(processed))
        await talking.store.queues.put(
            QueueItem(key=processed.id, queue="inbox", topic="s1", body=body)
        )
        harness = WatchedHarness(talking)
        turn = TurnRequest(session=SESSION, message=User("u2", (Text("more"),)))
        assert await run_turn(harness.runner, turn) is Outcome.DONE
        assert harness.unfenced == []


@pytest.mark.parametrize(
    "left", [RecoveredQuestions(), RecoveredQuestions(results={"c1": "Not done."})]
)
async def test_runner_without_the_session_closes_no_calls(left: RecoveredQuestions) -> None:
    async with conversation_harness() as harness:
        history: list[Message] = [user_message(), assistant_message(tool_call("act"))]
        await said_before(harness, *history)
        lease = Lease(harness.store, "we/boot/1/1", Fence("s1", 0))
        await lease.acquire()
        await harness.store.leases.release("s1", lease.fence.generation)
        await harness.store.leases.hold("s1", ELSEWHERE, WORKER_TTL)
        with pytest.raises(LeaseLost):
            await close_lost_calls(harness.store, CLOCK, lease.fence, history, left)
        await harness.conversation.resume("s1")
        assert len(await harness.rows()) == 2


async def test_lease_is_released_after_any_failure() -> None:
    class Questions:
        broken = False

        async def recover(self, session: str, *, resumed: bool) -> RecoveredQuestions:
            return RecoveredQuestions()

        async def turn_ended(self, session: str) -> None:
            if self.broken:
                raise StoreError("The disk is full.")

        async def close_abandoned(self) -> None: ...

    questions, script = Questions(), answer_script("Good day.")
    async with conversation_harness(script, questions=questions) as harness:
        await harness.submit("hello")
        questions.broken = True
        harness.planner.broken = "There is no such model."
        session = harness.conversation.session
        resumed = TurnRequest(session=session, message=None, note=user_message("continue"))
        with pytest.raises(StoreError, match="disk is full"):
            await run_turn(harness.runner, resumed)
        assert not await harness.store.leases.held(session.id)
