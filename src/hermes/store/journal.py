"""The journal of runs and the stored responses, on SQLite."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

import msgspec
from msgspec import Raw, Struct

from hermes.kit.process_identity import is_surely_dead
from hermes.ports.journal import AppendRunEvents, RunEvent, RunRecord, RunStatus, StoredResponse
from hermes.schema.errors import NotFound, StoreError
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import fetch_all, fetch_one, from_micros, to_micros, unreadable_error

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
        return RunRecord(
            run=self.run,
            session=self.session,
            principal=self.principal,
            created=from_micros(self.created),
            updated=from_micros(self.updated),
            status=self.status,
            holder=self.holder,
            model=self.model,
            key=self.key,
            fingerprint=self.fingerprint,
            last_seq=self.last_seq,
            last_event=self.last_event,
            result=None if self.result is None else Raw(self.result),
        )


class _OpenRow(Struct, array_like=True, frozen=True):
    n: int
    last_seq: int


class _EventsRow(Struct, array_like=True, frozen=True):
    first: int
    body: bytes

    def events(self, after: int) -> list[RunEvent]:
        try:
            bodies = msgspec.json.decode(self.body, type=list[Raw])
        except msgspec.DecodeError as error:
            raise unreadable_error(f"The entry from event {self.first} on", error) from error
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
        return StoredResponse(
            id=self.id,
            principal=self.principal,
            session=self.session,
            created=from_micros(self.created),
            body=Raw(self.body),
            seq=self.seq,
            conversation=self.conversation,
            instructions=self.instructions,
        )


class SqliteJournal:
    """Implements `hermes.ports.journal.Journal`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def open(self, record: RunRecord) -> RunRecord:
        return await self._engine.write(lambda connection: _open(connection, record))

    async def by_key(self, key: str, principal: str) -> RunRecord | None:
        values = {"key": key, "principal": principal}

        def read(connection: Connection) -> RunRecord | None:
            row = fetch_one(connection.execute(_SQL["keyed"], values), _RunRow)
            return row and row.record()

        return await self._engine.read(read)

    async def withdraw(self, run: str) -> None:
        def write(connection: Connection) -> None:
            connection.execute(_SQL["withdraw"], {"run": run})

        await self._engine.write(write)

    async def get(self, run: str, principal: str) -> RunRecord:
        def read(connection: Connection) -> RunRecord | None:
            row = fetch_one(connection.execute(_SQL["get"], {"run": run}), _RunRow)
            return row and row.record()

        found = await self._engine.read(read)
        if found is None or found.principal != principal:
            raise NotFound(f"There is no run {run!r}.", hint="Runs are kept for a day.")
        return found

    async def events(self, run: str, after: int, limit: int = 20) -> Sequence[RunEvent]:
        # A number too large for SQLite is beyond every event anyway.
        values = {"run": run, "after": min(after, _MAX_INTEGER), "limit": limit}

        def read(connection: Connection) -> list[RunEvent]:
            rows = fetch_all(connection.execute(_SQL["events"], values), _EventsRow)
            return [event for row in rows for event in row.events(after)]

        return await self._engine.read(read)

    async def abandoned(self) -> Sequence[RunRecord]:
        def read(connection: Connection) -> list[RunRecord]:
            rows = fetch_all(connection.execute(_SQL["unended"]), _RunRow)
            return [row.record() for row in rows if is_surely_dead(row.holder)]

        return await self._engine.read(read)

    async def forget(self, before: datetime, max_bytes: int) -> int:
        return await _delete_old(self._engine, "", before, max_bytes)


class SqliteResponses:
    """Implements `hermes.ports.journal.Responses`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self, response: str, principal: str) -> StoredResponse:
        found = await self._one("response", {"id": response, "principal": principal})
        if found is None:
            raise NotFound(f"There is no response {response!r}.")
        return found

    async def latest(self, conversation: str, principal: str) -> StoredResponse | None:
        values = {"conversation": conversation, "principal": principal}
        return await self._one("latest response", values)

    async def delete(self, response: str, principal: str) -> bool:
        values = {"id": response, "principal": principal}

        def write(connection: Connection) -> bool:
            connection.execute(_SQL["delete response"], values)
            return connection.changes() > 0

        return await self._engine.write(write)

    async def forget(self, before: datetime, max_bytes: int) -> int:
        return await _delete_old(self._engine, " responses", before, max_bytes)

    async def _one(self, statement: str, values: dict[str, str]) -> StoredResponse | None:
        def read(connection: Connection) -> StoredResponse | None:
            row = fetch_one(connection.execute(_SQL[statement], values), _ResponseRow)
            return row and row.response()

        return await self._engine.read(read)


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
        "n": run.n,
        "at": to_micros(write.at),
        "status": None if write.status is None else write.status.value,
        "ended": int(write.status is not None and write.status.ended),
        "seq": last,
        "event": write.last_event,
        "result": result,
        "bytes": len(body) + len(result or b""),
    }
    connection.execute(_SQL["note"], values)
    if events:
        values = {"n": run.n, "seq": last, "first": events[0].seq, "at": to_micros(write.at)}
        connection.execute(_SQL["events of note"], {**values, "body": body})


def save_response(connection: Connection, response: StoredResponse) -> None:
    values = {
        "id": response.id,
        "principal": response.principal,
        "session": response.session,
        "created": to_micros(response.created),
        "body": bytes(response.body),
        "seq": response.seq,
        "conversation": response.conversation,
        "instructions": response.instructions,
        "bytes": len(bytes(response.body)) + len(response.instructions),
    }
    connection.execute(_SQL["keep"], values)


def _join_events(events: Sequence[RunEvent]) -> bytes:
    if any(after.seq != before.seq + 1 for before, after in pairwise(events)):
        raise StoreError("The events of one entry must be consecutive.")
    return b"[" + b",".join(bytes(event.body) for event in events) + b"]"


def _open(connection: Connection, record: RunRecord) -> RunRecord:
    values = {
        "run": record.run,
        "session": record.session,
        "principal": record.principal,
        "created": to_micros(record.created),
        "updated": to_micros(record.updated),
        "status": record.status.value,
        "ended": int(record.status.ended),
        "holder": record.holder,
        "model": record.model,
        "key": record.key,
        "fingerprint": record.fingerprint,
    }
    connection.execute(_SQL["open"], values)
    if connection.changes():
        return record
    values = {"principal": record.principal, "key": record.key}
    known = fetch_one(connection.execute(_SQL["keyed"], values), _RunRow)
    if known is None:
        raise StoreError(f"There is already a run {record.run!r}.")
    return known.record()


async def _delete_old(engine: Engine, what: str, before: datetime, most_bytes: int) -> int:
    """Delete in batches, so that other writes are not blocked."""

    def old(connection: Connection) -> int:
        connection.execute(_SQL[f"forget old{what}"], {"before": to_micros(before)})
        return connection.changes()

    def surplus(connection: Connection) -> int:
        connection.execute(_SQL[f"forget surplus{what}"], {"most": most_bytes})
        return connection.changes()

    total = 0
    while gone := await engine.write(old):
        total += gone
    return total + await engine.write(surplus)
