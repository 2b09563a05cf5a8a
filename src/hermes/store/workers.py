"""Ownership in the store: workers with a heartbeat, leases of sessions, and named claims.

The clock of a SQLite store is the machine's monotonic clock: a file in WAL mode is shared by
processes of one machine only, they all read the same clock, and no one can set it. A time far from
the current one was written before a reboot.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from hermes.kit.clock import Clock
from hermes.kit.ids import (
    is_surely_dead,
    names_worker,
    new_worker_id,
    runs_here,
    worker_of,
)
from hermes.ports.ownership import WORKER_TTL, Claim, WorkerInfo
from hermes.ports.store import Fence
from hermes.schema.errors import LeaseLost, SessionBusy
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import (
    NumberRow,
    fetch_all,
    fetch_number,
    fetch_one,
    from_micros,
)

_LEASES = load_statements("leases")
MAX_LEASE = timedelta(minutes=10)
LONGEST = MAX_LEASE // timedelta(microseconds=1)
"""Microseconds that the longest lease lasts."""


class _HeldLease(Struct, array_like=True, frozen=True):
    holder: str
    until: int


class _SessionLease(Struct, array_like=True, frozen=True):
    session: str
    holder: str
    until: int


def lease_span(clock: Clock, ttl: timedelta) -> tuple[int, int]:
    """Now and the expiry, in microseconds of the monotonic clock."""
    now = round(clock.monotonic() * 1e6)
    return now, now + min(ttl, MAX_LEASE) // timedelta(microseconds=1)


class SqliteLeases(Struct):
    _engine: Engine
    _clock: Clock

    async def hold(self, session: str, holder: str, ttl: timedelta) -> int:
        span = lease_span(self._clock, ttl)
        acquire = partial(acquire_lease, session=session, holder=holder, span=span)
        return await self._engine.write(acquire, droppable=True)

    async def renew(self, session: str, generation: int, ttl: timedelta) -> bool:
        until = lease_span(self._clock, ttl)[1]
        values = {"session": session, "generation": generation, "until": until}
        return await self._engine.execute(_LEASES["renew"], values) > 0

    async def release(self, session: str, generation: int) -> None:
        await self._engine.write(lambda connection: release_lease(connection, session, generation))

    async def held(self, session: str) -> bool:
        now, _ = lease_span(self._clock, MAX_LEASE)
        held = await self._engine.fetch_first(
            _LEASES["held"],
            {"session": session},
            _HeldLease,
            lambda lease: _is_held_by_other(lease, "", now),
        )
        return held or False

    async def holders(self) -> Mapping[str, str]:
        now, _ = lease_span(self._clock, MAX_LEASE)
        rows = await self._engine.fetch(_LEASES["holders"], {}, _SessionLease, lambda row: row)
        return {
            row.session: row.holder
            for row in rows
            if _is_held_by_other(_HeldLease(row.holder, row.until), "", now)
        }


def acquire_lease(connection: Connection, session: str, holder: str, span: tuple[int, int]) -> int:
    """Return the generation. Raises `SessionBusy` while another live holder has the lease."""
    now, until = span
    values = {
        "session": session,
        "holder": holder,
        "until": until,
        "now": now,
        "latest": now + LONGEST,
        "gone": "",
    }
    # Most sessions are free, so the holder is only looked up when acquiring fails.
    acquired = fetch_one(connection.execute(_LEASES["hold"], values), NumberRow)
    if acquired is not None:
        return acquired.value
    held = fetch_one(connection.execute(_LEASES["held"], values), _HeldLease)
    if held is not None and _is_held_by_other(held, holder, now):
        raise _session_busy(session, held.holder)
    values["gone"] = "" if held is None else held.holder
    return fetch_number(connection.execute(_LEASES["hold"], values))


def release_lease(connection: Connection, session: str, generation: int) -> bool:
    """Return False if it was no longer held."""
    connection.execute(_LEASES["release"], {"session": session, "generation": generation})
    return connection.changes() > 0


def check_fence(connection: Connection, fence: Fence) -> None:
    """Accept an expired lease that was not taken over: no one else has written meanwhile."""
    values = {"session": fence.session, "generation": fence.generation}
    if not fetch_number(connection.execute(_LEASES["fenced"], values)):
        raise lease_lost(fence)


def lease_lost(fence: Fence) -> LeaseLost:
    return LeaseLost(
        f"This run no longer holds session {fence.session}; nothing was written.",
        hint="The session was taken over or deleted; check it, then try again.",
    )


def _is_held_by_other(held: _HeldLease, holder: str, now: int) -> bool:
    valid = now < held.until <= now + LONGEST
    return held.holder not in ("", holder) and valid and not is_surely_dead(held.holder)


def _session_busy(session: str, holder: str) -> SessionBusy:
    match holder.split("/"):
        case [host, _, pid, _, *_]:
            owner = f"process {pid} on {host}"
        case _:
            owner = holder
    return SessionBusy(
        f"Session {session} is being run by {owner}.",
        hint="Wait until its turn has ended, or start a new session.",
    )


R = TypeVar("R")

_WORKERS = load_statements("workers")


class _ClaimRow(Struct, array_like=True, frozen=True):
    worker: str
    generation: int


class _WorkerRow(Struct, array_like=True, frozen=True):
    id: str
    host: str
    pid: int
    started_at: int
    last_seen: int
    claims: str
    sessions: int

    def info(self, now: int) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=self.host,
            pid=self.pid,
            started_at=from_micros(self.started_at),
            silent=timedelta(microseconds=max(now - self.last_seen, 0)),
            claims=tuple(sorted(msgspec.json.decode(self.claims, type=list[str]))),
            sessions=self.sessions,
        )


class SqliteWorkers(Struct, eq=False):
    """Implements `hermes.ports.store.Workers`."""

    _engine: Engine
    _clock: Clock
    _started_at: int
    ttl: timedelta = WORKER_TTL
    own: str = field(default_factory=new_worker_id)
    _registered: bool = False

    async def write(self, work: Callable[[Connection], R], *, droppable: bool = False) -> R:
        """Write as this worker, which is registered in the transaction of its first claim."""

        if self._registered:
            return await self._engine.write(work, droppable=droppable)

        def write(connection: Connection) -> R:
            self._write_beat(connection)
            return work(connection)

        result = await self._engine.write(write, droppable=droppable)
        self._registered = True
        return result

    def is_alive(self, connection: Connection, holder: str) -> bool:
        """Judge by the heartbeat; the local process id is only a shortcut.

        Earlier versions had no heartbeat: their processes live while they run on this machine.
        """
        if not holder or is_surely_dead(holder):
            return False
        seen = fetch_one(connection.execute(_WORKERS["seen"], {"id": worker_of(holder)}), NumberRow)
        if seen is None:
            return not names_worker(holder) and runs_here(holder)
        return abs(self._now() - seen.value) < self.ttl // timedelta(microseconds=1)

    async def register(self) -> None:
        await self.write(lambda connection: None)

    async def beat(self) -> bool:
        def beat(connection: Connection) -> bool:
            in_time = self.is_alive(connection, self.own)
            self._write_beat(connection)
            workers = [str(row[0]) for row in connection.execute(_WORKERS["all"])]
            dead = [worker for worker in workers if not self.is_alive(connection, worker)]
            connection.executemany(_WORKERS["forget all"], [(one,) for one in dead])
            return in_time

        return not self._registered or await self._engine.write(beat)

    async def alive(self, holder: str) -> bool:
        return await self._engine.read(lambda connection: self.is_alive(connection, holder))

    async def list(self) -> Sequence[WorkerInfo]:
        def read(connection: Connection) -> list[WorkerInfo]:
            now = self._now()
            rows = fetch_all(connection.execute(_WORKERS["list"], {"now": now}), _WorkerRow)
            return [row.info(now) for row in rows if self.is_alive(connection, row.id)]

        return await self._engine.read(read)

    async def forget(self, worker: str) -> None:
        await self._engine.execute(_WORKERS["forget"], {"id": worker})

    async def claim(self, name: str) -> Claim | str:
        def claim(connection: Connection) -> Claim | str:
            values = {"name": name, "worker": self.own}
            row = fetch_one(connection.execute(_WORKERS["claimed"], values), _ClaimRow)
            if row is not None and row.worker != self.own and self.is_alive(connection, row.worker):
                return row.worker
            return Claim(name, fetch_number(connection.execute(_WORKERS["claim"], values)))

        return await self.write(claim)

    async def holds(self, claim: Claim) -> bool:
        row = await self._engine.fetch_first(
            _WORKERS["claimed"], {"name": claim.name}, _ClaimRow, lambda row: row
        )
        return row == _ClaimRow(self.own, claim.generation)

    async def release(self, claim: Claim) -> None:
        values = {"name": claim.name, "generation": claim.generation}
        await self._engine.execute(_WORKERS["release"], values)

    async def end(self) -> None:
        """Remove this worker and free everything that it still holds."""
        if self._registered:
            await self.forget(self.own)
            self._registered = False

    def _write_beat(self, connection: Connection) -> None:
        host, _, pid, *_ = self.own.split("/")
        values = {"id": self.own, "host": host, "pid": int(pid), "started_at": self._started_at}
        connection.execute(_WORKERS["beat"], {**values, "now": self._now()})

    def _now(self) -> int:
        return round(self._clock.monotonic() * 1e6)
