"""One runner's hold on one session: taken before the session is changed, given back once."""

import asyncio
import logging
from contextvars import copy_context
from datetime import timedelta
from types import TracebackType

import anyio

from hermes.kit.clock import Clock
from hermes.ports.store import Fence, ReleaseLease, Store
from hermes.schema.errors import StoreError

log = logging.getLogger(__name__)

LEASE_TTL = timedelta(seconds=60)
RENEW_INTERVAL = 20.0


class Lease:
    """Not held until `take`, or until a turn was admitted under it and its generation is known."""

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
    def release(self) -> ReleaseLease:
        """To be written with the last word of who holds it; `given_back` is to be set then."""
        return ReleaseLease(self.session, self.generation)

    async def take(self) -> None:
        """Raises `SessionBusy`."""
        # A lease that was given while its taker left would keep others away until it lapses.
        with anyio.CancelScope(shield=True):
            self.generation = await self._store.leases.hold(self.session, self.holder, LEASE_TTL)

    async def give_back(self) -> None:
        if not self.generation or self.released:
            return
        with anyio.CancelScope(shield=True):
            await self._store.leases.release(self.session, self.generation)
        self.released = True

    async def renew(self) -> None:
        """It is `lost` when somebody else has the session now."""
        try:
            kept = await self._store.leases.renew(self.session, self.generation, LEASE_TTL)
        except StoreError as error:
            # Not knowing is no loss: whether it is ours still will show at the next beat.
            log.warning("the lease of session %s could not be renewed: %s", self.session, error)
            return
        self.lost = not (kept or self.released)


class _RenewedLease:
    """The block ends early when the lease is lost."""

    __slots__ = ("_lease", "_scope", "_turns")

    def __init__(self, turns: dict[Lease, anyio.CancelScope], lease: Lease) -> None:
        self._turns = turns
        self._lease = lease
        self._scope = anyio.CancelScope()

    def __enter__(self) -> None:
        self._scope.__enter__()
        self._turns[self._lease] = self._scope

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        del self._turns[self._lease]
        return self._scope.__exit__(kind, error, trace)


class LeaseRenewer:
    """Renews leases for as long as their turns go on: one task for all there are.

    It ends at the first beat that finds no turn: most turns are over long before, and one task
    serves those that follow each other. What it logs is about no turn in particular, so it lives
    in the context of whoever made it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns: dict[Lease, anyio.CancelScope] = {}
        self._task: asyncio.Task[None] | None = None
        self._context = copy_context()

    def renewing(self, lease: Lease) -> _RenewedLease:
        """For one turn; the block ends early when the lease is lost."""
        if self._task is None or self._task.done() or not _is_in_this_loop(self._task):
            self._start()
        return _RenewedLease(self._turns, lease)

    async def stop(self) -> None:
        """For the owner, whose turns are over."""
        task, self._task = self._task, None
        if task is not None and _is_in_this_loop(task):
            task.cancel()
            await asyncio.wait([task])

    def _start(self) -> None:
        # It belongs to all turns together, so none of them can have it in its group; a group of
        # the owner's would have to be open before the first turn, for a task that few need.
        work = self._renew_all()
        self._task = asyncio.create_task(work, context=self._context.copy())  # noqa: TID251 - as above
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        log.error("the task that renews leases broke", exc_info=error)
        if self._turns and task is self._task:
            # Turns are under way that may be longer than their leases.
            self._start()

    async def _renew_all(self) -> None:
        while True:
            await self._clock.sleep(RENEW_INTERVAL)
            if not self._turns:
                return
            await asyncio.gather(*map(self._renew, list(self._turns)))

    async def _renew(self, lease: Lease) -> None:
        try:
            await lease.renew()
        except Exception:
            # The other turns need their leases, whatever is wrong with this one.
            log.exception("the lease of session %s could not be renewed", lease.session)
        if lease.lost and lease in self._turns:
            self._turns[lease].cancel()


def _is_in_this_loop(task: asyncio.Task[None]) -> bool:
    """A loop that was closed may have left it behind."""
    return task.get_loop() is asyncio.get_running_loop()
