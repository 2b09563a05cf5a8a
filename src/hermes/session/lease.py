"""Hold a session's lease while it is being changed, and renew it during turns."""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import copy_context
from datetime import timedelta

import anyio

from hermes.kit.clock import Clock
from hermes.ports.store import Fence, ReleaseLease, Store
from hermes.schema.errors import StoreError

log = logging.getLogger(__name__)

RENEWALS = 3
"""How often a lease is renewed within the time it lasts."""


class Lease:
    """Held once acquired, or once a turn that began under it has set the generation."""

    def __init__(self, store: Store, session: str, holder: str, generation: int = 0) -> None:
        self._store = store
        self.session = session
        self.holder = holder
        self.generation = generation
        self.released = False
        self.lost = False

    @property
    def fence(self) -> Fence:
        return Fence(self.session, self.generation)

    @property
    def release_write(self) -> ReleaseLease:
        """Committed with the last write of the holder; set `released` then."""
        return ReleaseLease(self.session, self.generation)

    async def acquire(self) -> None:
        """Raises `SessionBusy`."""
        # If cancelled halfway, an acquired lease would block others until it expires.
        with anyio.CancelScope(shield=True):
            self.generation = await self._store.leases.hold(
                self.session, self.holder, self._store.workers.ttl
            )

    async def release_now(self) -> None:
        if not self.generation or self.released:
            return
        with anyio.CancelScope(shield=True):
            await self._store.leases.release(self.session, self.generation)
        self.released = True

    async def renew(self) -> None:
        """Sets `lost` if another process has the session now."""
        try:
            kept = await self._store.leases.renew(
                self.session, self.generation, self._store.workers.ttl
            )
        except StoreError as error:
            # Unknown does not mean lost: the next renewal will show.
            log.warning("the lease of session %s could not be renewed: %s", self.session, error)
            return
        self.lost = not (kept or self.released)


class LeaseRenewer:
    """Renews the leases of all running turns in one task.

    The task ends at the first interval without a turn: most turns are shorter, and one task
    serves consecutive turns. It logs for no turn in particular, so it runs in the context in
    which the renewer was created.
    """

    def __init__(self, clock: Clock, ttl: timedelta) -> None:
        self._clock = clock
        self._interval = ttl.total_seconds() / RENEWALS
        self._turns: dict[Lease, anyio.CancelScope] = {}
        self._task: asyncio.Task[None] | None = None
        self._context = copy_context()

    @contextmanager
    def renewing(self, lease: Lease) -> Generator[None]:
        """Renew the lease during the block, which ends early if the lease is lost."""
        if self._task is None or self._task.done() or not _is_in_this_loop(self._task):
            self._start()
        with anyio.CancelScope() as scope:
            self._turns[lease] = scope
            try:
                yield
            finally:
                del self._turns[lease]

    async def stop(self) -> None:
        """Stop the task once all turns are over."""
        task, self._task = self._task, None
        if task is not None and _is_in_this_loop(task):
            task.cancel()
            await asyncio.wait([task])

    def _start(self) -> None:
        # The task belongs to all turns, so it cannot be in the task group of one. A group of the
        # owner would have to be open before the first turn, for a task that is rarely needed.
        renewals = self._renew_all()
        self._task = asyncio.create_task(renewals, context=self._context.copy())  # noqa: TID251 - as above
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        log.error("the lease renewal task failed", exc_info=error)
        if self._turns and task is self._task:
            # Running turns may outlast their leases.
            self._start()

    async def _renew_all(self) -> None:
        while True:
            await self._clock.sleep(self._interval)
            if not self._turns:
                return
            await asyncio.gather(*map(self._renew, list(self._turns)))

    async def _renew(self, lease: Lease) -> None:
        await lease.renew()
        if lease.lost and lease in self._turns:
            self._turns[lease].cancel()


def _is_in_this_loop(task: asyncio.Task[None]) -> bool:
    """False for a task left behind by a closed event loop."""
    return task.get_loop() is asyncio.get_running_loop()
