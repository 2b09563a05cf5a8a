"""One session at work: what waits, what interrupts, what stops, and what a restart finds."""

from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from msgspec import Raw

from gateways import Lobby, key_of, lobby, until
from hermes.agent.answers import nudge
from hermes.gateway.actors import ActorLimits
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.letters import Busy, Letter, Welcome, letter_parcel
from hermes.gateway.runs import IDLE, ActorRules
from hermes.ports.channel import Inbound
from hermes.ports.store import Append, OpenSession, Parcel
from hermes.schema.errors import Unauthorized
from hermes.schema.messages import Assistant, Stop, Text, User
from hermes.schema.scope import OWNER, Address, Role
from hermes.schema.sessions import Session, SessionFilter
from hermes.session.lease import LEASE
from hermes.store.sqlite import open_store
from hermes.testing.channel import FakeChannel
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import says
from hermes.testing.world import Fault, RoughChannel
from talks import HANGS
from workbench import FakeTool, Gates, answer, call

pytestmark = pytest.mark.anyio

KEY = "agent:main:fake:dm:1"


def rules(busy: Busy, **more: float) -> GatewayRules:
    return GatewayRules(actors=ActorRules(busy=busy, **more), progress=False)


async def busy_with_a_tool(one: Lobby, gates: Gates, text: str = "work") -> None:
    await one.channel.say(text)
    await gates.reached("a")


def gated() -> tuple[Gates, FakeTool]:
    gates = Gates()
    return gates, FakeTool("wait", gates)


WAITS = [answer(call("wait", gate="a"))]


async def test_interrupt_ends_the_run_and_answers_the_new_message(tmp_path: Path) -> None:
    async with lobby(tmp_path, HANGS, rules=rules(Busy.INTERRUPT)) as one:
        await one.channel.say("first")
        await until(lambda: len(one.model.requests) == 1)
        await one.channel.say("second")
        await one.sees("Interrupted.", "re: first\n\nsecond")
        await one.calm()
        assert await one.texts() == ["first", "second", "re: first\n\nsecond"]
        assert await one.open_rows() == []


async def test_queue_answers_one_after_the_other(tmp_path: Path) -> None:
    gates, tool = gated()
    async with lobby(tmp_path, WAITS, says("done"), tools=[tool], rules=rules(Busy.QUEUE)) as one:
        await busy_with_a_tool(one, gates)
        await one.channel.say("second")
        await one.channel.say("third")
        gates.open("a")
        await one.sees("done", "re: second", "re: third")


async def test_collect_answers_all_that_came_in_one_turn(tmp_path: Path) -> None:
    gates, tool = gated()
    async with lobby(tmp_path, WAITS, says("done"), tools=[tool], rules=rules(Busy.COLLECT)) as one:
        await busy_with_a_tool(one, gates)
        await one.channel.say("second")
        await one.channel.say("third")
        gates.open("a")
        await one.sees("done", "re: second\n\nthird")
        await one.calm()
        assert await one.open_rows() == []


async def test_steer_reaches_the_running_turn(tmp_path: Path) -> None:
    gates, tool = gated()
    async with lobby(tmp_path, WAITS, tools=[tool], rules=rules(Busy.STEER)) as one:
        await busy_with_a_tool(one, gates)
        await one.channel.say("rather that")
        await until(lambda: _steering(one) == 1)
        gates.open("a")
        await one.sees("re: rather that")
        await one.calm()
        assert len(one.model.requests) == 2
        assert await one.open_rows() == []


def _steering(one: Lobby) -> int:
    running = one.gateway.actors._live[KEY].running
    return len(running.to_steer) if running else 0


async def test_a_steering_word_that_comes_too_late_is_a_turn_of_its_own(tmp_path: Path) -> None:
    async with lobby(tmp_path, rules=rules(Busy.STEER)) as one:
        await one.channel.say("/steer this way")
        await one.sees("re: this way")


async def test_slash_queue_and_slash_steer_beat_the_mode(tmp_path: Path) -> None:
    gates, tool = gated()
    mode = rules(Busy.INTERRUPT)
    async with lobby(tmp_path, WAITS, tools=[tool], rules=mode) as one:
        await busy_with_a_tool(one, gates)
        await one.channel.say("/queue afterwards")
        await one.channel.say("/steer rather that")
        await until(lambda: _steering(one) == 1)
        gates.open("a")
        await one.sees("Queued.", "Passed on.", "re: rather that", "re: afterwards")


