"""A slash command that takes long keeps nobody waiting but what comes after it in its session."""

from pathlib import Path

import anyio
import pytest

from gateways import Lobby, lobby, rules, until, update
from hermes.gateway.chores import BEHIND, MOMENT
from hermes.gateway.desk import Order
from hermes.gateway.letters import COMMANDS, Busy, Letter, Welcome, letter_parcel
from hermes.ports.channel import Inbound
from hermes.schema.messages import Text, User
from hermes.schema.scope import Address, Role
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from talks import HANGS

pytestmark = pytest.mark.anyio

STOPPED = "“/dig deep” was stopped. It may be done in part."
DUG = "Dug."


class Digging:
    """A command that takes until somebody lets it end."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.times = 0

    async def __call__(self, order: Order) -> str:
        self.times += 1
        await self.done.wait()
        return DUG


async def dig(one: Lobby, clock: FakeClock, key: str = "c1") -> None:
    """It is typed, takes longer than a moment, and is acknowledged all the same."""
    async with anyio.create_task_group() as group:
        group.start_soon(one.channel.type, update("/dig deep", key))
        await until(lambda: MOMENT in clock.slept)
        await clock.advance(MOMENT)


async def test_a_command_that_takes_long_is_acknowledged(tmp_path: Path) -> None:
    clock, digging = FakeClock(), Digging()
    async with lobby(tmp_path, clock=clock, urgent={"dig": digging}) as one:
        await dig(one, clock)
        assert one.channel.acknowledged == ["c1"]
        await one.channel.say("hello", chat="2")
        await one.channel.say("/title Other", chat="3")
        await one.sees("re: hello", chat="2")
        await one.sees("This session is now called “Other”.", chat="3")
        digging.done.set()
        await one.sees(DUG)
        await one.channel.type(update("/dig deep", "c1"))
        await one.calm()
        assert digging.times == 1


async def test_what_comes_after_it_waits_behind_it_in_order(tmp_path: Path) -> None:
    clock, digging = FakeClock(), Digging()
    queue = rules(Busy.QUEUE)
    async with lobby(tmp_path, clock=clock, urgent={"dig": digging}, rules=queue) as one:
        await dig(one, clock)
        await one.channel.type(update("first", "u1"))
        async with anyio.create_task_group() as group:
            group.start_soon(one.channel.type, update("/queue second", "u2"))
            await until(lambda: clock.slept.count(MOMENT) == 2)
            await clock.advance(MOMENT)
        await one.channel.type(update("third", "u3"))
        await one.channel.type(update("first", "u1"))
        assert await one.open_rows(BEHIND) == ["fake:u1", "fake:u3"]
        assert one.model.requests == []
        digging.done.set()
        await until(lambda: "re: third" in one.channel.seen_in("1"))
        await one.calm()
        assert [text for text in one.channel.seen_in("1") if text != "Queued."] == [
            DUG, "re: first", "re: second", "re: third",
        ]  # fmt: skip
        assert await one.open_rows(BEHIND) == []


async def test_status_acts_at_once_and_tells_of_it(tmp_path: Path) -> None:
    clock, digging = FakeClock(), Digging()
    async with lobby(tmp_path, clock=clock, urgent={"dig": digging}) as one:
        await dig(one, clock)
        await one.channel.say("later")
        await clock.advance(40)
        await one.channel.say("/status")
        await until(lambda: len(one.channel.seen_in("1")) == 1)
        assert "running for 41 s, 1 message waiting" in one.channel.seen_in("1")[0]


async def test_stop_ends_it_and_sets_aside_what_waits(tmp_path: Path) -> None:
    clock, digging = FakeClock(), Digging()
    async with lobby(tmp_path, clock=clock, urgent={"dig": digging}) as one:
        await dig(one, clock)
        await one.channel.say("later")
        await one.channel.say("/stop")
        await until(lambda: len(one.channel.seen_in("1")) == 2)
        assert sorted(one.channel.seen_in("1")) == ["Set aside 1 waiting message, too.", STOPPED]
        assert await one.open_rows(COMMANDS) == []
        assert await one.open_rows(BEHIND) == []
        await one.channel.say("next")
        await until(lambda: one.channel.seen_in("1")[-1] == "re: next")
        assert one.gateway.intake.commands == 0


async def test_nobody_stops_somebody_elses(tmp_path: Path) -> None:
    async def door(inbound: Inbound) -> Welcome:
        return Welcome(
            key="agent:main:fake:dm:1", principal=inbound.sender, role=Role.MEMBER,
            commands=frozenset({"stop", "dig"}), stops_others=False,
        )  # fmt: skip

    clock, digging = FakeClock(), Digging()
    async with lobby(tmp_path, clock=clock, urgent={"dig": digging}, door=door) as one:
        await dig(one, clock)
        await one.channel.say("/stop", sender="eve")
        await one.sees("Nothing that you have asked is going on here.")
        await one.channel.say("/stop", sender="ann")
        await one.sees("Nothing that you have asked is going on here.", STOPPED)


async def test_stop_ends_the_turn_and_the_command(tmp_path: Path) -> None:
    clock, digging = FakeClock(), Digging()
    async with lobby(tmp_path, HANGS, clock=clock, urgent={"dig": digging}) as one:
        await one.channel.say("work")
        await until(lambda: len(one.model.requests) == 1)
        await dig(one, clock)
        await one.channel.say("/stop")
        await until(lambda: len(one.channel.seen_in("1")) == 2)
        assert sorted(one.channel.seen_in("1")) == ["Stopped.", STOPPED]


async def test_after_a_crash_it_is_told_of_and_what_waited_is_answered(tmp_path: Path) -> None:
    clock = FakeClock()
    async with lobby(tmp_path, clock=clock, urgent={"dig": Digging()}) as one:
        await dig(one, clock)
        await one.channel.say("later")
    async with lobby(tmp_path, clock=clock) as two:
        cut = "“/dig deep” was cut off and may not be done. Send it again if you still want it."
        await until(lambda: len(two.channel.seen_in("1")) == 2)
        assert sorted(two.channel.seen_in("1")) == ["re: later", cut]
        await two.calm()
        assert await two.open_rows(BEHIND) == []


async def test_a_command_whose_answer_could_not_be_written_is_told_of_later(tmp_path: Path) -> None:
    clock = FakeClock()
    key = "agent:main:fake:dm:1"
    letter = Letter(user=User("m1", (Text("/dig"),)), address=Address("fake", "1"))
    async with lobby(tmp_path, clock=clock) as one:
        async with open_store(tmp_path / "state.db", clock) as other:
            await other.lanes.put(letter_parcel("fake:c1", key, letter, COMMANDS))
        await until(lambda: one.gateway.supervisor.online("fake"))
        one.gateway.look_again()
        await one.sees(
            "“/dig” was cut off and may not be done. Send it again if you still want it."
        )


async def test_a_channel_that_is_cut_off_does_not_wait_for_it(tmp_path: Path) -> None:
    clock, digging = FakeClock(), Digging()
    async with lobby(tmp_path, clock=clock, urgent={"dig": digging}) as one:
        async with anyio.create_task_group() as group:
            group.start_soon(one.channel.type, update("/dig deep", "c1"))
            await until(lambda: digging.times == 1)
            group.cancel_scope.cancel()
        digging.done.set()
        await one.sees(DUG)
