"""Background processes and delegations on SQLite."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from hermes.ports.delegation import (
    AddDelegation,
    ChangeDelegation,
    CloseDelegation,
    Delegation,
    DelegationWrite,
)
from hermes.ports.processes import AddProcess, BackgroundProcess, ChangeProcess, ProcessWrite
from hermes.store.columns import Columns, put_row, select_abandoned, select_row, select_rows
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import fetch_number, to_micros
from hermes.store.workers import SqliteWorkers

_SQL = load_statements("background_work")
_PROCESSES = Columns(BackgroundProcess)
_DELEGATIONS = Columns(Delegation)


class SqliteProcesses:
    """Implements `hermes.ports.processes.ProcessRecords`."""

    def __init__(self, engine: Engine, workers: SqliteWorkers) -> None:
        self._engine = engine
        self._workers = workers

    async def get(self, id: str) -> BackgroundProcess | None:  # noqa: A002 the field's name
        return await select_row(self._engine, _SQL["process"], {"id": id}, _PROCESSES.read)

    async def all(self) -> Sequence[BackgroundProcess]:
        return (await select_rows(self._engine, _SQL["processes"], {}, _PROCESSES.read))[::-1]

    async def count_running(self, *, not_by: str = "") -> int:
        values = {"holder": not_by}
        return await self._engine.read(
            lambda connection: fetch_number(connection.execute(_SQL["count running"], values))
        )

    async def abandoned(self) -> Sequence[BackgroundProcess]:
        return await select_abandoned(
            self._engine, self._workers, _SQL["running processes"], _PROCESSES.read
        )

    async def forget(self, before: datetime) -> int:
        return await self._engine.execute(_SQL["forget processes"], {"before": to_micros(before)})


class SqliteDelegations:
    """Implements `hermes.ports.delegation.DelegationRecords`."""

    def __init__(self, engine: Engine, workers: SqliteWorkers) -> None:
        self._engine = engine
        self._workers = workers

    async def running(self) -> Sequence[Delegation]:
        return await select_rows(self._engine, _SQL["delegations"], {}, _DELEGATIONS.read)

    async def abandoned(self) -> Sequence[Delegation]:
        return await select_abandoned(
            self._engine, self._workers, _SQL["delegations"], _DELEGATIONS.read
        )


def apply_process_write(connection: Connection, write: ProcessWrite) -> None:
    process = write.process
    values = _PROCESSES.values(process, session=process.scope.session)
    match write:
        case AddProcess(_, holder):
            conflict = f"The process {process.id} is already present."
            put_row(connection, _SQL["add process"], {**values, "holder": holder}, conflict)
        case ChangeProcess():
            conflict = f"The process {process.id} is no longer running."
            put_row(connection, _SQL["change process"], values, conflict)
        case _:
            assert_never(write)


def apply_delegation_write(connection: Connection, write: DelegationWrite) -> None:
    match write:
        case AddDelegation(work):
            values = _DELEGATIONS.values(work, session=work.scope.session)
            conflict = f"The delegation {work.id} is already present."
            put_row(connection, _SQL["add delegation"], values, conflict)
        case ChangeDelegation(work):
            values = _DELEGATIONS.values(work)
            put_row(connection, _SQL["change delegation"], values, _reported(work.id))
        case CloseDelegation(id):
            put_row(connection, _SQL["close delegation"], {"id": id}, _reported(id))
        case _:
            assert_never(write)


def _reported(delegation: str) -> str:
    return f"The delegation {delegation} was already reported."