async def test_a_burst_is_one_turn(tmp_path: Path) -> None:
    clock = FakeClock()
    async with lobby(tmp_path, rules=rules(Busy.INTERRUPT, debounce=1.0), clock=clock) as one:
        await one.channel.say("one")
        await until(lambda: clock.slept.count(1.0) == 1)
        await one.channel.say("two")
        await until(lambda: clock.slept.count(1.0) == 2)
        assert one.model.requests == []
        await clock.advance(1.0)
        await one.sees("re: one\n\ntwo")


@pytest.mark.parametrize("hang", ["model", "tool", "send"])
async def test_stop_acts_at_once(tmp_path: Path, hang: str) -> None:
    gates, tool = gated()
    script = WAITS if hang == "tool" else HANGS
    clock = FakeClock()
    channel = RoughChannel(*([Fault.HANGS] if hang == "send" else []))
    async with lobby(tmp_path, script, tools=[tool], channel=channel, clock=clock) as one:
        if hang == "send":
            await one.channel.say("/help")
            await until(lambda: channel.calls == 1)
        await one.channel.say("work")
        await until(lambda: len(one.model.requests) == 1)
        if hang == "tool":
            await gates.reached("a")
        await one.channel.say("/stop")
        await until(lambda: one.running() is None)
        await one.channel.say("next")
        if hang == "send":
            await until(lambda: len(one.model.requests) == 2)
            await clock.advance(60)
            await until(lambda: clock.sleepers > 0)
            await clock.advance(10)
            await until(lambda: len(one.channel.seen_in("1")) == 3)
            assert one.channel.seen_in("1")[0].startswith("(recovered) ")
        else:
            await until(lambda: len(one.channel.seen_in("1")) == 2)
        assert one.channel.seen_in("1")[-2] == "Stopped."
        assert one.channel.seen_in("1")[-1].endswith("next")


async def test_stop_sets_aside_what_waits_and_says_so(tmp_path: Path) -> None:
    async with lobby(tmp_path, HANGS, rules=rules(Busy.QUEUE)) as one:
        await one.channel.say("first")
        await until(lambda: len(one.model.requests) == 1)
        await one.channel.say("second")
        await one.channel.say("third")
        await one.channel.say("/stop")
        await until(lambda: len(one.channel.seen_in("1")) == 2)
        assert sorted(one.channel.seen_in("1")) == [
            "Set aside 2 waiting messages, too.",
            "Stopped.",
        ]
        await one.calm()
        assert await one.open_rows() == []
        await one.channel.say("fourth")
        await until(lambda: one.channel.seen_in("1")[-1] == "re: first\n\nfourth")


async def test_stop_without_a_run_changes_nothing(tmp_path: Path) -> None:
    async with lobby(tmp_path) as one:
        await one.channel.say("/stop")
        await one.sees("Nothing is running.")
        await one.channel.say("hello")
        await one.sees("Nothing is running.", "re: hello")


async def test_a_signal_for_another_run_changes_nothing(tmp_path: Path) -> None:
    async with lobby(tmp_path, says("one", id="a1"), HANGS) as one:
        await one.channel.say("first")
        await until(lambda: one.running() is not None)
        old = one.running()
        await one.sees("one")
        await one.calm()
        await one.channel.say("second")
        await until(lambda: len(one.model.requests) == 2)
        await one.channel.say(f"/stop {old}")
        await one.sees("one", "Nothing is running.")
        assert one.running() not in (None, old)
        stopped = await one.gateway.actors.stop(KEY, one.running())
        assert stopped.run is not None
        await one.sees("one", "Nothing is running.", "Stopped.")


async def test_a_turn_that_cannot_be_planned_says_why(tmp_path: Path) -> None:
    async with lobby(tmp_path) as one:
        one.planner.broken = "There is no such model."
        await one.channel.say("hello")
        await one.sees("There is no such model.")
        await one.calm()
        assert await one.open_rows() == []
        one.planner.broken = ""
        await one.channel.say("again")
        await one.sees("There is no such model.", "re: again")


