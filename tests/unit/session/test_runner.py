"""One turn of a session: accepted before it is answered, run by one, ended for all to see."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from msgspec import Raw

from hermes.kit.holder import this_process
from hermes.ports.store import (
    Admitted,
    Append,
    ChangeSession,
    Entrance,
    Fence,
    Leases,
    Parcel,
    Write,
)
from hermes.schema.errors import ConfigError, SessionBusy, StoreError
from hermes.schema.events import Outcome, RunEnded, RunStarted, TextDelta
from hermes.schema.messages import Message, Trust, User, text_of
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session, SessionChange
from hermes.session.conversation import Conversation, Origin
from hermes.session.lease import HEARTBEAT, LEASE, Heart, Lease
from hermes.session.runner import Runner
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import ScriptedModel, says
from hermes.testing.validators import check_request
from talks import HANGS, ScriptedPlanner, StoreWith, Talk, half_a_cent, talk
from workbench import Ear, FakeTool, Gates, answer, call, user

pytestmark = pytest.mark.anyio

ELSEWHERE = "elsewhere/boot/7/1"


def parcel(message: User, session: str) -> Parcel:
    body = Raw(msgspec.json.encode(message))
    return Parcel(key=message.id, lane="inbox", topic=session, body=body)


async def waiting(one: Talk) -> list[str]:
    """Keys in the inbox that nobody has settled."""
    found = await one.store.lanes.claim("inbox", None, "somebody", timedelta(0), 100)
    return [parcel.key for parcel in found]


async def beat(clock: FakeClock) -> None:
    """Let a heartbeat's time pass, once whoever beats is asleep again."""
    with anyio.fail_after(60):
        while not clock.sleepers:
            await anyio.lowlevel.checkpoint()
    await clock.advance(HEARTBEAT)


async def test_a_turn_leaves_transcript_session_and_an_empty_inbox(tmp_path: Path) -> None:
    async with talk(tmp_path, says("Good day.")) as one:
        assert await one.say("hello") is Outcome.DONE
        rows = await one.rows()
        session = await one.store.seen_by(OWNER).get(one.conversation.session.id)
        assert await waiting(one) == []
    assert [text_of(row.message) for row in rows] == ["hello", "Good day."]
    assert len({row.run for row in rows}) == 1
    assert (session.model, session.provider) == ("scripted", "testing")
    assert session.system == f"Be good in {session.id}."
    assert session.cwd == "/work"


async def test_the_next_turn_knows_the_last_one_and_repeats_its_prompt(tmp_path: Path) -> None:
    async with talk(tmp_path, says("one"), says("two")) as one:
        await one.say("first")
        await one.say("second")
    first, second = one.model.requests
    assert second.system == first.system
    assert [text_of(m) for m in second.messages] == ["first", "one", "second"]


async def test_a_failed_turn_is_settled_too(tmp_path: Path) -> None:
    async with talk(tmp_path) as one:
        assert await one.say("hello") is Outcome.FAILED
        assert await waiting(one) == []
        assert len(await one.rows()) == 1


async def test_a_planner_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    async with talk(tmp_path, says("Better now.")) as one:
        one.planner.broken = "There is no such model."
        with pytest.raises(ConfigError):
            await one.say("hello")
        assert await one.sessions() == []
        assert await waiting(one) == []
        assert one.ear.events == []
        assert not one.conversation.started
        one.planner.broken = ""
        assert await one.say("hello") is Outcome.DONE


async def test_another_process_keeps_the_session_to_itself(tmp_path: Path) -> None:
    async with talk(tmp_path, says("later")) as one:
        session = one.conversation.session.id
        generation = await one.store.leases.hold(session, ELSEWHERE, LEASE)
        with pytest.raises(SessionBusy) as busy:
            await one.say("hello")
        assert session in str(busy.value)
        assert "process 7 on elsewhere" in str(busy.value)
        assert busy.value.hint
        assert await one.sessions() == []
        assert await waiting(one) == []
        await one.store.leases.release(session, generation)
        assert await one.say("hello") is Outcome.DONE


async def test_a_lapsed_lease_is_taken_over(tmp_path: Path) -> None:
    clock = FakeClock(auto=True)
    async with talk(tmp_path, says("mine"), clock=clock) as one:
        await one.store.leases.hold(one.conversation.session.id, ELSEWHERE, LEASE)
        await clock.sleep(LEASE.total_seconds() + 1)
        assert await one.say("hello") is Outcome.DONE


async def test_the_lease_of_a_dead_process_is_taken_over_at_once(tmp_path: Path) -> None:
    host, boot, _, start = this_process().split("/")
    async with talk(tmp_path, says("mine")) as one:
        session = one.conversation.session.id
        await one.store.leases.hold(session, f"{host}/{boot}/4999999/{start}", LEASE)
        assert await one.say("hello") is Outcome.DONE


