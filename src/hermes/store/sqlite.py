"""The store on one SQLite file."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio

from hermes.kit.clock import Clock
from hermes.ports.store import Admitted, Entrance, Fence, Intent, Release, Write
from hermes.store.admission import admit
from hermes.store.archive import SqliteArchive
from hermes.store.connect import open_writer
from hermes.store.connection import Connection
from hermes.store.engine import Engine
from hermes.store.journal import SqliteJournal, SqliteResponses
from hermes.store.lanes import SqliteLanes
from hermes.store.leases import SqliteLeases, check, leave, span_of
from hermes.store.matters import SqliteMatters
from hermes.store.rows import IntentRow, all_of, micros
from hermes.store.statements import load
from hermes.store.upkeep import Stats, Upkeep
from hermes.store.writes import apply

_INTENTS = load("archive")["intents"]
_SETTLED_LONG_AGO = timedelta(days=7)
"""No platform delivers the same message again after that time."""


class SqliteStore:
    """Implements `hermes.ports.store.Store`; safe to use from several event loops at once."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._upkeep = Upkeep(engine)
        self._lanes = SqliteLanes(engine, clock)
        self._leases = SqliteLeases(engine, clock)
        self._journal = SqliteJournal(engine)
        self._responses = SqliteResponses(engine)
        self._matters = SqliteMatters(engine)

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> "SqliteStore":
        """Raises `StoreError` when the file is not ours, or of a newer version."""
        connection = await anyio.to_thread.run_sync(open_writer, path)
        return cls(Engine(connection, path), clock)

    async def close(self) -> None:
        """Writes that were asked for are done first."""
        await self._engine.close()

    @property
    def path(self) -> Path:
        return self._engine.path

    @property
    def lanes(self) -> SqliteLanes:
        return self._lanes

    @property
    def leases(self) -> SqliteLeases:
        return self._leases

    @property
    def journal(self) -> SqliteJournal:
        return self._journal

    @property
    def responses(self) -> SqliteResponses:
        return self._responses

    @property
    def matters(self) -> SqliteMatters:
        return self._matters

    def seen_by(self, principal: str) -> SqliteArchive:
        return SqliteArchive(self._engine, principal)

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        if not writes:
            return
        now = micros(self._clock.now())

        def write(connection: Connection) -> None:
            apply(connection, _fenced(connection, writes, fence), now)

        await self._engine.write(write)

    async def admit(self, entrance: Entrance, *writes: Write) -> Admitted:
        now, span = self._clock.now(), span_of(self._clock, entrance.ttl)
        return await self._engine.write(
            lambda connection: admit(connection, entrance, writes, now, span)
        )

    async def open_intents(self, session: str) -> Sequence[Intent]:
        def read(connection: Connection) -> list[Intent]:
            rows = all_of(connection.execute(_INTENTS, {"id": session}), IntentRow)
            return [row.intent() for row in rows]

        return await self._engine.read(read)

    async def stats(self) -> Stats:
        return await self._upkeep.stats()

    async def integrity(self) -> Sequence[str]:
        """What is wrong with the file; empty when nothing is."""
        return await self._upkeep.integrity()

    async def optimize(self) -> None:
        """Drop what was settled long ago, merge the search indexes, shrink the journal."""
        await self._lanes.forget(self._clock.now() - _SETTLED_LONG_AGO)
        await self._upkeep.optimize()

    async def make_vectors(self) -> bool:
        """For all that was said until now. False where that cannot be done, or not yet."""
        return await self._engine.nearness.complete(self._engine.read)

    async def vacuum(self) -> None:
        """Give the space of deleted sessions back to the disk."""
        await self._upkeep.vacuum()

    async def backup(self, to: Path) -> None:
        """Copy the database as it is now, while others go on writing."""
        await self._upkeep.backup(to)


def _fenced(
    connection: Connection, writes: Sequence[Write], fence: Fence | None
) -> Sequence[Write]:
    """What is left to be done once it is sure that these writes may be."""
    if fence is None:
        return writes
    if writes[-1] == Release(fence.session, fence.generation):
        leave(connection, fence)
        return writes[:-1]
    check(connection, fence)
    return writes


@asynccontextmanager
async def open_store(path: Path, clock: Clock) -> AsyncGenerator[SqliteStore]:
    store = await SqliteStore.open(path, clock)
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()
