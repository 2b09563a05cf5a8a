"""Store callbacks of sessions and answers by idempotency key, in SQLite."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from hermes.ports.api_records import (
    ApiWrite,
    Callback,
    KeyedRequest,
    PutKeyedRequest,
    SetCallback,
)
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.repositories import Columns, put_row, select_abandoned, select_rows
from hermes.store.rows import to_micros
from hermes.store.workers import SqliteWorkers

_SQL = load_statements("api_records")
_CALLBACKS = Columns(Callback)
_REQUESTS = Columns(KeyedRequest)


class SqliteApiRecords:
    """Implements `hermes.ports.api_records.ApiRecords`."""

    def __init__(self, engine: Engine, workers: SqliteWorkers) -> None:
        self._engine = engine
        self._workers = workers

    async def callback(self, session: str) -> Callback | None:
        values = {"session": session}
        return await self._engine.fetch_first(_SQL["callback"], values, tuple, _CALLBACKS.read)

    async def sessions_with_callback(self, limit: int) -> Sequence[str]:
        values, sql = {"limit": limit}, _SQL["sessions with callback"]
        return await select_rows(self._engine, sql, values, lambda row: str(row[0]))

    async def keyed_request(self, id: str) -> KeyedRequest | None:  # noqa: A002 the field's name
        return await self._engine.fetch_first(_SQL["request"], {"id": id}, tuple, _REQUESTS.read)

    async def abandoned_requests(self) -> Sequence[KeyedRequest]:
        return await select_abandoned(
            self._engine, self._workers, _SQL["begun requests"], _REQUESTS.read
        )

    async def forget_requests(self, before: datetime) -> int:
        return await self._engine.execute(_SQL["forget requests"], {"before": to_micros(before)})


def apply_api_write(connection: Connection, write: ApiWrite) -> None:
    match write:
        case SetCallback(session, callback):
            if callback is None:
                connection.execute(_SQL["remove callback"], {"session": session})
                return
            connection.execute(_SQL["set callback"], _CALLBACKS.values(callback, session=session))
        case PutKeyedRequest(record, expected):
            statement = {None: "put request", "": "add request"}.get(expected, "change request")
            now = f"no longer {expected}" if expected else "already present"
            conflict = f"The request with this idempotency key is {now}."
            put_row(
                connection, _SQL[statement], _REQUESTS.values(record, expected=expected), conflict
            )
        case _:
            assert_never(write)
