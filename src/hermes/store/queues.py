"""Durable queues: items wait, are claimed for a while, and are settled."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias

from msgspec import Raw, Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.ids import is_surely_dead, worker_of
from hermes.ports.store import ItemStatus, ParkedItem, QueueCounts, QueueItem
from hermes.schema.errors import NotFound
from hermes.store.connection import Connection, Value, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import fetch_all, fetch_number, from_micros, to_micros
from hermes.store.workers import LONGEST, SqliteWorkers, lease_span
from hermes.store.writes import enqueue, is_held, item_lost

_SQL = load_statements("queues")
_STATUSES: dict[object, ItemStatus] = {2: ItemStatus.DONE, 3: ItemStatus.PARKED}


class _ItemRow(Struct, array_like=True, frozen=True):
    n: int
    key: str
    queue: str
    topic: str
    body: bytes
    due: int | None
    attempts: int

    def item(self) -> QueueItem:
        return QueueItem(
            key=self.key,
            queue=self.queue,
            topic=self.topic,
            body=Raw(self.body),
            due=None if self.due is None else from_micros(self.due),
            attempts=self.attempts,
        )


class _ParkedItemRow(_ItemRow, array_like=True, frozen=True):
    reason: str


class _CountsRow(Struct, array_like=True, frozen=True):
    queue: str
    waiting: int
    claimed: int
    parked: int

    def counts(self) -> QueueCounts:
        return QueueCounts(**structs.asdict(self))


class ClaimRequest(Struct, frozen=True):
    """What to take from a queue, for which holder, and for how long.

    `now` is the time of day, which decides what is due; `tick` is the time of the claim by the
    store's clock, and `until` its end (None: as long as the holder's worker lives).
    """

    queue: str
    topic: str | None
    holder: str
    now: int
    tick: int
    until: int | None
    limit: int
    abandoned: bool = False


class SqliteQueues(Struct):
    _engine: Engine
    _clock: Clock
    _workers: SqliteWorkers

    async def put(self, item: QueueItem, holder: str = "") -> bool:
        if holder:
            return await self._workers.write(partial(enqueue, item=item, holder=holder))
        return await self._engine.write(partial(enqueue, item=item))

    async def claim(
        self,
        queue: str,
        topic: str | None,
        holder: str,
        lease: timedelta | None,
        limit: int = 1,
        *,
        abandoned: bool = False,
    ) -> Sequence[QueueItem]:
        tick, until = lease_span(self._clock, lease or timedelta(0))
        end = None if lease is None else until
        now = to_micros(self._clock.now())
        wanted = ClaimRequest(queue, topic, holder, now, tick, end, limit, abandoned)
        write = self._workers.write if lease is None else self._engine.write
        claim = partial(claim_items, wanted=wanted, is_alive=self._workers.is_alive)
        return await write(claim, droppable=True)

    async def claim_abandoned(self, queue: str, holder: str, limit: int = 1) -> Sequence[QueueItem]:
        return await self.claim(queue, None, holder, None, limit, abandoned=True)

    async def counts(self) -> Sequence[QueueCounts]:
        return await self._engine.fetch(_SQL["counts"], {}, _CountsRow, _CountsRow.counts)

    async def held(self, key: str, holder: str) -> bool:
        return not holder or await self._engine.read(partial(is_held, key=key, holder=holder))

    async def topics(self, queue: str) -> Sequence[str]:
        def read(connection: Connection) -> list[str]:
            return [str(row[0]) for row in connection.execute(_SQL["topics"], {"queue": queue})]

        return await self._engine.read(read)

    async def unfinished(self, queue: str, limit: int) -> Sequence[QueueItem]:
        values = {"queue": queue, "limit": limit}
        return await self._engine.fetch(_SQL["left"], values, _ItemRow, _ItemRow.item)

    async def waiting(self, queue: str, limit: int) -> Sequence[QueueItem]:
        values = {"queue": queue, "limit": limit}
        return await self._engine.fetch(_SQL["waiting"], values, _ItemRow, _ItemRow.item)

    async def retry(self, key: str, at: datetime, reason: str) -> None:
        values = {"key": key, "due": to_micros(at), "reason": reason}
        await self._engine.write(lambda connection: _settle_item(connection, "retry", values))

    async def park(self, key: str, reason: str, holder: str = "") -> None:
        values = {"key": key, "reason": reason}

        def park(connection: Connection) -> None:
            if holder and not is_held(connection, key, holder):
                raise item_lost(key)
            _settle_item(connection, "park", values)

        await self._engine.write(park)

    async def parked(self, queue: str, limit: int = 100) -> Sequence[ParkedItem]:
        values = {"queue": queue, "limit": limit}
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


IsAlive: TypeAlias = Callable[[Connection, str], bool]


def claim_items(
    connection: Connection, wanted: ClaimRequest, is_alive: IsAlive | None = None
) -> list[QueueItem]:
    """Claim what is due, oldest first; without `is_alive` the claims of others do not count."""
    scope = "any" if wanted.topic is None else "topic"
    values = {
        "queue": wanted.queue,
        "topic": wanted.topic,
        "worker": worker_of(wanted.holder),
        "now": wanted.now,
        "tick": wanted.tick,
        "latest": wanted.tick + LONGEST,
        "limit": max(wanted.limit, 0),
        "all": is_alive is None,
    }
    if is_alive is not None:
        others = connection.execute(_SQL[f"holders of {scope}"], values).fetchall()
        gone = [
            _lapse_if_dead(connection, values, str(holder), None if timed else is_alive)
            for holder, timed in others
        ]
        if scope == "topic" and not all(gone):
            # Items of a topic are processed in order, by one worker.
            return []
    # Two plain statements: a combined one would sort in temporary tables.
    statement = "abandoned in any" if wanted.abandoned else f"due in {scope}"
    rows = fetch_all(connection.execute(_SQL[statement], values), _ItemRow)
    connection.executemany(
        _SQL["claim"], [(row.attempts, wanted.holder, wanted.until, row.n) for row in rows]
    )
    return [row.item() for row in rows]


def _lapse_if_dead(
    connection: Connection, values: Mapping[str, Value], holder: str, is_alive: IsAlive | None
) -> bool:
    """End the claims of a dead worker; return whether it is dead.

    Claims with an end of their own, judged without `is_alive`, end early if that is certain.
    """
    if is_alive(connection, holder) if is_alive else not is_surely_dead(holder):
        return False
    connection.execute(_SQL["lapse"], {**values, "holder": holder})
    return True


def _settle_item(connection: Connection, statement: str, values: Mapping[str, str | int]) -> None:
    connection.execute(_SQL[statement], values)
    if connection.changes() == 0 and not fetch_number(connection.execute(_SQL["known"], values)):
        raise NotFound(f"There is no queue item {values['key']!r}.")
