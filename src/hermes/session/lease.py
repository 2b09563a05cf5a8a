"""One runner's hold on one session: taken before the session is changed, given back once."""

import logging
from datetime import timedelta

import anyio

from hermes.kit.clock import Clock
from hermes.ports.store import Fence, Release, Store
from hermes.schema.errors import StoreError

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)
HEARTBEAT = 20.0


class Lease:
    """Not held until `take`, or until a turn was admitted under it and its generation is known."""

    def __init__(self, store: Store, session: str, holder: str, generation: int = 0) -> None:
        self._store = store
        self.session = session
        self.holder = holder
        self.generation = generation
        self.given_back = False
        self.lost = False

    @property
    def fence(self) -> Fence:
        return Fence(self.session, self.generation)

    @property
    def release(self) -> Release:
        """To be written with the last word of who holds it; `given_back` is to be set then."""
        return Release(self.session, self.generation)

    async def take(self) -> None:
        """Raises `SessionBusy`."""
        # A lease that was given while its taker left would keep others away until it lapses.
        with anyio.CancelScope(shield=True):
            self.generation = await self._store.leases.hold(self.session, self.holder, LEASE)

    async def give_back(self) -> None:
        if not self.generation or self.given_back:
            return
        with anyio.CancelScope(shield=True):
            await self._store.leases.release(self.session, self.generation)
        self.given_back = True

    async def renew(self) -> None:
        """It is `lost` when somebody else has the session now."""
        try:
            kept = await self._store.leases.renew(self.session, self.generation, LEASE)
        except StoreError as error:
            # Not knowing is no loss: whether it is ours still will show at the next beat.
            log.warning("the lease of session %s could not be renewed: %s", self.session, error)
            return
        self.lost = not (kept or self.given_back)

    async def beat(self, clock: Clock, scope: anyio.CancelScope) -> None:
        """Keep it for as long as this runs; when it is lost, the scope ends."""
        while not self.lost:
            await clock.sleep(HEARTBEAT)
            await self.renew()
        scope.cancel()
