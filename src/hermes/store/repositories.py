"""The repositories of a SQLite store, and the mapping between Structs and rows."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cached_property, partial
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    TypeAlias,
    TypeVar,
    assert_never,
    get_args,
    get_type_hints,
)

import msgspec
from msgspec import Raw, Struct

from hermes.ports.delegation import (
    AddDelegation,
    ChangeDelegation,
    CloseDelegation,
    Delegation,
    DelegationWrite,
)
from hermes.ports.processes import AddProcess, BackgroundProcess, ChangeProcess, ProcessWrite
from hermes.schema.errors import StateConflict, StoreError
from hermes.store.connection import Connection, Row, Value, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import fetch_number, from_micros, to_micros, unreadable_error
from hermes.store.workers import SqliteWorkers

if TYPE_CHECKING:
    from hermes.store.api_records import SqliteApiRecords
    from hermes.store.approval_records import SqliteApprovalRecords
    from hermes.store.board_watches import SqliteBoardWatches
    from hermes.store.chat_records import SqliteChatRecords
    from hermes.store.goals import SqliteGoals
    from hermes.store.jobs import SqliteJobs
    from hermes.store.ledger import SqliteLedgerRecords
    from hermes.store.session_records import (
        SqliteCompactionRecords,
        SqliteRunRecords,
        SqliteRuntimeSessions,
    )

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    # A cached property fits a protocol's property, which the type checker does not know.
    from builtins import property as lazy
else:
    lazy = cached_property

R = TypeVar("R")
S = TypeVar("S", bound=Struct)
_Encode: TypeAlias = Callable[[Any], Value]


class Columns(Generic[S]):
    """Statements read the columns in the order of the fields; further columns may follow."""

    def __init__(self, kind: type[S]) -> None:
        self._kind = kind

    @cached_property
    def _codecs(self) -> "list[tuple[str, _Encode | None, Callable[[Any], Any]]]":
        hints = get_type_hints(self._kind)
        return [(name, *_codec_of(hints[name])) for name in self._kind.__struct_fields__]

    def values(self, record: S, **more: Value) -> dict[str, Value]:
        """The bindings of a record by column, and `more` of them."""
        fields: dict[str, Value] = {}
        for name, encode, _ in self._codecs:
            value = getattr(record, name)
            fields[name] = value if value is None or encode is None else encode(value)
        return {**fields, **more}

    def read(self, row: Row) -> S:
        """Raises `StoreError` with the value of the row's first column."""
        try:
            fields = {
                name: None if value is None else decode(value)
                for (name, _, decode), value in zip(self._codecs, row, strict=False)
            }
            return self._kind(**fields)
        except (ValueError, TypeError, RecursionError) as error:
            name = row[0] if isinstance(row[0], str) else ""
            raise unreadable_error(f"The {self._kind.__name__} {name!r}", error) from error


async def select_rows(
    engine: Engine, sql: str, values: Mapping[str, Value], read: Callable[[Row], R]
) -> list[R]:
    """Return the rows of a statement; an unreadable one does not hide the others."""

    def select(connection: Connection) -> list[R]:
        return _readable_rows(connection.execute(sql, values).fetchall(), read)

    return await engine.read(select)


async def select_abandoned(
    engine: Engine, workers: SqliteWorkers, sql: str, read: Callable[[Row], R]
) -> list[R]:
    """The rows whose holder, the last column, belongs to a dead worker."""

    def select(connection: Connection) -> list[R]:
        rows = connection.execute(sql).fetchall()
        dead = [row for row in rows if not workers.is_alive(connection, str(row[-1]))]
        return _readable_rows(dead, read)

    return await engine.read(select)


def _readable_rows(rows: Iterable[Row], read: Callable[[Row], R]) -> list[R]:
    found: list[R] = []
    for row in rows:
        try:
            found.append(read(row))
        except StoreError as error:
            log.warning("%s", error)
    return found


