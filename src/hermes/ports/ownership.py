"""Ownership of work: workers with a heartbeat, their claims, and the leases of sessions."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

WORKER_TTL = timedelta(seconds=60)
"""A worker without a heartbeat for this time counts as dead."""


class Claim(Struct, frozen=True):
    """Something that only this worker may do; each generation is used once."""

    name: str
    generation: int


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A process that works on the store.

    `silent` is the time since its last heartbeat, `claims` what it has claimed, `sessions` how many
    it holds.
    """

    id: str
    host: str
    pid: int
    started_at: datetime
    silent: timedelta
    claims: tuple[str, ...] = ()
    sessions: int = 0


class Leases(Protocol):
    """Ensures one runner per session; the generation rejects the writes of earlier ones."""

    async def hold(self, session: str, holder: str, ttl: timedelta) -> int:
        """Return the generation. Raises `SessionBusy` while another live holder has the lease."""
        ...

    async def renew(self, session: str, generation: int, ttl: timedelta) -> bool:
        """False if the lease was lost."""
        ...

    async def release(self, session: str, generation: int) -> None: ...

    async def held(self, session: str) -> bool:
        """Whether the lease is held by a holder that may be alive."""
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
        """The id of this process; its claims contain it."""
        ...

    @property
    def ttl(self) -> timedelta:
        """A worker without a heartbeat for this time is dead."""
        ...

    async def register(self) -> None:
        """Register this worker; otherwise its first claim does."""
        ...

    async def beat(self) -> bool:
        """Renew this worker if it is registered, and remove dead ones.

        Returns False if this one had expired, so that others may have taken over its claims.
        """
        ...

    async def alive(self, holder: str) -> bool:
        """Whether the worker of this holder is alive."""
        ...

    async def list(self) -> Sequence[WorkerInfo]:
        """The workers that are alive, oldest first."""
        ...

    async def forget(self, worker: str) -> None:
        """Remove a worker and free its claims."""
        ...

    async def claim(self, name: str) -> Claim | str:
        """Claim a name for as long as this worker lives, or return the worker that has it."""
        ...

    async def holds(self, claim: Claim) -> bool: ...

    async def release(self, claim: Claim) -> None: ...