async def test_a_turn_in_this_process_is_not_disturbed_by_another(tmp_path: Path) -> None:
    async with talk(tmp_path, HANGS, says("done")) as one:
        async with anyio.create_task_group() as group:
            group.start_soon(one.say, "first")
            await one.until_it_hangs()
            with pytest.raises(SessionBusy):
                await one.say("second")
            with pytest.raises(SessionBusy):
                await one.conversation.undo()
            beside = Conversation(one.store, FakeClock(), one.runner, Origin())
            await beside.resume(one.conversation.session.id)
            with pytest.raises(SessionBusy):
                await beside.say(user("third").parts, Ear())
            one.conversation.interrupt()
        assert one.ear.ended.outcome is Outcome.CANCELLED
        assert await one.say("fourth", Ear()) is Outcome.DONE


async def test_a_long_turn_keeps_its_lease(tmp_path: Path) -> None:
    clock = FakeClock()
    async with talk(tmp_path, HANGS, clock=clock) as one:
        session = one.conversation.session.id
        async with anyio.create_task_group() as group:
            group.start_soon(one.say, "hello")
            await one.until_it_hangs()
            for _ in range(5):
                await beat(clock)
            assert clock.monotonic() > LEASE.total_seconds()
            with pytest.raises(SessionBusy):
                await one.store.leases.hold(session, ELSEWHERE, LEASE)
            one.conversation.interrupt()
        await one.store.leases.hold(session, ELSEWHERE, LEASE)


async def test_many_turns_have_one_heart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "state.db", clock) as store:
        heart = Heart(clock)
        leases = [Lease(store, f"s{number}", "we/boot/1/1") for number in range(3)]
        for lease in leases:
            await lease.take()
        lost = leases[1]
        async with anyio.create_task_group() as group:
            for lease in leases:
                group.start_soon(_hang, heart, lease)
            await beat(clock)
            assert clock.sleepers == 1
            await store.leases.release(lost.session, lost.generation)
            await store.leases.hold(lost.session, ELSEWHERE, LEASE)
            for _ in range(4):
                await beat(clock)
            for lease in (leases[0], leases[2]):
                with pytest.raises(SessionBusy):
                    await store.leases.hold(lease.session, ELSEWHERE, LEASE)
            assert [lease.lost for lease in leases] == [False, True, False]
            group.cancel_scope.cancel()
        await beat(clock)
        assert await settled(clock) == 0


async def _hang(heart: Heart, lease: Lease) -> None:
    with heart.beating(lease):
        await anyio.sleep_forever()


async def settled(clock: FakeClock) -> int:
    """How many are asleep once those who were woken have gone."""
    await anyio.wait_all_tasks_blocked()
    return clock.sleepers


async def test_a_lost_lease_ends_the_turn(tmp_path: Path) -> None:
    clock = FakeClock()
    gates = Gates()
    act = FakeTool("act", gates)
    async with talk(tmp_path, [answer(call("act", gate="a"))], tools=[act], clock=clock) as one:
        session = one.conversation.session.id
        raised: list[StoreError] = []

        async def run() -> None:
            try:
                await one.say("hello")
            except StoreError as error:
                raised.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await gates.reached("a")
            await one.store.leases.release(session, 1)
            await one.store.leases.hold(session, ELSEWHERE, LEASE)
            await beat(clock)
    assert (one.ear.ended.outcome, one.ear.ended.code) == (Outcome.FAILED, "lease_lost")
    assert "took over" in str(raised[0])
    assert raised[0].hint


class FlakyLeases:
    """Leases that cannot be renewed for a while."""

    def __init__(self, inner: Leases) -> None:
        self._inner = inner
        self.refused = 0

    async def hold(self, session: str, holder: str, ttl: timedelta) -> int:
        return await self._inner.hold(session, holder, ttl)

    async def renew(self, session: str, generation: int, ttl: timedelta) -> bool:
        if self.refused < 2:
            self.refused += 1
            raise StoreError("The database is locked.")
        return await self._inner.renew(session, generation, ttl)

    async def release(self, session: str, generation: int) -> None:
        await self._inner.release(session, generation)

    async def held(self, session: str) -> bool:
        return await self._inner.held(session)


async def test_a_lease_that_cannot_be_renewed_just_now_is_not_lost(tmp_path: Path) -> None:
    clock = FakeClock()
    async with talk(tmp_path, clock=clock) as one:
        leases = FlakyLeases(one.store.leases)
        planner = ScriptedPlanner(ScriptedModel(HANGS), {})
        store = StoreWith(one.store, leases=leases)
        runner = Runner(store, clock, planner, half_a_cent, "default")  # type: ignore[arg-type]
        conversation = Conversation(one.store, clock, runner, Origin())
        async with anyio.create_task_group() as group:
            group.start_soon(conversation.say, user("hello").parts, one.ear)
            await one.until_it_hangs()
            for _ in range(3):
                await beat(clock)
            assert leases.refused == 2
            assert not any(isinstance(event, RunEnded) for event in one.ear.events)
            conversation.interrupt()
    assert one.ear.ended.outcome is Outcome.CANCELLED


