"""Running a turn: accepted durably, run by one process, ended visibly."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from msgspec import Raw

from hermes.bus.memory import MemoryBus
from hermes.kit.ids import process_id
from hermes.ports.ownership import WORKER_TTL, Leases
from hermes.ports.store import (
    AppendMessage,
    BeginTurn,
    BeginTurnResult,
    ChangeSession,
    Fence,
    OpenSession,
    QueueItem,
    ReleaseLease,
    Write,
)
from hermes.schema.errors import ConfigError, SessionBusy, StoreError
from hermes.schema.events import Outcome, RunEnded, RunStarted, TextDelta
from hermes.schema.messages import Message, Trust, User, text_of
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session, SessionChange
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.lease import RENEWALS
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import Pause, Script, ScriptedModel, answer_script
from support.conversation import (
    HANGING_SCRIPT,
    ConversationHarness,
    FakePlanner,
    PatchedStore,
    conversation_harness,
    fixed_price,
)
from support.history_validators import check_request
from support.polling import pause
from support.turns import (
    EventRecorder,
    FakeTool,
    GatedBody,
    assistant_message,
    tool_call,
    user_message,
)

RENEW_INTERVAL = WORKER_TTL.total_seconds() / RENEWALS

ELSEWHERE = "elsewhere/boot/7/1"


def inbox_item(message: User, session: str) -> QueueItem:
    body = Raw(msgspec.json.encode(message))
    return QueueItem(key=message.id, queue="inbox", topic=session, body=body)


async def waiting(harness: ConversationHarness) -> list[str]:
    """Inbox keys that are not completed."""
    found = await harness.store.queues.claim("inbox", None, "somebody", timedelta(0), 100)
    return [inbox_item.key for inbox_item in found]


def conversation_on(
    harness: ConversationHarness,
    planner: FakePlanner,
    clock: FakeClock | None = None,
    **patches: object,
) -> Conversation:
    """A conversation whose runner uses the store with these parts replaced."""
    clock = clock or FakeClock()
    store = PatchedStore(harness.store, **patches)
    runner = Runner(
        store=store,
        clock=clock,
        planner=planner,
        price=fixed_price,
        profile="default",
        bus=MemoryBus(),
    )  # type: ignore[arg-type]
    return Conversation(harness.store, clock, runner, SessionOptions())


async def beat(clock: FakeClock) -> None:
    """Let one renewal interval pass, once the renewing task sleeps again."""
    with anyio.fail_after(60):
        while not clock.sleepers:
            await pause()
    await clock.advance(RENEW_INTERVAL)


async def test_turn_stores_transcript_and_session_and_empties_the_inbox() -> None:
    async with conversation_harness(answer_script("Good day.")) as harness:
        assert await harness.submit("hello") is Outcome.DONE
        rows = await harness.rows()
        session = await harness.store.archive_for(OWNER).get(harness.conversation.session.id)
        assert await waiting(harness) == []
    assert [text_of(row.message) for row in rows] == ["hello", "Good day."]
    assert len({row.run for row in rows}) == 1
    assert (session.model, session.provider) == ("scripted", "testing")
    assert session.system == f"Be good in {session.id}."
    assert session.cwd == "/work"


async def test_next_turn_knows_the_last_one_and_reuses_its_prompt() -> None:
    async with conversation_harness(answer_script("one"), answer_script("two")) as harness:
        await harness.submit("first")
        await harness.submit("second")
    first, second = harness.model.requests
    assert second.system == first.system
    assert [text_of(m) for m in second.messages] == ["first", "one", "second"]


async def test_failed_turn_is_completed_too() -> None:
    async with conversation_harness() as harness:
        assert await harness.submit("hello") is Outcome.FAILED
        assert await waiting(harness) == []
        assert len(await harness.rows()) == 1


async def test_failing_planner_leaves_nothing_behind() -> None:
    async with conversation_harness(answer_script("Better now.")) as harness:
        harness.planner.broken = "There is no such model."
        with pytest.raises(ConfigError):
            await harness.submit("hello")
        assert await harness.sessions() == []
        assert await waiting(harness) == []
        assert harness.ear.events == []
        assert not harness.conversation.started
        harness.planner.broken = ""
        assert await harness.submit("hello") is Outcome.DONE


async def test_session_held_by_another_process_is_busy() -> None:
    async with conversation_harness(answer_script("later")) as harness:
        session = harness.conversation.session.id
        generation = await harness.store.leases.hold(session, ELSEWHERE, WORKER_TTL)
        with pytest.raises(SessionBusy) as busy:
            await harness.submit("hello")
        assert session in str(busy.value)
        assert "process 7 on elsewhere" in str(busy.value)
        assert busy.value.hint
        assert await harness.sessions() == []
        assert await waiting(harness) == []
        await harness.store.leases.release(session, generation)
        assert await harness.submit("hello") is Outcome.DONE


async def test_expired_lease_is_taken_over() -> None:
    clock = FakeClock(auto=True)
    async with conversation_harness(answer_script("mine"), clock=clock) as harness:
        await harness.store.leases.hold(harness.conversation.session.id, ELSEWHERE, WORKER_TTL)
        await clock.sleep(WORKER_TTL.total_seconds() + 1)
        assert await harness.submit("hello") is Outcome.DONE


async def test_lease_of_a_dead_process_is_taken_over_immediately() -> None:
    host, boot, _, start = process_id().split("/")
    async with conversation_harness(answer_script("mine")) as harness:
        session = harness.conversation.session.id
        await harness.store.leases.hold(session, f"{host}/{boot}/4999999/{start}", WORKER_TTL)
        assert await harness.submit("hello") is Outcome.DONE


async def test_second_turn_in_this_process_is_refused() -> None:
    async with conversation_harness(HANGING_SCRIPT, answer_script("done")) as harness:
        async with anyio.create_task_group() as group:
            group.start_soon(harness.submit, "first")
            await harness.wait_until_hanging()
            with pytest.raises(SessionBusy):
                await harness.submit("second")
            with pytest.raises(SessionBusy):
                await harness.conversation.undo()
            beside = Conversation(harness.store, FakeClock(), harness.runner, SessionOptions())
            await beside.resume(harness.conversation.session.id)
            with pytest.raises(SessionBusy):
                await beside.submit(user_message("third").parts, EventRecorder())
            harness.conversation.interrupt()
        assert harness.ear.ended.outcome is Outcome.CANCELLED
        assert await harness.submit("fourth", EventRecorder()) is Outcome.DONE


async def test_long_turn_keeps_its_lease() -> None:
    clock = FakeClock()
    async with conversation_harness(HANGING_SCRIPT, clock=clock) as harness:
        session = harness.conversation.session.id
        async with anyio.create_task_group() as group:
            group.start_soon(harness.submit, "hello")
            await harness.wait_until_hanging()
            for _ in range(5):
                await beat(clock)
            assert clock.monotonic() > WORKER_TTL.total_seconds()
            with pytest.raises(SessionBusy):
                await harness.store.leases.hold(session, ELSEWHERE, WORKER_TTL)
            harness.conversation.interrupt()
        await harness.store.leases.hold(session, ELSEWHERE, WORKER_TTL)


async def test_lost_lease_ends_the_turn() -> None:
    clock = FakeClock()
    gates = GatedBody()
    act = FakeTool("act", gates)
    async with conversation_harness(
        [assistant_message(tool_call("act", gate="a"))], tools=[act], clock=clock
    ) as harness:
        session = harness.conversation.session.id
        raised: list[StoreError] = []

        async def run() -> None:
            try:
                await harness.submit("hello")
            except StoreError as error:
                raised.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await gates.reached("a")
            await harness.store.leases.release(session, 1)
            await harness.store.leases.hold(session, ELSEWHERE, WORKER_TTL)
            await beat(clock)
    assert (harness.ear.ended.outcome, harness.ear.ended.code) == (Outcome.FAILED, "lease_lost")
    assert "took over" in str(raised[0])
    assert raised[0].hint


class FlakyLeases:
    """Leases that cannot be renewed for a while."""

    def __init__(self, inner: Leases) -> None:
        self._inner = inner
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def renew(self, session: str, generation: int, ttl: timedelta) -> bool:
        if self.failed < 2:
            self.failed += 1
            raise StoreError("The database is locked.")
        return await self._inner.renew(session, generation, ttl)


async def test_failed_renewal_does_not_lose_the_lease() -> None:
    clock = FakeClock()
    async with conversation_harness(clock=clock) as harness:
        leases = FlakyLeases(harness.store.leases)
        planner = FakePlanner(ScriptedModel(HANGING_SCRIPT), {})
        conversation = conversation_on(harness, planner, clock, leases=leases)
        async with anyio.create_task_group() as group:
            group.start_soon(conversation.submit, user_message("hello").parts, harness.ear)
            await harness.wait_until_hanging()
            for _ in range(3):
                await beat(clock)
            assert leases.failed == 2
            assert not any(isinstance(event, RunEnded) for event in harness.ear.events)
            conversation.interrupt()
    assert harness.ear.ended.outcome is Outcome.CANCELLED


async def test_accepted_but_unprocessed_message_is_recovered() -> None:
    """As after a crash between the inbox and the transcript."""
    async with conversation_harness(answer_script("one"), answer_script("both")) as harness:
        await harness.submit("first")
        left = user_message("left behind")
        await harness.store.queues.put(inbox_item(left, harness.conversation.session.id))
        await harness.submit("second")
        texts = [text_of(row.message) for row in await harness.rows()]
        assert texts == ["first", "one", "left behind", "second", "both"]
        assert await waiting(harness) == []
    check_request(harness.model.requests[-1].messages)


async def test_processed_message_is_not_asked_twice() -> None:
    """As after a crash in the middle of a turn: it is in the transcript and in the inbox."""
    async with conversation_harness(answer_script("one"), answer_script("two")) as harness:
        await harness.submit("first")
        processed = (await harness.rows())[0].message
        assert isinstance(processed, User)
        twin = msgspec.structs.replace(processed, id="msg_twin")
        await harness.store.queues.put(inbox_item(twin, harness.conversation.session.id))
        session = harness.conversation.session.id
        generation = await harness.store.leases.hold(session, "elsewhere", WORKER_TTL)
        await harness.store.commit(AppendMessage(session, "run_0", twin, FakeClock().now()))
        await harness.store.leases.release(session, generation)
        await harness.submit("second")
        texts = [text_of(row.message) for row in await harness.rows()]
        assert texts == ["first", "one", "first", "second", "two"]
        assert await waiting(harness) == []


async def test_messages_of_other_sessions_are_untouched() -> None:
    async with conversation_harness(answer_script("one")) as harness:
        other = user_message("for somebody else")
        await harness.store.queues.put(inbox_item(other, "another"))
        await harness.submit("first")
        assert await waiting(harness) == [other.id]


async def test_unreadable_inbox_item_is_parked() -> None:
    async with conversation_harness(answer_script("one"), answer_script("two")) as harness:
        session = harness.conversation.session.id
        for number, body in enumerate([b"{}", b"not json", b'{"type": "result"}']):
            bad = QueueItem(key=f"bad{number}", queue="inbox", topic=session, body=Raw(body))
            await harness.store.queues.put(bad)
        assert await harness.submit("first") is Outcome.DONE
        assert await waiting(harness) == []
        parked = await harness.store.queues.parked("inbox")
        assert [p.item.key for p in parked] == ["bad0", "bad1", "bad2"]
        assert all("cannot be read" in p.reason for p in parked)


async def test_cancel_before_acceptance_leaves_nothing() -> None:
    reached = anyio.Event()

    class Slow(FakePlanner):
        async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Any:
            reached.set()
            await anyio.sleep_forever()

    async with conversation_harness() as harness:
        conversation = conversation_on(harness, Slow(harness.model, {}))
        outcomes: list[Outcome] = []

        async def run() -> None:
            outcomes.append(await conversation.submit(user_message("hello").parts, harness.ear))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await reached.wait()
            conversation.interrupt()
        assert outcomes == [Outcome.CANCELLED]
        assert await harness.sessions() == []
        assert await waiting(harness) == []
        assert harness.ear.events == []
        await harness.store.leases.hold(conversation.session.id, ELSEWHERE, WORKER_TTL)


async def test_cancel_during_acceptance_still_starts_and_ends_the_turn() -> None:
    reached, go = anyio.Event(), anyio.Event()

    async with conversation_harness() as harness:

        async def admit(begin: BeginTurn, *writes: Write) -> BeginTurnResult:
            reached.set()
            await go.wait()
            return await harness.store.begin_turn(begin, *writes)

        planner = FakePlanner(ScriptedModel(HANGING_SCRIPT), {})
        conversation = conversation_on(harness, planner, begin_turn=admit)
        async with anyio.create_task_group() as group:
            group.start_soon(conversation.submit, user_message("hello").parts, harness.ear)
            await reached.wait()
            conversation.interrupt()
            await anyio.wait_all_tasks_blocked()
            go.set()
        assert harness.ear.ended.outcome is Outcome.CANCELLED
        assert isinstance(harness.ear.events[0], RunStarted)
        assert harness.ear.texts == ["hello"]
        assert await waiting(harness) == []


async def test_cancel_while_the_answer_is_stored_does_not_lose_it() -> None:
    reached, go = anyio.Event(), anyio.Event()

    async with conversation_harness(answer_script("Done.")) as harness:

        async def commit(*writes: Write, fence: Fence | None = None) -> None:
            if any(isinstance(write, ReleaseLease) for write in writes):
                reached.set()
                await go.wait()
            await harness.store.commit(*writes, fence=fence)

        conversation = conversation_on(harness, harness.planner, commit=commit)
        async with anyio.create_task_group() as group:
            group.start_soon(conversation.submit, user_message("hello").parts, harness.ear)
            await reached.wait()
            conversation.interrupt()
            await anyio.wait_all_tasks_blocked()
            go.set()
        assert harness.ear.ended.outcome is Outcome.DONE
        assert harness.ear.texts == ["hello", "Done."]


async def test_question_that_could_not_be_recorded_is_asked_again() -> None:
    """Older messages come first, so it is not written when it is accepted."""
    async with conversation_harness(answer_script("To all.")) as harness:
        await harness.store.queues.put(inbox_item(user_message("oldest"), "s"))
        full = True

        async def commit(*writes: Write, fence: Fence | None = None) -> None:
            if full and any(isinstance(write, AppendMessage) for write in writes):
                raise StoreError("The disk is full.")
            await harness.store.commit(*writes, fence=fence)

        conversation = conversation_on(harness, harness.planner, commit=commit)
        await conversation.begin_with([], "s")
        assert await conversation.submit(user_message("first").parts, harness.ear) is Outcome.FAILED
        assert harness.ear.ended.code == "store"
        full = False
        again = await conversation.submit(user_message("second").parts, EventRecorder())
        assert again is Outcome.DONE
        assert await waiting(harness) == []
    assert [text_of(m) for m in harness.model.requests[0].messages] == ["oldest\n\nfirst\n\nsecond"]


async def test_steering_is_stored_in_the_same_turn() -> None:
    async def look(args: object, context: object) -> str:
        assert await harness.conversation.steer("msg_steered", "rather left")
        return "seen"

    tools = [FakeTool("look", look)]
    async with conversation_harness(
        [assistant_message(tool_call("look"))], answer_script("ok"), tools=tools
    ) as harness:
        await harness.submit("go")
        rows = await harness.rows()
    assert [text_of(row.message) for row in rows][-2:] == ["rather left", "ok"]
    assert len({row.run for row in rows}) == 1


async def test_ended_session_is_reopened_by_its_next_turn() -> None:
    clock = FakeClock()
    async with conversation_harness(
        answer_script("one"), answer_script("two"), clock=clock
    ) as harness:
        await harness.submit("first")
        session = harness.conversation.session.id
        end = SessionChange(ended_at=clock.now(), end_reason="reset")
        await harness.store.commit(ChangeSession(session, end))
        await harness.conversation.resume(session)
        assert harness.conversation.session.ended_at is not None
        await harness.submit("second", EventRecorder())
        assert harness.conversation.session.ended_at is None
        assert harness.conversation.session.end_reason == ""


async def test_failing_listener_raises_but_loses_nothing() -> None:
    class Broken(EventRecorder):
        async def __call__(self, event: object) -> None:
            if isinstance(event, TextDelta | RunEnded):
                raise BrokenPipeError

    cut_off: Script = [TextDelta("Good "), Pause.FOREVER]
    async with conversation_harness(cut_off, answer_script("again")) as harness:
        with pytest.raises(BrokenPipeError):
            await harness.submit("hello", Broken())
        assert [text_of(row.message) for row in await harness.rows()] == ["hello", "Good "]
        assert await waiting(harness) == []
        assert await harness.submit("once more") is Outcome.DONE


async def test_program_messages_are_stored_as_such() -> None:
    async with conversation_harness([assistant_message()], answer_script("words")) as harness:
        await harness.submit("hello")
        rows = await harness.rows()
    trusts = [row.message.trust for row in rows if isinstance(row.message, User)]
    assert trusts == [Trust.OWNER, Trust.PROGRAM]


async def test_run_without_its_lease_writes_nothing() -> None:
    """Its last results come too late: another process continues from the store."""
    gates = GatedBody()
    act = FakeTool("act", gates)
    async with conversation_harness(
        [assistant_message(tool_call("act", gate="a"))],
        answer_script("late"),
        tools=[act],
    ) as harness:
        session = harness.conversation.session.id
        async with anyio.create_task_group() as group:
            group.start_soon(harness.submit, "hello")
            await gates.reached("a")
            await harness.store.leases.release(session, 1)
            await harness.store.leases.hold(session, ELSEWHERE, WORKER_TTL)
            before = len(await harness.rows())
            gates.open("a")
        assert len(await harness.rows()) == before
    assert harness.ear.ended.outcome is Outcome.FAILED
    assert harness.ear.ended.code == "lease_lost"


async def test_two_runners_of_one_process_exclude_each_other() -> None:
    async with conversation_harness(HANGING_SCRIPT) as harness:
        session = harness.conversation.session.id
        other = Runner(
            store=harness.store,
            clock=FakeClock(),
            planner=harness.planner,
            price=fixed_price,
            profile="default",
            bus=MemoryBus(),
        )
        async with anyio.create_task_group() as group:
            group.start_soon(harness.submit, "hello")
            await harness.wait_until_hanging()
            with pytest.raises(SessionBusy):
                async with other.holding(session):
                    pass
            harness.conversation.interrupt()


@pytest.mark.parametrize("was_held", [False, True])
async def test_messages_of_an_opened_session_are_read_if_it_was_held(*, was_held: bool) -> None:
    async with conversation_harness(answer_script("Good day.")) as harness:
        store, session = harness.store, harness.conversation.session
        await store.commit(OpenSession(session))
        if was_held:
            generation = await store.leases.hold(session.id, ELSEWHERE, WORKER_TTL)
            other = AppendMessage(session.id, "run_0", user_message("first"), session.started_at)
            await store.commit(other, fence=Fence(session.id, generation))
            await store.leases.release(session.id, generation)
        question = user_message("hello")
        turn = TurnRequest(session=session, message=question, opened=True)
        assert await harness.run(turn) is Outcome.DONE
        seen = [text_of(message) for message in harness.model.requests[0].messages]
    assert seen == (["first\n\nhello"] if was_held else ["hello"])
