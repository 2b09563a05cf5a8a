"""Workers: which processes work on this store, and what one of them at a time may do.

The clock of a SQLite store is the machine's monotonic clock: a file in WAL mode is shared by
processes of one machine only, they all read the same clock, and nobody can set it. A time far from
now was written before a reboot.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.process_identity import (
    is_surely_dead,
    names_worker,
    new_worker_id,
    runs_here,
    worker_of,
)
from hermes.ports.store import WORKER_TTL, Claim
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import fetch_number, fetch_number_or_none, fetch_one, to_micros

R = TypeVar("R")

_SQL = load_statements("workers")


class _ClaimRow(Struct, array_like=True, frozen=True):
    worker: str
    generation: int


class SqliteWorkers:
    """Implements `hermes.ports.store.Workers`."""

    def __init__(self, engine: Engine, clock: Clock, ttl: timedelta = WORKER_TTL) -> None:
        self._engine = engine
        self._clock = clock
        self.own = new_worker_id()
        self.ttl = ttl
        self._started_at = to_micros(clock.now())
        self._registered = False

    async def write(self, work: Callable[[Connection], R], *, droppable: bool = False) -> R:
        """Write as this worker, which is registered in the transaction of its first claim."""

        def write(connection: Connection) -> R:
            if not self._registered:
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
        seen = _last_seen(connection, worker_of(holder))
        if seen is None:
            return not names_worker(holder) and runs_here(holder)
        return abs(self._now() - seen) < self.ttl // timedelta(microseconds=1)

    async def register(self) -> None:
        await self.write(lambda connection: None)

    async def beat(self) -> bool:
        def beat(connection: Connection) -> bool:
            in_time = self.is_alive(connection, self.own)
            self._write_beat(connection)
            workers = [str(row[0]) for row in connection.execute(_SQL["all"])]
            dead = [one for one in workers if not self.is_alive(connection, one)]
            connection.executemany(_SQL["forget all"], [(one,) for one in dead])
            return in_time

        return not self._registered or await self._engine.write(beat)

    async def alive(self, holder: str) -> bool:
        return await self._engine.read(lambda connection: self.is_alive(connection, holder))

    async def forget(self, worker: str) -> None:
        await self._engine.execute(_SQL["forget"], {"id": worker})

    async def claim(self, name: str) -> Claim | str:
        def claim(connection: Connection) -> Claim | str:
            values = {"name": name, "worker": self.own}
            row = fetch_one(connection.execute(_SQL["claimed"], values), _ClaimRow)
            if row is not None and row.worker != self.own and self.is_alive(connection, row.worker):
                return row.worker
            return Claim(name, fetch_number(connection.execute(_SQL["claim"], values)))

        return await self.write(claim)

    async def holds(self, claim: Claim) -> bool:
        row = await self._engine.fetch_first(
            _SQL["claimed"], {"name": claim.name}, _ClaimRow, lambda row: row
        )
        return row == _ClaimRow(self.own, claim.generation)

    async def release(self, claim: Claim) -> None:
        values = {"name": claim.name, "generation": claim.generation}
        await self._engine.execute(_SQL["release"], values)

    async def end(self) -> None:
        """Forget this worker: whatever it still holds is free now."""
        if self._registered:
            await self.forget(self.own)
            self._registered = False

    def _write_beat(self, connection: Connection) -> None:
        host, _, pid, *_ = self.own.split("/")
        values = {"id": self.own, "host": host, "pid": int(pid), "started_at": self._started_at}
        connection.execute(_SQL["beat"], {**values, "now": self._now()})

    def _now(self) -> int:
        return round(self._clock.monotonic() * 1e6)


def _last_seen(connection: Connection, worker: str) -> int | None:
    return fetch_number_or_none(connection.execute(_SQL["seen"], {"id": worker}))
