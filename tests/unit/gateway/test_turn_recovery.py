"""Recovery of sessions that an earlier process left."""

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Raw, structs

from hermes.agent.answers import nudge
from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.messages import BusyMode, InboxMessage, inbox_item
from hermes.gateway.turn_recovery import INTERRUPTED_LONG_AGO, NEXT_STEP, RESUMED_TOO_OFTEN
from hermes.kit.retry import Backoff
from hermes.ports.store import AppendMessage, OpenSession, QueueItem
from hermes.schema.messages import Assistant, Stop, Text, User
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session, SessionFilter
from hermes.store.sqlite import open_store
from hermes.testing.channel import FakeFaultyChannel
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT
from support.gateway import (
    GATED_SCRIPT,
    NO_POLLING,
    SESSION_KEY,
    StolenLeaseRunner,
    gated_tool,
    gateway_harness,
    gateway_rules,
    start_gated_turn,
    wait_until,
)
from support.turns import assistant_message


async def test_draining_finishes_a_turn_and_starts_none(tmp_path: Path) -> None:
    gates, tool = gated_tool()
    mode = gateway_rules(BusyMode.QUEUE)
    async with gateway_harness(
        tmp_path, GATED_SCRIPT, answer_script("done", id="a9"), tools=[tool], rules=mode
    ) as harness:
        await start_gated_turn(harness, gates)
        await harness.channel.say("later")
        harness.gateway.close()
        await wait_until(lambda: harness.gateway.actors.draining)
        gates.open("a")
        await wait_until(lambda: not harness.gateway.actors.snapshot())
        assert await harness.texts() == ["work", "", "through a", "done"]
        assert await harness.open_rows() == ["fake:fake:2"]
        await harness.gateway.delivered.wait()
        await harness.wait_for_posts("done")
    async with gateway_harness(tmp_path, channel=FakeFaultyChannel(name="fake"), rules=mode) as two:
        await two.wait_for_posts("re: later")


async def test_interrupted_turn_resumes_after_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(tmp_path, HANGING_SCRIPT, clock=clock) as harness:
        await harness.channel.say("work")
        await wait_until(lambda: len(harness.model.requests) == 1)
        harness.gateway.close()
        await wait_until(lambda: harness.gateway.actors.draining)
        await clock.advance(60)
        await wait_until(lambda: not harness.gateway.actors.snapshot())
    assert harness.channel.texts_in("1") == []
    async with gateway_harness(tmp_path, answer_script("Finished.", id="a2"), clock=clock) as two:
        await two.wait_for_posts("Finished.")
        await two.wait_until_idle()
        assert await two.open_rows() == []
        work, note, finished = await two.texts()
    assert (work, finished) == ("work", "Finished.")
    assert "restarted" in note


def queue_items(rows: list[User]) -> list[QueueItem]:
    where = Address("fake", "1")
    messages = [InboxMessage(user=user, address=where) for user in rows]
    return [inbox_item(f"fake:{message.user.id}", SESSION_KEY, message) for message in messages]


async def test_unposted_answer_is_delivered_with_a_mark(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "hermes.db", clock) as store:
        question, waiting = User("m1", (Text("first"),)), User("m2", (Text("second"),))
        await store.commit(
            OpenSession(Session(id="s1", started_at=clock.now(), key=SESSION_KEY)),
            AppendMessage("s1", "r1", question, clock.now()),
            AppendMessage("s1", "r1", assistant_message("The answer."), clock.now()),
        )
        for item in queue_items([question, waiting]):
            await store.queues.put(item)
        await store.queues.claim("inbox", None, "me", timedelta(0), 10)
    async with gateway_harness(tmp_path, clock=clock) as harness:
        await harness.wait_for_posts("(recovered) The answer.", "re: second")
        await harness.wait_until_idle()
        assert await harness.open_rows() == []
    assert len(harness.model.requests) == 1


