"""The durable inbox and outbox: parcels that wait, are claimed for a while, and are settled."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.kit.holder import is_surely_dead
from hermes.ports.store import Fate, Parcel, Parked
from hermes.schema.errors import NotFound
from hermes.store.connection import Connection
from hermes.store.engine import Engine
from hermes.store.leases import latest_after, span_of
from hermes.store.rows import all_of, micros, moment, number_of
from hermes.store.statements import load
from hermes.store.writes import post

_SQL = load("lanes")
_FATES: dict[object, Fate] = {2: Fate.DONE, 3: Fate.PARKED}


class _ParcelRow(Struct, array_like=True, frozen=True):
    n: int
    key: str
    lane: str
    topic: str
    body: bytes
    due: int | None
    attempts: int

    def parcel(self) -> Parcel:
        return Parcel(
            key=self.key,
            lane=self.lane,
            topic=self.topic,
            body=Raw(self.body),
            due=None if self.due is None else moment(self.due),
            attempts=self.attempts,
        )


class _ParkedRow(_ParcelRow, array_like=True, frozen=True):
    reason: str


class Claim(Struct, frozen=True):
    """What is taken out of a lane, by whom, and for how long.

    What is due is told by the time of day, `now`; `span` is that of the claim, as of a lease.
    """

    lane: str
    topic: str | None
    holder: str
    now: int
    span: tuple[int, int]
    limit: int


class SqliteLanes:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def put(self, parcel: Parcel) -> bool:
        return await self._engine.write(lambda connection: post(connection, parcel))

    async def claim(
        self, lane: str, topic: str | None, holder: str, lease: timedelta, limit: int = 1
    ) -> Sequence[Parcel]:
        now, span = micros(self._clock.now()), span_of(self._clock, lease)
        wanted = Claim(lane, topic, holder, now, span, limit)
        return await self._engine.write(
            lambda connection: claim(connection, wanted), droppable=True
        )

    async def topics(self, lane: str) -> Sequence[str]:
        def read(connection: Connection) -> list[str]:
            return [str(row[0]) for row in connection.execute(_SQL["topics"], {"lane": lane})]

        return await self._engine.read(read)

    async def left(self, lane: str, limit: int) -> Sequence[Parcel]:
        def read(connection: Connection) -> list[Parcel]:
            values = {"lane": lane, "limit": limit}
            return [
                row.parcel() for row in all_of(connection.execute(_SQL["left"], values), _ParcelRow)
            ]

        return await self._engine.read(read)

    async def retry(self, key: str, at: datetime, reason: str) -> None:
        values = {"key": key, "due": micros(at), "reason": reason}
        await self._engine.write(lambda connection: _settle(connection, "retry", values))

    async def park(self, key: str, reason: str) -> None:
        values = {"key": key, "reason": reason}
        await self._engine.write(lambda connection: _settle(connection, "park", values))

    async def parked(self, lane: str, limit: int = 100) -> Sequence[Parked]:
        def read(connection: Connection) -> list[Parked]:
            values = {"lane": lane, "limit": limit}
            rows = all_of(connection.execute(_SQL["parked"], values), _ParkedRow)
            return [Parked(row.parcel(), row.reason) for row in rows]

        return await self._engine.read(read)

    async def fate(self, key: str) -> tuple[Fate, str]:
        def read(connection: Connection) -> tuple[Fate, str]:
            for state, reason in connection.execute(_SQL["fate"], {"key": key}):
                return _FATES.get(state, Fate.WAITING), str(reason)
            raise NotFound(f"There is no parcel {key!r}.")

        return await self._engine.read(read)

    async def forget(self, before: datetime) -> int:
        """Drop the keys of parcels that were done before then: they could be accepted again."""
        total = 0
        while gone := await self._engine.write(lambda connection: _forget(connection, before)):
            total += gone
        return total


def _forget(connection: Connection, before: datetime) -> int:
    connection.execute(_SQL["forget"], {"before": micros(before)})
    return connection.changes()


def is_empty(connection: Connection, lane: str, topic: str) -> bool:
    """Whether nothing waits there, nor is anybody at it."""
    return not number_of(connection.execute(_SQL["waits"], {"lane": lane, "topic": topic}))


def claim(connection: Connection, wanted: Claim) -> list[Parcel]:
    """Take what is due, oldest first."""
    some = "any" if wanted.topic is None else "topic"
    tick, until = wanted.span
    values = {
        "lane": wanted.lane,
        "topic": wanted.topic,
        "holder": wanted.holder,
        "now": wanted.now,
        "tick": tick,
        "latest": latest_after(tick),
        "limit": max(wanted.limit, 0),
    }
    # What a process held that is surely gone need not wait for its lease to lapse.
    held = connection.execute(_SQL[f"holders of {some}"], values).fetchall()
    for (holder,) in dict.fromkeys(held):
        if is_surely_dead(str(holder)):
            lapsing = {"lane": wanted.lane, "tick": tick, "holder": holder}
            connection.execute(_SQL["lapse"], lapsing)
    # Two plain statements: one that finds and changes at once sorts in tables of its own.
    rows = all_of(connection.execute(_SQL[f"due in {some}"], values), _ParcelRow)
    connection.executemany(
        _SQL["claim"], [(row.attempts, wanted.holder, until, row.n) for row in rows]
    )
    return [row.parcel() for row in rows]


def _settle(connection: Connection, statement: str, values: Mapping[str, str | int]) -> None:
    connection.execute(_SQL[statement], values)
    if connection.changes() == 0 and not number_of(connection.execute(_SQL["known"], values)):
        raise NotFound(f"There is no parcel {values['key']!r}.")
