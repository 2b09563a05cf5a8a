"""One task renews all leases while there are turns."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hermes.ports.ownership import WORKER_TTL, Leases
from hermes.ports.store import Fence
from hermes.schema.errors import SessionBusy
from hermes.session.lease import RENEWALS, Lease, LeaseRenewer
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store
from support.conversation import HANGING_SCRIPT, PatchedStore, conversation_harness
from support.polling import pause

RENEW_INTERVAL = WORKER_TTL.total_seconds() / RENEWALS

ELSEWHERE = "elsewhere/boot/7/1"
ABOUT: ContextVar[str] = ContextVar("ABOUT", default="nobody")


class FailingClock(FakeClock):
    """Fails on the first sleep."""

    async def sleep(self, seconds: float) -> None:
        if not self.slept:
            self.slept.append(seconds)
            raise RuntimeError("no such time")
        await super().sleep(seconds)


class NotingLeases:
    """Real leases that record the log context of the renewing task."""

    def __init__(self, inner: Leases) -> None:
        self._inner = inner
        self.about: list[str] = []

    async def hold(self, session: str, holder: str, ttl: timedelta) -> int:
        return await self._inner.hold(session, holder, ttl)

    async def renew(self, session: str, generation: int, ttl: timedelta) -> bool:
        self.about.append(ABOUT.get())
        return await self._inner.renew(session, generation, ttl)


async def asleep(clock: FakeClock, count: int) -> None:
    with anyio.fail_after(60):
        while clock.sleepers != count:
            await pause()


async def beat(clock: FakeClock) -> None:
    """Let one renewal interval pass, once the renewing task sleeps again."""
    await asleep(clock, 1)
    await clock.advance(RENEW_INTERVAL)


async def _hang(lease_renewer: LeaseRenewer, lease: Lease) -> None:
    with lease_renewer.renewing(lease):
        await anyio.sleep_forever()


@asynccontextmanager
async def held_lease(store: SqliteStore, **parts: object) -> AsyncGenerator[Lease]:
    lease = Lease(PatchedStore(store, **parts), "we/boot/1/1", Fence("s1", 0))  # type: ignore[arg-type]
    await lease.acquire()
    yield lease


async def test_renewal_logs_outside_any_turn(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_memory_store(clock) as store:
        lease_renewer, leases = LeaseRenewer(clock, WORKER_TTL), NotingLeases(store.leases)
        async with held_lease(store, leases=leases) as lease:
            ABOUT.set("the first turn")
            with lease_renewer.renewing(lease):
                await beat(clock)
        await lease_renewer.task.stop()
    assert leases.about == ["nobody"]


async def test_failed_renewal_task_is_logged_and_restarted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FailingClock()
    async with open_memory_store(clock) as store, held_lease(store) as lease:
        lease_renewer = LeaseRenewer(clock, WORKER_TTL)
        with lease_renewer.renewing(lease):
            await asleep(clock, 1)
            for _ in range(4):
                await clock.advance(RENEW_INTERVAL)
            with pytest.raises(SessionBusy):
                await store.leases.hold(lease.fence.session, ELSEWHERE, WORKER_TTL)
        await lease_renewer.task.stop()
    assert "no such time" in caplog.text


async def test_failed_renewal_task_without_turns_is_not_restarted(tmp_path: Path) -> None:
    clock = FailingClock()
    async with open_memory_store(clock) as store, held_lease(store) as lease:
        with LeaseRenewer(clock, WORKER_TTL).renewing(lease):
            pass
        await anyio.wait_all_tasks_blocked()
        assert clock.sleepers == 0


async def test_renewal_ends_with_its_owner() -> None:
    clock = FakeClock()
    async with conversation_harness(HANGING_SCRIPT, clock=clock) as harness:
        async with anyio.create_task_group() as group:
            group.start_soon(harness.submit, "hello")
            await harness.wait_until_hanging()
            await asleep(clock, 1)
            harness.conversation.interrupt()
        assert clock.sleepers == 1
        await harness.runner.aclose()
        assert clock.sleepers == 0
        await harness.runner.aclose()


async def test_many_turns_share_one_renewal_task(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_memory_store(clock) as store:
        lease_renewer = LeaseRenewer(clock, WORKER_TTL)
        leases = [Lease(store, "we/boot/1/1", Fence(f"s{number}", 0)) for number in range(3)]
        for lease in leases:
            await lease.acquire()
        lost = leases[1]
        async with anyio.create_task_group() as group:
            for lease in leases:
                group.start_soon(_hang, lease_renewer, lease)
            await beat(clock)
            assert clock.sleepers == 1
            await store.leases.release(lost.fence.session, lost.fence.generation)
            await store.leases.hold(lost.fence.session, ELSEWHERE, WORKER_TTL)
            for _ in range(4):
                await beat(clock)
            for lease in (leases[0], leases[2]):
                with pytest.raises(SessionBusy):
                    await store.leases.hold(lease.fence.session, ELSEWHERE, WORKER_TTL)
            assert [lease.lost for lease in leases] == [False, True, False]
            group.cancel_scope.cancel()
        await beat(clock)
        await anyio.wait_all_tasks_blocked()
        assert clock.sleepers == 0
