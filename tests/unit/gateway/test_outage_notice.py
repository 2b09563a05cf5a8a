"""While the store fails, each chat is notified once and its message answered later."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio
import pytest

from hermes.gateway.notices import (
    DATABASE_LOCKED,
    DISK_FULL,
    REPEAT_AFTER,
    SLOW_STORE_SECONDS,
    STORE_BROKEN,
    OutageNotices,
)
from hermes.gateway.rate_limiter import RateLimiter
from hermes.kit.tasks import BackgroundTasks
from hermes.ports.model import ModelRequest
from hermes.schema.errors import LeaseLost, SessionBusy, StoreError, StoreFull, StoreLocked
from hermes.schema.scope import Address
from hermes.testing.channel import FakeFaultyChannel
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import ScriptStep, answer_script
from support.faulty_disk import DiskFailure, faulty_disk
from support.gateway import gateway_harness, make_inbound, wait_until

HERE = Address("fake", "1")
THERE = Address("fake", "2")


class NoticeHarness:
    """OutageNotices with one channel, and what its chats receive."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.channel = FakeFaultyChannel()
        pacers = {"fake": RateLimiter(self.clock, self.channel.caps)}
        self.background = BackgroundTasks()
        self.troubles = OutageNotices(
            clock=self.clock,
            channels={"fake": self.channel},
            rate_limiters=pacers,
            background=self.background,
        )

    async def wait_for_texts(self, *texts: str, chat: str = "1") -> None:
        await wait_until(lambda: self.channel.texts_in(chat) == list(texts))


@pytest.fixture
async def notices() -> AsyncGenerator[NoticeHarness]:
    one = NoticeHarness()
    async with anyio.create_task_group() as group:
        group.start_soon(one.background.run)
        group.start_soon(one.troubles.run)
        await anyio.wait_all_tasks_blocked()
        yield one
        group.cancel_scope.cancel()


async def test_each_chat_is_notified_once(notices: NoticeHarness) -> None:
    for _ in range(3):
        notices.troubles.notify(HERE, StoreFull("full"))
        notices.troubles.notify(THERE, StoreLocked("locked"))
        notices.troubles.notify(Address("gone", "1"), StoreError("no such channel"))
    await notices.wait_for_texts(DISK_FULL)
    await notices.wait_for_texts(DATABASE_LOCKED, chat="2")


async def test_new_outage_is_notified_again(notices: NoticeHarness) -> None:
    notices.troubles.notify(HERE, StoreFull("full"))
    await notices.wait_for_texts(DISK_FULL)
    notices.troubles.clear(HERE)
    notices.troubles.notify(HERE, StoreError("broken"))
    await notices.wait_for_texts(DISK_FULL, STORE_BROKEN)
    await notices.clock.advance(REPEAT_AFTER)
    notices.troubles.notify(HERE, StoreFull("full"))
    await notices.wait_for_texts(DISK_FULL, STORE_BROKEN, DISK_FULL)


async def test_session_errors_are_not_notified(notices: NoticeHarness) -> None:
    notices.troubles.notify(HERE, SessionBusy("busy"))
    notices.troubles.notify(HERE, LeaseLost("lost"))
    notices.troubles.notify(THERE, StoreFull("full"))
    await notices.wait_for_texts(DISK_FULL, chat="2")
    assert notices.channel.texts_in("1") == []


async def test_slow_store_is_notified(notices: NoticeHarness) -> None:
    with notices.troubles.store_watch(HERE):
        await notices.clock.advance(SLOW_STORE_SECONDS / 2)
        assert notices.channel.texts_in("1") == []
        await notices.clock.advance(2 * SLOW_STORE_SECONDS)
        await notices.wait_for_texts(DATABASE_LOCKED)
        with pytest.raises(StoreLocked), notices.troubles.store_watch(HERE):
            raise StoreLocked("given up")
    with notices.troubles.store_watch(THERE):
        await notices.clock.advance(SLOW_STORE_SECONDS / 2)
    await notices.clock.advance(2 * SLOW_STORE_SECONDS)
    assert (notices.channel.texts_in("1"), notices.channel.texts_in("2")) == ([DATABASE_LOCKED], [])


async def test_full_disk_is_notified_once_and_all_is_answered_later(tmp_path: Path) -> None:
    with faulty_disk() as disk:
        async with gateway_harness(tmp_path) as harness:
            await harness.gateway.supervisor.wait_claimed("fake")
            disk.fail(DiskFailure.FULL, 1, 10**9)
            for _ in range(3):
                with pytest.raises(StoreFull):
                    await harness.channel.type(make_inbound("hello", "u1"))
            await harness.wait_for_posts(DISK_FULL)
            disk.heal()
            await harness.channel.type(make_inbound("hello", "u1"))
            await harness.wait_for_posts(DISK_FULL, "re: hello")
            await harness.wait_until_idle()
            disk.fail(DiskFailure.FULL, 1, 10**9)
            with pytest.raises(StoreFull):
                await harness.channel.type(make_inbound("/status", "u2"))
            await harness.wait_for_posts(DISK_FULL, "re: hello", DISK_FULL)
            disk.heal()


async def test_stored_message_that_cannot_be_answered_is_notified(tmp_path: Path) -> None:
    with faulty_disk() as disk:

        def fills_the_disk(request: ModelRequest) -> Sequence[ScriptStep]:
            disk.fail(DiskFailure.FULL, 1, 10**9)
            return answer_script("nobody will read this")

        clock = FakeClock()
        async with gateway_harness(tmp_path, fills_the_disk, clock=clock) as harness:
            await harness.channel.type(make_inbound("hello", "u1"))
            await harness.wait_for_posts(DISK_FULL)
            for _ in range(3):
                await clock.advance(60.0)
            assert harness.channel.texts_in("1") == [DISK_FULL]
            disk.heal()
            await clock.advance(120.0)
            await wait_until(lambda: len(harness.channel.texts_in("1")) == 2)
            assert "hello" in harness.channel.texts_in("1")[1]
            await harness.wait_until_idle()
            assert await harness.open_rows() == []
