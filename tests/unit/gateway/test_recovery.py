"""What a start finds of the sessions that an earlier process left."""

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Raw, structs

from gateways import KEY, RARELY, WAITS, Robbed, busy_with_a_tool, gated, lobby, rules, until
from hermes.agent.answers import nudge
from hermes.gateway.letters import Busy, Letter, letter_parcel
from hermes.gateway.recovery import STALE, TAKEN_UP, WHAT_NOW
from hermes.gateway.runs import ActorRules
from hermes.kit.retry import Backoff
from hermes.ports.store import Append, OpenSession, Parcel
from hermes.schema.messages import Assistant, Stop, Text, User
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session, SessionFilter
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import says
from hermes.testing.world import RoughChannel
from talks import HANGS
from workbench import answer

pytestmark = pytest.mark.anyio


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


async def test_an_answer_is_not_recovered_by_who_lost_the_session_meanwhile(
    tmp_path: Path,
) -> None:
    clock, asked = FakeClock(), User("m1", (Text("first"),))
    async with open_store(tmp_path / "state.db", clock) as store:
        await store.commit(
            OpenSession(Session(id="s1", started_at=clock.now(), key=KEY)),
            Append("s1", "r1", asked, clock.now()),
            Append("s1", "r1", answer("The answer."), clock.now()),
        )
        await store.lanes.put(crashed([asked])[0])
        await store.lanes.claim("inbox", None, "me", timedelta(0), 10)
    patient = structs.replace(RARELY, actors=ActorRules(backoff=Backoff(77.0, 77.0, 0.0)))
    async with lobby(tmp_path, clock=clock, runs=Robbed, rules=patient) as one:
        await until(lambda: 77.0 in clock.slept or bool(one.channel.seen_in("1")))
    assert one.channel.seen_in("1") == []
    async with lobby(tmp_path, clock=clock) as two:
        await two.sees("(recovered) The answer.")


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
        (told,) = one.channel.seen_in("1")
        assert told == TAKEN_UP.format(times="3 times") + WHAT_NOW
        assert one.model.requests == []
        (parked,) = await one.store.lanes.parked("inbox")
        assert parked.parcel.key == "fake:m1"
        await one.channel.say("go on")
        await until(lambda: len(one.channel.seen_in("1")) == 2)
        answered = one.channel.seen_in("1")[1]
        assert (answered[:10], answered[-5:]) == ("re: reboot", "go on")


@pytest.mark.parametrize(("hours", "goes_on"), [(0.9, True), (5, False)])
async def test_a_turn_that_was_left_long_ago_is_not_taken_up_unasked(
    tmp_path: Path, hours: float, goes_on: bool
) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "state.db", clock) as store:
        asked = User("m1", (Text("clean up"),))
        await store.commit(
            OpenSession(Session(id="s1", started_at=clock.now(), key=KEY)),
            Append("s1", "r", asked, clock.now()),
        )
        for parcel in crashed([asked]):
            await store.lanes.put(parcel)
        await store.lanes.claim("inbox", None, "me", timedelta(0), 10)
    await clock.advance(hours * 3600)
    late = structs.replace(RARELY, actors=ActorRules(fresh=3600.0))
    async with lobby(tmp_path, says("Done."), clock=clock, rules=late) as one:
        await one.sees("Done." if goes_on else STALE.format(age="5 hours") + WHAT_NOW)
        await one.calm()
        assert len(one.model.requests) == int(goes_on)
        assert len(await one.store.lanes.parked("inbox")) == int(not goes_on)


def _notes(count: int) -> list[User]:
    return [nudge("resumed") for _ in range(count)]


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


async def test_a_row_that_cannot_be_read_is_parked(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "state.db", clock) as store:
        await store.lanes.put(Parcel(key="x", lane="inbox", topic=KEY, body=Raw(b'{"a":1}')))
    async with lobby(tmp_path, clock=clock) as one:
        await one.channel.say("hello")
        await one.sees("re: hello")
        (parked,) = await one.store.lanes.parked("inbox")
        assert parked.parcel.key == "x"
