"""While nothing can be stored, each chat hears of it once, and its message is answered later."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio
import pytest

from gateways import lobby, until, update
from hermes.gateway.pacer import Pacer
from hermes.gateway.troubles import AGAIN, BROKEN, FULL, LOCKED, SLOW, Troubles
from hermes.ports.model import Request
from hermes.schema.errors import LeaseLost, SessionBusy, StoreError, StoreFull, StoreLocked
from hermes.schema.scope import Address
from hermes.testing.bad_disk import Failure, bad_disk
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import Step, says
from hermes.testing.world import RoughChannel

pytestmark = pytest.mark.anyio

HERE = Address("fake", "1")
THERE = Address("fake", "2")


class Told:
    """Troubles with one channel, and what its chats hear."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.channel = RoughChannel()
        pacers = {"fake": Pacer(self.clock, self.channel.caps)}
        self.troubles = Troubles(self.clock, {"fake": self.channel}, pacers)

    async def hears(self, *texts: str, chat: str = "1") -> None:
        await until(lambda: self.channel.seen_in(chat) == list(texts))


@pytest.fixture
async def told() -> AsyncGenerator[Told]:
    one = Told()
    async with anyio.create_task_group() as group:
        group.start_soon(one.troubles.run)
        await anyio.wait_all_tasks_blocked()
        yield one
        group.cancel_scope.cancel()


async def test_each_chat_is_told_once(told: Told) -> None:
    for _ in range(3):
        told.troubles.tell(HERE, StoreFull("full"))
        told.troubles.tell(THERE, StoreLocked("locked"))
        told.troubles.tell(Address("gone", "1"), StoreError("no such channel"))
    await told.hears(FULL)
    await told.hears(LOCKED, chat="2")


async def test_another_trouble_is_told_again(told: Told) -> None:
    told.troubles.tell(HERE, StoreFull("full"))
    await told.hears(FULL)
    told.troubles.over(HERE)
    told.troubles.tell(HERE, StoreError("broken"))
    await told.hears(FULL, BROKEN)
    await told.clock.advance(AGAIN)
    told.troubles.tell(HERE, StoreFull("full"))
    await told.hears(FULL, BROKEN, FULL)


async def test_what_is_no_trouble_of_the_store_is_not_told(told: Told) -> None:
    told.troubles.tell(HERE, SessionBusy("busy"))
    told.troubles.tell(HERE, LeaseLost("lost"))
    told.troubles.tell(THERE, StoreFull("full"))
    await told.hears(FULL, chat="2")
    assert told.channel.seen_in("1") == []


async def test_who_waits_for_long_is_told_meanwhile(told: Told) -> None:
    with told.troubles.minding(HERE):
        await told.clock.advance(SLOW / 2)
        assert told.channel.seen_in("1") == []
        await told.clock.advance(2 * SLOW)
        await told.hears(LOCKED)
        with pytest.raises(StoreLocked), told.troubles.minding(HERE):
            raise StoreLocked("given up")
    with told.troubles.minding(THERE):
        await told.clock.advance(SLOW / 2)
    await told.clock.advance(2 * SLOW)
    assert (told.channel.seen_in("1"), told.channel.seen_in("2")) == ([LOCKED], [])


async def test_a_full_disk_is_told_once_and_everything_is_answered_later(tmp_path: Path) -> None:
    with bad_disk() as disk:
        async with lobby(tmp_path) as one:
            disk.fail(Failure.FULL, 1, 10**9)
            for _ in range(3):
                with pytest.raises(StoreFull):
                    await one.channel.type(update("hello", "u1"))
            await one.sees(FULL)
            disk.heal()
            await one.channel.type(update("hello", "u1"))
            await one.sees(FULL, "re: hello")
            await one.calm()
            disk.fail(Failure.FULL, 1, 10**9)
            with pytest.raises(StoreFull):
                await one.channel.type(update("/status", "u2"))
            await one.sees(FULL, "re: hello", FULL)
            disk.heal()


async def test_what_was_kept_and_cannot_be_answered_is_told_as_well(tmp_path: Path) -> None:
    with bad_disk() as disk:

        def fills_the_disk(request: Request) -> Sequence[Step]:
            disk.fail(Failure.FULL, 1, 10**9)
            return says("nobody will read this")

        clock = FakeClock()
        async with lobby(tmp_path, fills_the_disk, clock=clock) as one:
            await one.channel.type(update("hello", "u1"))
            await one.sees(FULL)
            for _ in range(3):
                await clock.advance(60.0)
            assert one.channel.seen_in("1") == [FULL]
            disk.heal()
            await clock.advance(120.0)
            await until(lambda: len(one.channel.seen_in("1")) == 2)
            assert "hello" in one.channel.seen_in("1")[1]
            await one.calm()
            assert await one.open_rows() == []
