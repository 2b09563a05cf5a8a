"""Durable queues: items wait, are claimed for a while, and are settled."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.kit.process_identity import is_surely_dead
from hermes.ports.store import ItemStatus, ParkedItem, QueueItem
from hermes.schema.errors import NotFound
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.leases import latest_expiry, lease_span
from hermes.store.rows import fetch_all, fetch_number, from_micros, to_micros
from hermes.store.writes import enqueue

_SQL = load_statements("queues")
_STATUSES: dict[object, ItemStatus] = {2: ItemStatus.DONE, 3: ItemStatus.PARKED}


class _ItemRow(Struct, array_like=True, frozen=True):
    n: int
    key: str
    lane: str
    topic: str
    body: bytes
    due: int | None
    attempts: int

    def item(self) -> QueueItem:
        return QueueItem(
            key=self.key,
            lane=self.lane,
            topic=self.topic,
            body=Raw(self.body),
            due=None if self.due is None else from_micros(self.due),
            attempts=self.attempts,
        )


class _ParkedItemRow(_ItemRow, array_like=True, frozen=True):
    reason: str


class ClaimRequest(Struct, frozen=True):
    """What to take from a queue, for which holder, and for how long.

    `now` is the time of day, which decides what is due; `span` is that of the claim.
    """

    lane: str
    topic: str | None
    holder: str
    now: int
    span: tuple[int, int]
    limit: int


class SqliteQueues:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def put(self, item: QueueItem) -> bool:
        return await self._engine.write(lambda connection: enqueue(connection, item))

    async def claim(
        self, lane: str, topic: str | None, holder: str, lease: timedelta, limit: int = 1
    ) -> Sequence[QueueItem]:
        now, span = to_micros(self._clock.now()), lease_span(self._clock, lease)
        wanted = ClaimRequest(lane, topic, holder, now, span, limit)
        return await self._engine.write(
            lambda connection: claim_items(connection, wanted), droppable=True
        )

    async def topics(self, lane: str) -> Sequence[str]:
        def read(connection: Connection) -> list[str]:
            return [str(row[0]) for row in connection.execute(_SQL["topics"], {"lane": lane})]

        return await self._engine.read(read)

    async def unfinished(self, lane: str, limit: int) -> Sequence[QueueItem]:
        values = {"lane": lane, "limit": limit}
        return await self._engine.fetch(_SQL["left"], values, _ItemRow, _ItemRow.item)

    async def retry(self, key: str, at: datetime, reason: str) -> None:
        values = {"key": key, "due": to_micros(at), "reason": reason}
        await self._engine.write(lambda connection: _settle_item(connection, "retry", values))

    async def park(self, key: str, reason: str) -> None:
        values = {"key": key, "reason": reason}
        await self._engine.write(lambda connection: _settle_item(connection, "park", values))

    async def parked(self, lane: str, limit: int = 100) -> Sequence[ParkedItem]:
        values = {"lane": lane, "limit": limit}
        return await self._engine.fetch(
            _SQL["parked"], values, _ParkedItemRow, lambda row: ParkedItem(row.item(), row.reason)
        )

    async def status(self, key: str) -> tuple[ItemStatus, str]:
        def read(connection: Connection) -> tuple[ItemStatus, str]:
            for state, reason in connection.execute(_SQL["fate"], {"key": key}):
                return _STATUSES.get(state, ItemStatus.WAITING), str(reason)
            raise NotFound(f"There is no queue item {key!r}.")

        return await self._engine.read(read)

    async def forget(self, before: datetime) -> int:
        """Drop the keys of items that were done before then; such a key could be accepted again."""
        total, values = 0, {"before": to_micros(before)}
        while deleted := await self._engine.execute(_SQL["forget"], values):
            total += deleted
        return total


def is_queue_empty(connection: Connection, lane: str, topic: str) -> bool:
    """Whether no item waits there or is being processed."""
    return not fetch_number(connection.execute(_SQL["waits"], {"lane": lane, "topic": topic}))


def claim_items(connection: Connection, wanted: ClaimRequest) -> list[QueueItem]:
    """Claim what is due, oldest first."""
    scope = "any" if wanted.topic is None else "topic"
    tick, until = wanted.span
    values = {
        "lane": wanted.lane,
        "topic": wanted.topic,
        "holder": wanted.holder,
        "now": wanted.now,
        "tick": tick,
        "latest": latest_expiry(tick),
        "limit": max(wanted.limit, 0),
    }
    # Items of a process that has ended need not wait for their claim to expire.
    holders = connection.execute(_SQL[f"holders of {scope}"], values).fetchall()
    for (holder,) in dict.fromkeys(holders):
        if is_surely_dead(str(holder)):
            lapsing = {"lane": wanted.lane, "tick": tick, "holder": holder}
            connection.execute(_SQL["lapse"], lapsing)
    # Two plain statements: a combined one would sort in temporary tables.
    rows = fetch_all(connection.execute(_SQL[f"due in {scope}"], values), _ItemRow)
    connection.executemany(
        _SQL["claim"], [(row.attempts, wanted.holder, until, row.n) for row in rows]
    )
    return [row.item() for row in rows]


def _settle_item(connection: Connection, statement: str, values: Mapping[str, str | int]) -> None:
    connection.execute(_SQL[statement], values)
    if connection.changes() == 0 and not fetch_number(connection.execute(_SQL["known"], values)):
        raise NotFound(f"There is no queue item {values['key']!r}.")