async def test_a_message_that_was_accepted_but_not_heard_is_taken_up(tmp_path: Path) -> None:
    """As after a crash between the inbox and the transcript."""
    async with talk(tmp_path, says("one"), says("both")) as one:
        await one.say("first")
        left = user("left behind")
        await one.store.lanes.put(parcel(left, one.conversation.session.id))
        await one.say("second")
        assert [text_of(row.message) for row in await one.rows()] == [
            "first",
            "one",
            "left behind",
            "second",
            "both",
        ]
        assert await waiting(one) == []
    check_request(one.model.requests[-1].messages)


async def test_a_message_that_was_heard_is_not_asked_twice(tmp_path: Path) -> None:
    """As after a crash in the middle of a turn: it is in the transcript and in the inbox."""
    async with talk(tmp_path, says("one"), says("two")) as one:
        await one.say("first")
        heard = (await one.rows())[0].message
        assert isinstance(heard, User)
        twin = msgspec.structs.replace(heard, id="msg_twin")
        await one.store.lanes.put(parcel(twin, one.conversation.session.id))
        session = one.conversation.session.id
        generation = await one.store.leases.hold(session, "elsewhere", LEASE)
        await one.store.commit(Append(session, "run_0", twin, FakeClock().now()))
        await one.store.leases.release(session, generation)
        await one.say("second")
        texts = [text_of(row.message) for row in await one.rows()]
        assert texts == ["first", "one", "first", "second", "two"]
        assert await waiting(one) == []


async def test_messages_of_other_sessions_stay_where_they_are(tmp_path: Path) -> None:
    async with talk(tmp_path, says("one")) as one:
        other = user("for somebody else")
        await one.store.lanes.put(parcel(other, "another"))
        await one.say("first")
        assert await waiting(one) == [other.id]


async def test_a_parcel_that_cannot_be_read_is_put_aside_visibly(tmp_path: Path) -> None:
    async with talk(tmp_path, says("one"), says("two")) as one:
        session = one.conversation.session.id
        for number, body in enumerate([b"{}", b"not json", b'{"type": "result"}']):
            bad = Parcel(key=f"bad{number}", lane="inbox", topic=session, body=Raw(body))
            await one.store.lanes.put(bad)
        assert await one.say("first") is Outcome.DONE
        assert await waiting(one) == []
        parked = await one.store.lanes.parked("inbox")
        assert [p.parcel.key for p in parked] == ["bad0", "bad1", "bad2"]
        assert all("cannot be read" in p.reason for p in parked)


async def test_stopped_before_it_was_accepted_nothing_is_left(tmp_path: Path) -> None:
    reached = anyio.Event()

    class Slow(ScriptedPlanner):
        async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Any:
            reached.set()
            await anyio.sleep_forever()

    async with talk(tmp_path) as one:
        runner = Runner(one.store, FakeClock(), Slow(one.model, {}), half_a_cent, "default")
        conversation = Conversation(one.store, FakeClock(), runner, Origin())
        outcomes: list[Outcome] = []

        async def run() -> None:
            outcomes.append(await conversation.say(user("hello").parts, one.ear))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await reached.wait()
            conversation.interrupt()
        assert outcomes == [Outcome.CANCELLED]
        assert await one.sessions() == []
        assert await waiting(one) == []
        assert one.ear.events == []
        await one.store.leases.hold(conversation.session.id, ELSEWHERE, LEASE)


async def test_stopped_while_it_is_accepted_the_turn_still_begins_and_ends(tmp_path: Path) -> None:
    reached, go = anyio.Event(), anyio.Event()

    async with talk(tmp_path) as one:

        async def admit(entrance: Entrance, *writes: Write) -> Admitted:
            reached.set()
            await go.wait()
            return await one.store.admit(entrance, *writes)

        planner = ScriptedPlanner(ScriptedModel(HANGS), {})
        store = StoreWith(one.store, admit=admit)
        runner = Runner(store, FakeClock(), planner, half_a_cent, "default")  # type: ignore[arg-type]
        conversation = Conversation(one.store, FakeClock(), runner, Origin())
        async with anyio.create_task_group() as group:
            group.start_soon(conversation.say, user("hello").parts, one.ear)
            await reached.wait()
            conversation.interrupt()
            await anyio.wait_all_tasks_blocked()
            go.set()
        assert one.ear.ended.outcome is Outcome.CANCELLED
        assert isinstance(one.ear.events[0], RunStarted)
        assert one.ear.texts == ["hello"]
        assert await waiting(one) == []


