"""State records on SQLite: a change applies only if the record is in the expected state."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from hermes.ports.records import PutRecord, StateRecord
from hermes.schema.errors import StateConflict
from hermes.store.connection import Connection, Value, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import fetch_all, fields_of, from_micros, to_micros
from hermes.store.workers import SqliteWorkers

_SQL = load_statements("records")
_NO_LIMIT = 2**31


class _RecordRow(Struct, array_like=True, frozen=True):
    kind: str
    id: str
    session: str
    state: str
    at: int
    body: bytes
    open: int
    holder: str

    def record(self) -> StateRecord:
        at, body = from_micros(self.at), Raw(self.body)
        return StateRecord(**fields_of(self, at=at, body=body, open=bool(self.open)))


class SqliteRecords:
    """Implements `hermes.ports.records.Records`."""

    def __init__(self, engine: Engine, workers: SqliteWorkers) -> None:
        self._engine = engine
        self._workers = workers

    async def get(self, kind: str, id: str) -> StateRecord | None:  # noqa: A002 the field's name
        return next(iter(await self._records("get", {"kind": kind, "id": id})), None)

    async def find(
        self, kind: str, *, session: str | None = None, only_open: bool = False, limit: int = 1000
    ) -> Sequence[StateRecord]:
        name = " ".join(
            ["find", *(["open"] if only_open else []), *(["of session"] if session else [])]
        )
        newest = await self._records(name, {"kind": kind, "limit": limit, "session": session or ""})
        return newest[::-1]

    async def matching(
        self, kind: str, fields: Mapping[str, str], *, state: str | None = None, limit: int = 1000
    ) -> Sequence[StateRecord]:
        wanted = msgspec.json.encode(fields).decode()
        values = {"kind": kind, "fields": wanted, "state": state, "limit": limit}
        newest = await self._records("matching", values)
        return newest[::-1]

    async def abandoned(self, kind: str) -> Sequence[StateRecord]:
        values = {"kind": kind, "limit": _NO_LIMIT}

        def read(connection: Connection) -> list[StateRecord]:
            rows = fetch_all(connection.execute(_SQL["find open"], values), _RecordRow)
            return [
                row.record() for row in rows if not self._workers.is_alive(connection, row.holder)
            ]

        return (await self._engine.read(read))[::-1]

    async def forget(self, kind: str, before: datetime) -> int:
        values = {"kind": kind, "before": to_micros(before)}
        return await self._engine.execute(_SQL["forget"], values)

    async def _records(self, statement: str, values: Mapping[str, Value]) -> list[StateRecord]:
        return await self._engine.fetch(_SQL[statement], values, _RecordRow, _RecordRow.record)


def put_record(connection: Connection, write: PutRecord) -> None:
    record = write.record
    statement = {None: "put", "": "add"}.get(write.expected_state, "change")
    at, body = to_micros(record.at), bytes(record.body)
    values = fields_of(record, at=at, body=body, was=write.expected_state)
    connection.execute(_SQL[statement], values)
    if connection.changes() == 0:
        expected = (
            f"no longer {write.expected_state}" if write.expected_state else "already present"
        )
        raise StateConflict(f"The {record.kind} {record.id} is {expected}.")