async def test_a_failed_turn_says_why(tmp_path: Path) -> None:
    async with lobby(tmp_path, [Unauthorized("The key is refused.", hint="Get another.")]) as one:
        await one.channel.say("hello")
        await one.sees("The key is refused. Get another.")


async def test_silence_is_kept_but_not_delivered(tmp_path: Path) -> None:
    async with lobby(tmp_path, says("[SILENT]", id="a1")) as one:
        await one.channel.say("hello")
        await until(lambda: len(one.model.requests) == 1)
        await one.calm()
        await one.channel.say("more")
        await one.sees("re: more")
        assert "[SILENT]" in await one.texts()


async def test_a_session_held_by_another_process_is_waited_for(tmp_path: Path) -> None:
    clock = FakeClock()
    async with lobby(tmp_path, clock=clock) as one:
        await one.channel.say("first")
        await one.sees("re: first")
        await one.calm()
        session = await one.store.seen_by(OWNER).by_key(KEY)
        assert session is not None
        generation = await one.store.leases.hold(session.id, "elsewhere/boot/7/1", LEASE)
        await one.channel.say("second")
        await until(lambda: clock.sleepers > 0)
        assert len(one.model.requests) == 1
        await one.store.leases.release(session.id, generation)
        await clock.advance(3)
        await one.sees("re: first", "re: second")


async def test_only_so_many_turns_at_once(tmp_path: Path) -> None:
    gates, tool = gated()
    limited = GatewayRules(limits=ActorLimits(live=3, turns=2), progress=False)
    many = [answer(call("wait", gate="a")) for _ in range(6)]
    async with lobby(tmp_path, *([one] for one in many), tools=[tool], rules=limited) as one:
        for chat in range(6):
            await one.channel.say("go", chat=str(chat))
        await until(lambda: tool.now == 2)
        await until(lambda: one.gateway.actors.live == 3)
        assert len(one.model.requests) == 2
        gates.open("a")
        await until(lambda: len(one.channel.posts) == 6)
    assert tool.most == 2


async def test_draining_lets_a_turn_end_and_begins_none(tmp_path: Path) -> None:
    gates, tool = gated()
    mode = rules(Busy.QUEUE)
    async with lobby(tmp_path, WAITS, says("done", id="a9"), tools=[tool], rules=mode) as one:
        await busy_with_a_tool(one, gates)
        await one.channel.say("later")
        one.gateway.close()
        await until(lambda: one.gateway.actors.draining)
        gates.open("a")
        await until(lambda: not one.gateway.actors.snapshot())
        assert await one.texts() == ["work", "", "through a", "done"]
        assert await one.open_rows() == ["fake:fake:2"]
        await one.gateway.delivered.wait()
        await one.sees("done")
    async with lobby(tmp_path, channel=RoughChannel(name="fake"), rules=mode) as two:
        await two.sees("re: later")


async def test_a_turn_cut_off_by_the_end_goes_on_after_the_start(tmp_path: Path) -> None:
    clock = FakeClock()
    async with lobby(tmp_path, HANGS, clock=clock) as one:
        await one.channel.say("work")
        await until(lambda: len(one.model.requests) == 1)
        one.gateway.close()
        await until(lambda: one.gateway.actors.draining)
        await clock.advance(60)
        await until(lambda: not one.gateway.actors.snapshot())
    assert one.channel.seen_in("1") == []
    async with lobby(tmp_path, says("Finished.", id="a2"), clock=clock) as two:
        await two.sees("Finished.")
        await two.calm()
        assert await two.open_rows() == []
        work, note, finished = await two.texts()
    assert (work, finished) == ("work", "Finished.")
    assert "restarted" in note


def crashed(rows: list[User]) -> list[Parcel]:
    where = Address("fake", "1")
    letters = [Letter(user=user, address=where) for user in rows]
    return [letter_parcel(f"fake:{letter.user.id}", KEY, letter) for letter in letters]


