"""Own a session: its lease, renewed during turns, and the heartbeat of this worker."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import anyio
from msgspec import Struct, field

from hermes.kit.clock import Clock
from hermes.kit.tasks import SharedTask, background_tasks
from hermes.ports.ownership import Workers
from hermes.ports.store import Fence, Store
from hermes.schema.errors import StoreError

log = logging.getLogger(__name__)

RENEWALS = 3
"""Renewals of a lease within its lifetime."""


class Lease(Struct, eq=False):
    """The lease of a session; the turn that began with it, or released it, sets the fields, too."""

    _store: Store
    holder: str
    fence: Fence
    """The session, and the generation of the lease once it is held."""
    held: bool = False
    lost: bool = False

    async def acquire(self) -> None:
        """Raises `SessionBusy`."""
        # If cancelled halfway, an acquired lease would block others until it expires.
        with anyio.CancelScope(shield=True):
            session, ttl = self.fence.session, self._store.workers.ttl
            generation = await self._store.leases.hold(session, self.holder, ttl)
            self.fence, self.held = Fence(session, generation), True

    async def release(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._store.leases.release(self.fence.session, self.fence.generation)
        self.held = False

    async def renew(self) -> None:
        """Sets `lost` if another process has the session now."""
        session, generation = self.fence.session, self.fence.generation
        try:
            kept = await self._store.leases.renew(session, generation, self._store.workers.ttl)
        except StoreError as error:
            # A failed renewal does not mean that the lease is lost: the next one will tell.
            log.warning("the lease of session %s could not be renewed: %s", session, error)
            return
        self.lost = self.held and not kept


class LeaseRenewer(Struct, eq=False):
    """Renews the leases of all running turns in one task.

    The task ends at the first interval without a turn: most turns are shorter, and one task
    serves consecutive turns.
    """

    _clock: Clock
    _ttl: timedelta
    _turns: dict[Lease, anyio.CancelScope] = {}
    task: SharedTask = field(default_factory=SharedTask)

    @contextmanager
    def renewing(self, lease: Lease) -> Generator[None]:
        """Renew the lease during the block, which ends early if the lease is lost."""
        self.task.ensure_running(self._renew_all)
        with anyio.CancelScope() as scope:
            self._turns[lease] = scope
            try:
                yield
            finally:
                del self._turns[lease]

    async def _renew_all(self) -> None:
        while True:
            try:
                await self._clock.sleep(self._ttl.total_seconds() / RENEWALS)
                await asyncio.gather(*map(self._renew, list(self._turns)))
            except Exception:  # the task serves all turns: they must not outlast their leases
                log.exception("the lease renewal failed")
            if not self._turns:
                return

    async def _renew(self, lease: Lease) -> None:
        await lease.renew()
        if lease.lost and lease in self._turns:
            self._turns[lease].cancel()


HEARTBEATS_PER_TTL = 3
"""Heartbeats within the time after which a worker counts as dead."""


@asynccontextmanager
async def heartbeat(workers: Workers, clock: Clock) -> AsyncGenerator[None]:
    """Beat during the block; costs nothing until a claim has registered this worker."""
    async with background_tasks() as group:
        group.start_soon(_beat, workers, clock)
        yield


async def _beat(workers: Workers, clock: Clock) -> None:
    while True:
        await clock.sleep(workers.ttl.total_seconds() / HEARTBEATS_PER_TTL)
        try:
            in_time = await workers.beat()
        except StoreError as error:
            log.warning("the heartbeat could not be stored: %s", error)
            continue
        if not in_time:
            log.warning("the heartbeat was late: other processes may have taken over work of ours")