async def test_a_question_that_could_not_be_written_down_is_asked_again(tmp_path: Path) -> None:
    """As it must be when older ones come before it, so that it is not written as it is accepted."""
    async with talk(tmp_path, says("To all.")) as one:
        await one.store.lanes.put(parcel(user("oldest"), "s"))
        full = True

        async def commit(*writes: Write, fence: Fence | None = None) -> None:
            if full and any(isinstance(write, Append) for write in writes):
                raise StoreError("The disk is full.")
            await one.store.commit(*writes, fence=fence)

        store = StoreWith(one.store, commit=commit)
        runner = Runner(store, FakeClock(), one.planner, half_a_cent, "default")  # type: ignore[arg-type]
        conversation = Conversation(one.store, FakeClock(), runner, Origin())
        await conversation.begin_with([], "s")
        assert await conversation.say(user("first").parts, one.ear) is Outcome.FAILED
        assert one.ear.ended.code == "store"
        full = False
        assert await conversation.say(user("second").parts, Ear()) is Outcome.DONE
        assert await waiting(one) == []
    assert [text_of(m) for m in one.model.requests[0].messages] == ["oldest\n\nfirst\n\nsecond"]


async def test_steering_is_written_into_the_same_turn(tmp_path: Path) -> None:
    async def look(args: object, context: object) -> str:
        assert await one.conversation.steer("msg_steered", "rather left")
        return "seen"

    tools = [FakeTool("look", look)]
    async with talk(tmp_path, [answer(call("look"))], says("ok"), tools=tools) as one:
        await one.say("go")
        rows = await one.rows()
    assert [text_of(row.message) for row in rows][-2:] == ["rather left", "ok"]
    assert len({row.run for row in rows}) == 1


async def test_an_ended_session_is_alive_again_with_its_next_turn(tmp_path: Path) -> None:
    clock = FakeClock()
    async with talk(tmp_path, says("one"), says("two"), clock=clock) as one:
        await one.say("first")
        session = one.conversation.session.id
        end = SessionChange(ended_at=clock.now(), end_reason="reset")
        await one.store.commit(ChangeSession(session, end))
        await one.conversation.resume(session)
        assert one.conversation.session.ended_at is not None
        await one.say("second", Ear())
        assert one.conversation.session.ended_at is None
        assert one.conversation.session.end_reason == ""


async def test_a_listener_that_breaks_raises_but_loses_nothing(tmp_path: Path) -> None:
    class Broken(Ear):
        async def __call__(self, event: object) -> None:
            if isinstance(event, TextDelta | RunEnded):
                raise BrokenPipeError

    async with talk(tmp_path, says("Good ", "day."), says("again")) as one:
        with pytest.raises(BrokenPipeError):
            await one.say("hello", Broken())
        assert [text_of(row.message) for row in await one.rows()] == ["hello", "Good "]
        assert await waiting(one) == []
        assert await one.say("once more") is Outcome.DONE


async def test_house_words_are_written_as_such(tmp_path: Path) -> None:
    async with talk(tmp_path, [answer()], says("words")) as one:
        await one.say("hello")
        rows = await one.rows()
    trusts = [row.message.trust for row in rows if isinstance(row.message, User)]
    assert trusts == [Trust.OWNER, Trust.HOUSE]


async def test_a_run_that_lost_its_lease_writes_nothing_more(tmp_path: Path) -> None:
    """Its last results come too late: somebody else goes on from what is on disk."""
    gates = Gates()
    act = FakeTool("act", gates)
    async with talk(tmp_path, [answer(call("act", gate="a"))], says("late"), tools=[act]) as one:
        session = one.conversation.session.id
        async with anyio.create_task_group() as group:
            group.start_soon(one.say, "hello")
            await gates.reached("a")
            await one.store.leases.release(session, 1)
            await one.store.leases.hold(session, ELSEWHERE, LEASE)
            before = len(await one.rows())
            gates.open("a")
        assert len(await one.rows()) == before
    assert one.ear.ended.outcome is Outcome.FAILED
    assert one.ear.ended.code == "lease_lost"


async def test_two_runners_of_one_process_keep_each_other_out(tmp_path: Path) -> None:
    async with talk(tmp_path, HANGS) as one:
        session = one.conversation.session.id
        other = Runner(one.store, FakeClock(), one.planner, half_a_cent, "default")
        async with anyio.create_task_group() as group:
            group.start_soon(one.say, "hello")
            await one.until_it_hangs()
            with pytest.raises(SessionBusy):
                async with other.holding(session):
                    pass
            one.conversation.interrupt()