async def test_an_answer_that_was_never_posted_is_delivered_with_a_mark(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "state.db", clock) as store:
        asked, waiting = User("m1", (Text("first"),)), User("m2", (Text("second"),))
        await store.commit(
            OpenSession(Session(id="s1", started_at=clock.now(), key=KEY)),
            Append("s1", "r1", asked, clock.now()),
            Append("s1", "r1", answer("The answer."), clock.now()),
        )
        for parcel in crashed([asked, waiting]):
            await store.lanes.put(parcel)
        await store.lanes.claim("inbox", None, "me", timedelta(0), 10)
    async with lobby(tmp_path, clock=clock) as one:
        await one.sees("(recovered) The answer.", "re: second")
        await one.calm()
        assert await one.open_rows() == []
    assert len(one.model.requests) == 1


async def test_a_session_that_takes_the_program_down_is_set_aside(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "state.db", clock) as store:
        asked = User("m1", (Text("reboot"),))
        await store.commit(
            OpenSession(Session(id="s1", started_at=clock.now(), key=KEY)),
            *(Append("s1", "r", one, clock.now()) for one in (asked, *_notes(2))),
        )
        for parcel in crashed([asked]):
            await store.lanes.put(parcel)
        await store.lanes.claim("inbox", None, "me", timedelta(0), 10)
    async with lobby(tmp_path, clock=clock) as one:
        await until(lambda: len(one.channel.seen_in("1")) == 1)
        await one.calm()
        assert "set aside" in one.channel.seen_in("1")[0]
        assert one.model.requests == []
        (parked,) = await one.store.lanes.parked("inbox")
        assert parked.parcel.key == "fake:m1"
        await one.channel.say("hello")
        await until(lambda: len(one.channel.seen_in("1")) == 2)


def _notes(count: int) -> list[User]:
    return [nudge("resumed") for _ in range(count)]


async def test_a_row_that_cannot_be_read_is_parked(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "state.db", clock) as store:
        await store.lanes.put(Parcel(key="x", lane="inbox", topic=KEY, body=Raw(b'{"a":1}')))
    async with lobby(tmp_path, clock=clock) as one:
        await one.channel.say("hello")
        await one.sees("re: hello")
        (parked,) = await one.store.lanes.parked("inbox")
        assert parked.parcel.key == "x"


async def test_stop_reaches_what_waits_for_its_turn(tmp_path: Path) -> None:
    limited = GatewayRules(limits=ActorLimits(turns=1), progress=False)
    async with lobby(tmp_path, HANGS, rules=limited) as one:
        await one.channel.say("long", chat="2")
        await until(lambda: len(one.model.requests) == 1)
        await one.channel.say("waits")
        await until(lambda: one.gateway.actors.activity(KEY).waiting == 1)
        await one.channel.say("/stop")
        await one.sees("Stopped. Set aside 1 waiting message.")
        await one.channel.say("/stop", chat="2")
        await one.calm()
        await one.channel.say("now")
        await one.sees("Stopped. Set aside 1 waiting message.", "re: now")


async def by_sender(inbound: Inbound) -> Welcome:
    """A thread in which an owner and a guest share one session."""
    role = Role.OWNER if inbound.sender == "me" else Role.GUEST
    return Welcome(key=key_of(inbound), principal=inbound.sender, role=role)


@pytest.mark.parametrize("mode", [Busy.STEER, Busy.INTERRUPT])
async def test_nobody_speaks_into_somebody_elses_run(tmp_path: Path, mode: Busy) -> None:
    gates, tool = gated()
    async with lobby(
        tmp_path, WAITS, says("done", id="a9"), tools=[tool], rules=rules(mode), door=by_sender
    ) as one:
        await one.channel.say("work", sender="me")
        await gates.reached("a")
        await one.channel.say("delete everything", sender="eve")
        await until(lambda: len(one.channel.acknowledged) == 2)
        gates.open("a")
        await one.sees("done", "re: delete everything")
        assert [scope.role for scope in one.planner.scopes] == [Role.OWNER, Role.GUEST]
        assert await one.texts() == [
            *("work", "", "through a", "done"),
            *("delete everything", "re: delete everything"),
        ]


async def test_what_was_stopped_before_it_began_does_not_begin(tmp_path: Path) -> None:
    held, asked = anyio.Event(), anyio.Event()

    async def slowly(letter: Letter) -> str:
        asked.set()
        await held.wait()
        return ""

    async with lobby(tmp_path, refusal=slowly) as one:
        await one.channel.say("work")
        await asked.wait()
        await one.channel.say("/stop")
        await one.sees("Stopped. Set aside 1 waiting message.")
        held.set()
        await one.calm()
        assert one.model.requests == []
        assert one.channel.seen_in("1") == ["Stopped. Set aside 1 waiting message."]


