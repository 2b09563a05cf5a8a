"""Store the journal of runs and responses in SQLite."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

import msgspec
from msgspec import Raw, Struct

from hermes.ports.journal import AppendRunEvents, RunEvent, RunRecord, RunStatus, StoredResponse
from hermes.schema.errors import NotFound, StoreError
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import (
    fetch_all,
    fetch_one,
    fields_of,
    from_micros,
    to_micros,
    unreadable_error,
)
from hermes.store.workers import SqliteWorkers

_SQL = load_statements("journal")
_MAX_INTEGER = 2**63 - 1


class _RunRow(Struct, array_like=True, frozen=True):
    run: str
    session: str
    principal: str
    created: int
    updated: int
    status: RunStatus
    holder: str
    model: str
    key: str
    fingerprint: str
    last_seq: int
    last_event: str
    result: bytes | None

    def record(self) -> RunRecord:
        result = None if self.result is None else Raw(self.result)
        created, updated = from_micros(self.created), from_micros(self.updated)
        return RunRecord(**fields_of(self, created=created, updated=updated, result=result))


class _OpenRow(Struct, array_like=True, frozen=True):
    row: int
    last_seq: int


class _EventsRow(Struct, array_like=True, frozen=True):
    first: int
    body: bytes

    def events(self, after: int) -> list[RunEvent]:
        try:
            bodies = msgspec.json.decode(self.body, type=list[Raw])
        except msgspec.DecodeError as error:
            raise unreadable_error(f"The entry at event {self.first}", error) from error
        events = [RunEvent(seq, Raw(bytes(body))) for seq, body in enumerate(bodies, self.first)]
        return [event for event in events if event.seq > after]


class _ResponseRow(Struct, array_like=True, frozen=True):
    id: str
    principal: str
    session: str
    created: int
    body: bytes
    seq: int
    conversation: str
    instructions: str

    def response(self) -> StoredResponse:
        created, body = from_micros(self.created), Raw(self.body)
        return StoredResponse(**fields_of(self, created=created, body=body))


class SqliteJournal:
    """Implements `hermes.ports.journal.Journal`."""

    def __init__(self, engine: Engine, workers: SqliteWorkers) -> None:
        self._engine = engine
        self._workers = workers

    async def open(self, record: RunRecord) -> RunRecord:
        return await self._workers.write(lambda connection: _open(connection, record))

    async def by_key(self, key: str, principal: str) -> RunRecord | None:
        values = {"key": key, "principal": principal}
        return await self._engine.fetch_first(_SQL["by key"], values, _RunRow, _RunRow.record)

    async def withdraw(self, run: str) -> None:
        await self._engine.execute(_SQL["withdraw"], {"run": run})

    async def get(self, run: str, principal: str) -> RunRecord:
        values = {"run": run}
        found = await self._engine.fetch_first(_SQL["get"], values, _RunRow, _RunRow.record)
        if found is None or found.principal != principal:
            raise NotFound(f"There is no run {run!r}.", hint="Runs are kept for a day.")
        return found

    async def events(self, run: str, after: int, limit: int = 20) -> Sequence[RunEvent]:
        # A number too large for SQLite is beyond every event anyway.
        values = {"run": run, "after": min(after, _MAX_INTEGER), "limit": limit}
        batches = await self._engine.fetch(
            _SQL["events"], values, _EventsRow, lambda row: row.events(after)
        )
        return [event for batch in batches for event in batch]

    async def abandoned(self) -> Sequence[RunRecord]:
        def read(connection: Connection) -> list[RunRecord]:
            rows = fetch_all(connection.execute(_SQL["unended"]), _RunRow)
            is_alive = self._workers.is_alive
            return [row.record() for row in rows if not is_alive(connection, row.holder)]

        return await self._engine.read(read)

    async def forget(self, before: datetime, max_bytes: int) -> int:
        return await _delete_old(self._engine, "", before, max_bytes)


class SqliteResponses:
    """Implements `hermes.ports.journal.Responses`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self, response: str, principal: str) -> StoredResponse:
        found = await self._first("response", {"id": response, "principal": principal})
        if found is None:
            raise NotFound(f"There is no response {response!r}.")
        return found

    async def latest(self, conversation: str, principal: str) -> StoredResponse | None:
        values = {"conversation": conversation, "principal": principal}
        return await self._first("latest response", values)

    async def delete(self, response: str, principal: str) -> bool:
        values = {"id": response, "principal": principal}
        return await self._engine.execute(_SQL["delete response"], values) > 0

    async def forget(self, before: datetime, max_bytes: int) -> int:
        return await _delete_old(self._engine, " responses", before, max_bytes)

    async def _first(self, statement: str, values: dict[str, str]) -> StoredResponse | None:
        return await self._engine.fetch_first(
            _SQL[statement], values, _ResponseRow, _ResponseRow.response
        )


def append_run_events(connection: Connection, write: AppendRunEvents) -> None:
    """Append new events; a run that has ended stays unchanged."""
    run = fetch_one(connection.execute(_SQL["open run"], {"run": write.run}), _OpenRow)
    if run is None:
        return
    events = [event for event in write.events if event.seq > run.last_seq]
    body = _join_events(events)
    last = events[-1].seq if events else 0
    result = None if write.result is None else bytes(write.result)
    values = {
        "row": run.row,
        "at": to_micros(write.at),
        "status": None if write.status is None else write.status.value,
        "ended": int(write.status is not None and write.status.ended),
        "seq": last,
        "event": write.last_event,
        "result": result,
        "bytes": len(body) + len(result or b""),
    }
    connection.execute(_SQL["update run"], values)
    if events:
        values = {"row": run.row, "seq": last, "first": events[0].seq, "at": to_micros(write.at)}
        connection.execute(_SQL["add events"], {**values, "body": body})


def save_response(connection: Connection, response: StoredResponse) -> None:
    body = bytes(response.body)
    size = len(body) + len(response.instructions.encode())
    values = fields_of(response, created=to_micros(response.created), body=body, bytes=size)
    connection.execute(_SQL["save response"], values)


def _join_events(events: Sequence[RunEvent]) -> bytes:
    if any(after.seq != before.seq + 1 for before, after in pairwise(events)):
        raise StoreError("Events appended together must have consecutive numbers.")
    return b"[" + b",".join(bytes(event.body) for event in events) + b"]"


def _open(connection: Connection, record: RunRecord) -> RunRecord:
    values = fields_of(
        record,
        created=to_micros(record.created),
        updated=to_micros(record.updated),
        ended=int(record.status.ended),
    )
    connection.execute(_SQL["open"], values)
    if connection.changes():
        return record
    values = {"principal": record.principal, "key": record.key}
    known = fetch_one(connection.execute(_SQL["by key"], values), _RunRow)
    if known is None:
        raise StoreError(f"Run {record.run!r} already exists.")
    return known.record()


async def _delete_old(engine: Engine, what: str, before: datetime, max_bytes: int) -> int:
    """Delete in batches, so that other writes are not blocked."""
    total = 0
    old = {"before": to_micros(before)}
    while gone := await engine.execute(_SQL[f"forget old{what}"], old):
        total += gone
    return total + await engine.execute(_SQL[f"forget surplus{what}"], {"most": max_bytes})