def put_row(
    connection: Connection, statement: str, values: Mapping[str, Value], conflict: str
) -> None:
    """Write one row. Raises `StateConflict` if the statement's condition does not hold."""
    connection.execute(statement, values)
    if connection.changes() == 0:
        raise StateConflict(conflict)


def _codec_of(hint: Any) -> tuple[_Encode | None, Callable[[Any], Any]]:
    """How a value other than None is stored (None: as it is) and read."""
    optional = NoneType in get_args(hint)
    kinds = [one for one in get_args(hint) if one is not NoneType] if optional else [hint]
    kind = kinds[0] if len(kinds) == 1 else object
    if kind is datetime:
        encode, decode = to_micros, from_micros
    elif kind is Raw:
        encode, decode = bytes, Raw
    elif isinstance(kind, type) and issubclass(kind, Enum):
        encode, decode = _enum_value, kind
    elif kind in (str, int, float, bool):
        encode, decode = None, partial(msgspec.convert, type=kind, strict=kind is not bool)
    else:
        encode, decode = msgspec.json.encode, partial(msgspec.json.decode, type=hint)
    return encode, decode


def _enum_value(value: Enum) -> Value:
    return value.value


_SQL = load_statements("background_work")
_PROCESSES = Columns(BackgroundProcess)
_DELEGATIONS = Columns(Delegation)


class SqliteProcesses:
    """Implements `hermes.ports.processes.ProcessRecords`."""

    def __init__(self, engine: Engine, workers: SqliteWorkers) -> None:
        self._engine = engine
        self._workers = workers

    async def get(self, id: str) -> BackgroundProcess | None:  # noqa: A002 the field's name
        return await self._engine.fetch_first(_SQL["process"], {"id": id}, tuple, _PROCESSES.read)

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


# ruff: noqa: PLC0415 - loaded on first use


class SqliteRepositories:
    """The repositories of a store, which sets the attributes; each is built at its first use."""

    _engine: Engine
    workers: SqliteWorkers

    @lazy
    def approvals(self) -> "SqliteApprovalRecords":
        from hermes.store.approval_records import SqliteApprovalRecords

        return SqliteApprovalRecords(self._engine)

    @lazy
    def processes(self) -> SqliteProcesses:
        return SqliteProcesses(self._engine, self.workers)

    @lazy
    def delegations(self) -> SqliteDelegations:
        return SqliteDelegations(self._engine, self.workers)

    @lazy
    def chats(self) -> "SqliteChatRecords":
        from hermes.store.chat_records import SqliteChatRecords

        return SqliteChatRecords(self._engine)

    @lazy
    def compaction(self) -> "SqliteCompactionRecords":
        from hermes.store.session_records import SqliteCompactionRecords

        return SqliteCompactionRecords(self._engine)

    @lazy
    def runs(self) -> "SqliteRunRecords":
        from hermes.store.session_records import SqliteRunRecords

        return SqliteRunRecords(self._engine, self.workers)

    @lazy
    def runtime_sessions(self) -> "SqliteRuntimeSessions":
        from hermes.store.session_records import SqliteRuntimeSessions

        return SqliteRuntimeSessions(self._engine)

    @lazy
    def ledger(self) -> "SqliteLedgerRecords":
        from hermes.store.ledger import SqliteLedgerRecords

        return SqliteLedgerRecords(self._engine, self.workers)

    @lazy
    def api(self) -> "SqliteApiRecords":
        from hermes.store.api_records import SqliteApiRecords

        return SqliteApiRecords(self._engine, self.workers)

    @lazy
    def jobs(self) -> "SqliteJobs":
        from hermes.store.jobs import SqliteJobs

        return SqliteJobs(self._engine)

    @lazy
    def board_watches(self) -> "SqliteBoardWatches":
        from hermes.store.board_watches import SqliteBoardWatches

        return SqliteBoardWatches(self._engine)

    @lazy
    def goals(self) -> "SqliteGoals":
        from hermes.store.goals import SqliteGoals

        return SqliteGoals(self._engine)