async def test_a_long_queue_does_not_make_deaf(tmp_path: Path) -> None:
    gates, tool = gated()
    mode = rules(Busy.STEER)
    async with lobby(tmp_path, WAITS, says("done", id="a9"), tools=[tool], rules=mode) as one:
        channel, address = one.channel, Address("fake", "1")
        for number in range(120):
            parcel = letter_parcel(
                f"fake:early{number}",
                "agent:main:fake:dm:1",
                Letter(user=User(f"e{number}", (Text(f"{number}"),)), address=address),
            )
            await one.store.lanes.put(parcel)
        await channel.say("/queue last")
        await gates.reached("a")
        await channel.say("one more")
        run = one.gateway.actors.activity("agent:main:fake:dm:1")
        assert run.run is not None
        gates.open("a")
        await until(lambda: "done" in channel.seen_in("1"))
        assert "one more" in await one.texts()
        await one.calm()


async def test_what_was_brought_from_elsewhere_is_no_answer(tmp_path: Path) -> None:
    async with lobby(tmp_path, HANGS) as one:
        await one.channel.say("what now?")
        await until(lambda: len(one.model.requests) == 1)
    async with open_store(tmp_path / "state.db", FakeClock()) as store:
        (found,) = await store.seen_by(OWNER).list(SessionFilter())
        brought = Assistant("b1", (Text("Weather: rain"),), Stop.END)
        await store.commit(Append(found.session.id, "", brought, FakeClock().now()))
    async with lobby(tmp_path, says("this", id="a9")) as two:
        await two.sees("this")
        assert len(two.model.requests) == 1


async def gated_by_sender(inbound: Inbound) -> Welcome:
    """Everybody shares one session, and each may stop only what they have asked."""
    stop = frozenset({"stop"})
    return Welcome(
        key=key_of(inbound), principal=inbound.sender, role=Role.MEMBER, commands=stop,
        stops_others=False,
    )  # fmt: skip


async def test_a_member_stops_their_own_run_and_nobody_elses(tmp_path: Path) -> None:
    async with lobby(tmp_path, HANGS, HANGS, door=gated_by_sender) as one:
        await one.channel.say("work", sender="ann")
        await until(lambda: one.running() is not None)
        await one.channel.say("me too", sender="bob")
        await until(lambda: one.gateway.actors.activity(KEY).waiting == 1)
        foreign = "Nothing that you have asked is going on here."
        await one.channel.say("/stop", sender="eve")
        await one.sees(foreign)
        first = one.running()
        assert first is not None
        await one.channel.say("/stop", sender="ann")
        await one.sees(foreign, "Stopped.")
        await until(lambda: one.running() not in {None, first})
        await one.channel.say("/stop", sender="ann")
        await one.sees(foreign, "Stopped.", foreign)
        await one.channel.say("/stop", sender="bob")
        await one.sees(foreign, "Stopped.", foreign, "Stopped.")
        await one.calm()


async def test_a_turn_in_which_nothing_happens_is_ended_after_a_warning(tmp_path: Path) -> None:
    clock, (gates, tool) = FakeClock(), gated()
    idle = rules(Busy.QUEUE, idle=1800.0, idle_warning=900.0)
    async with lobby(
        tmp_path, WAITS, HANGS, tools=[tool], clock=clock, rules=idle, channel=FakeChannel()
    ) as one:
        await busy_with_a_tool(one, gates)
        await clock.advance(500)
        gates.open("a")
        await until(lambda: len(one.model.requests) == 2)
        await anyio.wait_all_tasks_blocked()
        await clock.advance(899)
        assert one.channel.seen_in("1") == []
        await clock.advance(1)
        warning = (
            "Nothing has happened in this turn for 15 minutes. If nothing does for 15 minutes "
            "more, I end it; /stop ends it now."
        )
        await one.sees(warning)
        await clock.advance(899)
        assert one.running() is not None
        await clock.advance(1)
        await one.sees(warning, IDLE)
        await one.calm()
        assert await one.open_rows() == []
        await one.channel.say("again")
        await until(lambda: one.channel.seen_in("1")[-1].startswith("re: "))
