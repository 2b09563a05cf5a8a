"""Store compaction, failed runs, spending and runtime state in SQLite."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from hermes.ports.compaction_records import (
    AddPin,
    CompactionView,
    CompactionWrite,
    Pin,
    PutCompactionView,
    RemovePin,
)
from hermes.ports.run_records import (
    AddSpendBefore,
    FailedRun,
    PartialText,
    PutFailedRun,
    PutPartialText,
    RemovePartialText,
    RunWrite,
)
from hermes.ports.runtime_sessions import PutRuntimeSession, RuntimeSession
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.repositories import Columns, put_row, select_abandoned, select_rows
from hermes.store.rows import fields_of, to_micros
from hermes.store.workers import SqliteWorkers

_SQL = load_statements("session_records")
_VIEWS = Columns(CompactionView)
_PINS = Columns(Pin)
_FAILED = Columns(FailedRun)
_PARTIAL = Columns(PartialText)
_RUNTIME_SESSIONS = Columns(RuntimeSession)


class SqliteCompactionRecords:
    """Implements `hermes.ports.compaction_records.CompactionRecords`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def view(self, session: str) -> CompactionView | None:
        return await self._engine.fetch_first(
            _SQL["view"], {"session": session}, tuple, _VIEWS.read
        )

    async def pins(self, session: str) -> Sequence[Pin]:
        return await select_rows(self._engine, _SQL["pins"], {"session": session}, _PINS.read)


class SqliteRunRecords:
    """Implements `hermes.ports.run_records.RunRecords`."""

    def __init__(self, engine: Engine, workers: SqliteWorkers) -> None:
        self._engine = engine
        self._workers = workers

    async def partial_text(self, run: str) -> PartialText | None:
        return await self._engine.fetch_first(
            _SQL["partial text"], {"run": run}, tuple, _PARTIAL.read
        )

    async def partial_texts(self, session: str) -> Sequence[PartialText]:
        values = {"session": session}
        return await select_rows(self._engine, _SQL["partial texts"], values, _PARTIAL.read)

    async def abandoned_partial_texts(self) -> Sequence[PartialText]:
        sql = _SQL["all partial texts"]
        return await select_abandoned(self._engine, self._workers, sql, _PARTIAL.read)

    async def failures(self, session: str) -> Sequence[FailedRun]:
        return await select_rows(self._engine, _SQL["failed"], {"session": session}, _FAILED.read)

    async def forget_failures(self, before: datetime) -> int:
        return await self._engine.execute(_SQL["forget failed"], {"before": to_micros(before)})

    async def spend_before(self, day: str, spender: str) -> float | None:
        values = {"day": day, "spender": spender}
        sql = _SQL["spend before"]
        return await self._engine.fetch_first(sql, values, tuple[float], lambda row: row[0])

    async def forget_spend(self, before_day: str) -> int:
        return await self._engine.execute(_SQL["forget spend"], {"before": before_day})


class SqliteRuntimeSessions:
    """Implements `hermes.ports.runtime_sessions.RuntimeSessions`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self, runtime: str, id: str) -> RuntimeSession | None:  # noqa: A002 the field's name
        values = {"runtime": runtime, "id": id}
        sql = _SQL["runtime session"]
        return await self._engine.fetch_first(sql, values, tuple, _RUNTIME_SESSIONS.read)

    async def newest(self, runtime: str, limit: int) -> Sequence[RuntimeSession]:
        values = {"runtime": runtime, "limit": limit}
        sql = _SQL["newest runtime sessions"]
        return (await select_rows(self._engine, sql, values, _RUNTIME_SESSIONS.read))[::-1]


def apply_compaction_write(connection: Connection, write: CompactionWrite) -> None:
    match write:
        case PutCompactionView(view):
            statement = "add view" if view.version == 1 else "change view"
            conflict = f"The history of session {view.session} was compacted meanwhile."
            put_row(connection, _SQL[statement], _VIEWS.values(view), conflict)
        case AddPin(pin):
            connection.execute(_SQL["add pin"], _PINS.values(pin))
        case RemovePin(id):
            connection.execute(_SQL["remove pin"], {"id": id})
        case _:
            assert_never(write)


def apply_run_write(connection: Connection, write: RunWrite) -> None:
    match write:
        case PutFailedRun(failed):
            connection.execute(_SQL["put failed"], _FAILED.values(failed))
        case AddSpendBefore(day, spender):
            conflict = f"The spending of {spender} before {day} is already stored."
            put_row(connection, _SQL["add spend"], fields_of(write), conflict)
        case PutPartialText(partial):
            connection.execute(_SQL["put partial text"], _PARTIAL.values(partial))
        case RemovePartialText(run):
            connection.execute(_SQL["remove partial text"], {"run": run})
        case _:
            assert_never(write)


def apply_runtime_session_write(connection: Connection, write: PutRuntimeSession) -> None:
    connection.execute(_SQL["put runtime session"], _RUNTIME_SESSIONS.values(write.record))
