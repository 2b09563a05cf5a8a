"""Who works on what: workers with a heartbeat, their claims, and the leases of sessions."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

WORKER_TTL = timedelta(seconds=60)
"""A worker without a heartbeat for this time counts as dead."""


class Claim(Struct, frozen=True):
    """What this worker alone may do; the generation is never given twice."""

    name: str
    generation: int


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A process that works on the store.

    `silent` is the time since its last heartbeat, `claims` what it alone may do, `sessions` how
    many it holds.
    """

    id: str
    host: str
    pid: int
    started_at: datetime
    silent: timedelta
    claims: tuple[str, ...] = ()
    sessions: int = 0


class Leases(Protocol):
    """One runner per session; the generation fences off the writes of an older one."""

    async def hold(self, session: str, holder: str, ttl: timedelta) -> int:
        """Return the generation. Raises `SessionBusy` while another live holder has the lease."""
        ...

    async def renew(self, session: str, generation: int, ttl: timedelta) -> bool:
        """False if the lease was lost."""
        ...

    async def release(self, session: str, generation: int) -> None: ...

    async def held(self, session: str) -> bool:
        """Whether a holder that may be alive has the lease."""
        ...

    async def holders(self) -> Mapping[str, str]:
        """The sessions that are held, with their holders."""
        ...


class Workers(Protocol):
    """The processes that work on this store. A worker is alive while it sends heartbeats.

    Times are those of the store's own clock, which all its workers share.
    """

    @property
    def own(self) -> str:
        """The id of this process; whatever it claims names it."""
        ...

    @property
    def ttl(self) -> timedelta:
        """A worker without a heartbeat for this time is dead."""
        ...

    async def register(self) -> None:
        """Make this worker known; its first claim does so by itself."""
        ...

    async def beat(self) -> bool:
        """Renew this worker if it is registered, and forget those that are dead.

        False if it had expired itself, so that others may have taken over its claims.
        """
        ...

    async def alive(self, holder: str) -> bool:
        """Whether the worker of this holder is alive."""
        ...

    async def list(self) -> Sequence[WorkerInfo]:
        """The workers that are alive, oldest first."""
        ...

    async def forget(self, worker: str) -> None:
        """Remove a worker; what it holds is free."""
        ...

    async def claim(self, name: str) -> Claim | str:
        """Claim a name for as long as this worker lives, or return the worker that has it."""
        ...

    async def holds(self, claim: Claim) -> bool: ...

    async def release(self, claim: Claim) -> None: ...