async def test_answer_is_not_recovered_after_losing_the_lease(tmp_path: Path) -> None:
    clock, question = FakeClock(), User("m1", (Text("first"),))
    async with open_store(tmp_path / "hermes.db", clock) as store:
        await store.commit(
            OpenSession(Session(id="s1", started_at=clock.now(), key=SESSION_KEY)),
            AppendMessage("s1", "r1", question, clock.now()),
            AppendMessage("s1", "r1", assistant_message("The answer."), clock.now()),
        )
        await store.queues.put(queue_items([question])[0])
        await store.queues.claim("inbox", None, "me", timedelta(0), 10)
    patient = structs.replace(NO_POLLING, actors=ActorRules(backoff=Backoff(77.0, 77.0, 0.0)))
    async with gateway_harness(
        tmp_path, clock=clock, runs=StolenLeaseRunner, rules=patient
    ) as harness:
        await wait_until(lambda: 77.0 in clock.slept or bool(harness.channel.texts_in("1")))
    assert harness.channel.texts_in("1") == []
    async with gateway_harness(tmp_path, clock=clock) as two:
        await two.wait_for_posts("(recovered) The answer.")


async def test_crashing_session_is_parked(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "hermes.db", clock) as store:
        question = User("m1", (Text("reboot"),))
        await store.commit(
            OpenSession(Session(id="s1", started_at=clock.now(), key=SESSION_KEY)),
            *(AppendMessage("s1", "r", one, clock.now()) for one in (question, *_notes(2))),
        )
        for item in queue_items([question]):
            await store.queues.put(item)
        await store.queues.claim("inbox", None, "me", timedelta(0), 10)
    async with gateway_harness(tmp_path, clock=clock) as harness:
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 1)
        await harness.wait_until_idle()
        (reply,) = harness.channel.texts_in("1")
        assert reply == RESUMED_TOO_OFTEN.format(times="3 times") + NEXT_STEP
        assert harness.model.requests == []
        (parked,) = await harness.store.queues.parked("inbox")
        assert parked.item.key == "fake:m1"
        await harness.channel.say("go on")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 2)
        answered = harness.channel.texts_in("1")[1]
        assert (answered[:10], answered[-5:]) == ("re: reboot", "go on")


@pytest.mark.parametrize(("hours", "goes_on"), [(0.9, True), (5, False)])
async def test_turn_interrupted_long_ago_is_not_resumed(
    tmp_path: Path, hours: float, goes_on: bool
) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "hermes.db", clock) as store:
        question = User("m1", (Text("clean up"),))
        await store.commit(
            OpenSession(Session(id="s1", started_at=clock.now(), key=SESSION_KEY)),
            AppendMessage("s1", "r", question, clock.now()),
        )
        for item in queue_items([question]):
            await store.queues.put(item)
        await store.queues.claim("inbox", None, "me", timedelta(0), 10)
    await clock.advance(hours * 3600)
    late = structs.replace(NO_POLLING, actors=ActorRules(fresh=3600.0))
    async with gateway_harness(
        tmp_path, answer_script("Done."), clock=clock, rules=late
    ) as harness:
        await harness.wait_for_posts(
            "Done." if goes_on else INTERRUPTED_LONG_AGO.format(age="5 hours") + NEXT_STEP
        )
        await harness.wait_until_idle()
        assert len(harness.model.requests) == int(goes_on)
        assert len(await harness.store.queues.parked("inbox")) == int(not goes_on)


def _notes(count: int) -> list[User]:
    return [nudge("resumed") for _ in range(count)]


async def test_cross_post_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, HANGING_SCRIPT) as harness:
        await harness.channel.say("what now?")
        await wait_until(lambda: len(harness.model.requests) == 1)
    async with open_store(tmp_path / "hermes.db", FakeClock()) as store:
        (found,) = await store.archive_for(OWNER).list(SessionFilter())
        cross_post = Assistant("b1", (Text("Weather: rain"),), Stop.END)
        await store.commit(AppendMessage(found.session.id, "", cross_post, FakeClock().now()))
    async with gateway_harness(tmp_path, answer_script("this", id="a9")) as two:
        await two.wait_for_posts("this")
        assert len(two.model.requests) == 1


async def test_undecodable_row_is_parked(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "hermes.db", clock) as store:
        await store.queues.put(
            QueueItem(key="x", queue="inbox", topic=SESSION_KEY, body=Raw(b'{"a":1}'))
        )
    async with gateway_harness(tmp_path, clock=clock) as harness:
        await harness.channel.say("hello")
        await harness.wait_for_posts("re: hello")
        (parked,) = await harness.store.queues.parked("inbox")
        assert parked.item.key == "x"
