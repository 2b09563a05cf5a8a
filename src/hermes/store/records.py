"""State records on SQLite: a change applies only if the record is in the expected state."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from hermes.kit.process_identity import is_surely_dead
from hermes.ports.records import PutRecord, StateRecord
from hermes.schema.errors import StateConflict
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import fetch_all, fetch_one, from_micros, to_micros

_SQL = load_statements("matters")
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
        return StateRecord(
            kind=self.kind,
            id=self.id,
            session=self.session,
            state=self.state,
            at=from_micros(self.at),
            body=Raw(self.body),
            open=bool(self.open),
            holder=self.holder,
        )


class SqliteRecords:
    """Implements `hermes.ports.records.Records`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self, kind: str, id: str) -> StateRecord | None:  # noqa: A002 the field's name
        def read(connection: Connection) -> StateRecord | None:
            row = fetch_one(connection.execute(_SQL["get"], {"kind": kind, "id": id}), _RecordRow)
            return row and row.record()

        return await self._engine.read(read)

    async def find(
        self, kind: str, *, session: str | None = None, only_open: bool = False, limit: int = 1000
    ) -> Sequence[StateRecord]:
        name = " ".join(
            ["find", *(["open"] if only_open else []), *(["of session"] if session else [])]
        )
        values: dict[str, str | int] = {"kind": kind, "limit": limit, "session": session or ""}

        def read(connection: Connection) -> list[StateRecord]:
            rows = fetch_all(connection.execute(_SQL[name], values), _RecordRow)
            return [row.record() for row in reversed(rows)]

        return await self._engine.read(read)

    async def matching(
        self, kind: str, fields: Mapping[str, str], *, state: str | None = None, limit: int = 1000
    ) -> Sequence[StateRecord]:
        values: dict[str, str | int | None] = {
            "kind": kind,
            "fields": msgspec.json.encode(fields).decode(),
            "state": state,
            "limit": limit,
        }

        def read(connection: Connection) -> list[StateRecord]:
            rows = fetch_all(connection.execute(_SQL["matching"], values), _RecordRow)
            return [row.record() for row in reversed(rows)]

        return await self._engine.read(read)

    async def abandoned(self, kind: str) -> Sequence[StateRecord]:
        records = await self.find(kind, only_open=True, limit=_NO_LIMIT)
        return [one for one in records if not one.holder or is_surely_dead(one.holder)]

    async def forget(self, kind: str, before: datetime) -> int:
        values = {"kind": kind, "before": to_micros(before)}

        def write(connection: Connection) -> int:
            connection.execute(_SQL["forget"], values)
            return connection.changes()

        return await self._engine.write(write)


def put_record(connection: Connection, write: PutRecord) -> None:
    record = write.record
    statement = {None: "put", "": "add"}.get(write.expected_state, "change")
    values: dict[str, str | int | bytes | None] = {
        "kind": record.kind,
        "id": record.id,
        "session": record.session,
        "state": record.state,
        "at": to_micros(record.at),
        "body": bytes(record.body),
        "open": int(record.open),
        "holder": record.holder,
        "was": write.expected_state,
    }
    connection.execute(_SQL[statement], values)
    if connection.changes() == 0:
        expected = (
            f"no longer {write.expected_state}" if write.expected_state else "already present"
        )
        raise StateConflict(f"The {record.kind} {record.id} is {expected}.")
