"""Store a board in the public system's `kanban.db`, which both programs may use at once."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import apsw
import msgspec
from msgspec import UNSET, Struct, structs

from hermes.schema.board import (
    Attachment,
    BoardSubscription,
    Comment,
    JsonObject,
    RunChange,
    Task,
    TaskChange,
    TaskEvent,
    TaskFilter,
    TaskRun,
    TaskStatus,
)
from hermes.schema.errors import StoreError
from hermes.store.connection import (
    READ_WRITE,
    Connection,
    Row,
    Rows,
    Value,
    connect,
    file_store_error,
    load_statements,
    store_error,
    write_transaction,
)
from hermes.store.database_file import enter_wal
from hermes.store.rows import fetch_number, unreadable_error

_SQL = load_statements("board")
_SCHEMA = Path(__file__).with_name("board_schema.sql").read_text(encoding="utf-8")
R = TypeVar("R")
T = TypeVar("T", bound=Struct)
log = logging.getLogger(__name__)

_TABLES: Mapping[type[Struct], str] = {
    Task: "tasks",
    Comment: "task_comments",
    TaskEvent: "task_events",
    TaskRun: "task_runs",
    Attachment: "task_attachments",
    BoardSubscription: "kanban_notify_subs",
}
_JSON_COLUMNS = frozenset({"skills", "payload", "metadata"})
_ORDERS: Mapping[str, str] = {
    "assignee": "assignee, priority DESC, created_at",
    "created": "created_at",
    "created-desc": "created_at DESC",
    "priority": "priority, created_at",
    "priority-desc": "priority DESC, created_at",
    "status": "status, priority DESC, created_at",
    "title": "title COLLATE NOCASE",
    "updated": "coalesce(completed_at, last_heartbeat_at, started_at, created_at) DESC",
}


class SqliteBoard:
    """Implements `hermes.ports.board.Board`."""

    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._lock = threading.Lock()

    @classmethod
    async def open(cls, path: Path) -> "SqliteBoard":
        """Create the file if there is none; add tables and columns that an older one lacks."""
        return cls(await anyio.to_thread.run_sync(_open, path), path)

    async def read(self, work: Callable[["SqliteBoardRows"], R]) -> R:
        return await self._run(work, write=False)

    async def write(self, work: Callable[["SqliteBoardRows"], R]) -> R:
        return await self._run(work, write=True)

    async def close(self) -> None:
        with self._lock:
            self._connection.close()

    async def _run(self, work: Callable[["SqliteBoardRows"], R], *, write: bool) -> R:
        def run() -> R:
            rows = SqliteBoardRows(self._connection)
            with self._lock:
                try:
                    if write:
                        with write_transaction(self._connection):
                            return work(rows)
                    return work(rows)
                except (apsw.Error, UnicodeEncodeError) as error:
                    raise store_error(error, self._path) from error

        return await anyio.to_thread.run_sync(run)


class SqliteBoardRows:
    """Implements `hermes.ports.board.BoardRows`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def task(self, task_id: str) -> Task | None:
        return self._first(Task, "WHERE id = ?", task_id)

    def task_by_idempotency_key(self, key: str) -> Task | None:
        where = "WHERE idempotency_key = ? AND status <> 'archived' ORDER BY created_at DESC"
        return self._first(Task, where, key)

    def tasks(self, wanted: TaskFilter) -> Sequence[Task]:
        conditions: list[str] = []
        values: list[Value] = []
        if wanted.statuses:
            conditions.append(f"status IN ({', '.join('?' * len(wanted.statuses))})")
            values.extend(wanted.statuses)
        elif not wanted.archived:
            conditions.append("status <> 'archived'")
        columns = {
            "assignee": wanted.assignee,
            "tenant": wanted.tenant,
            "session_id": wanted.session_id,
            "workflow_template_id": wanted.workflow_template_id,
            "current_step_key": wanted.step_key,
        }
        for column, value in columns.items():
            if value is not None:
                conditions.append(f"{column} = ?")
                values.append(value)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._all(
            Task, f"{where} ORDER BY {_ORDERS[wanted.sort]} LIMIT ?", *values, wanted.limit
        )

    def status_counts(self) -> Mapping[TaskStatus, int]:
        counts = {str(status): count for status, count in self._execute("status counts")}
        return {status: int(counts.get(status.value) or 0) for status in TaskStatus}

    def comment_counts(self) -> Mapping[str, int]:
        return {str(task): int(count or 0) for task, count in self._execute("comment counts")}

    def latest_summaries(self) -> Mapping[str, str]:
        return {str(task): str(text) for task, text in self._execute("latest summaries")}

    def running_by_assignee(self) -> Mapping[str, int]:
        rows = self._execute("running by assignee")
        return {str(assignee): int(count or 0) for assignee, count in rows}

    def add_task(self, task: Task) -> None:
        self._insert(task)

    def change_task(self, task_id: str, change: TaskChange) -> None:
        self._update("tasks", task_id, change)

    def parents(self, task_id: str) -> Sequence[str]:
        return self._texts("parents", task_id)

    def children(self, task_id: str) -> Sequence[str]:
        return self._texts("children", task_id)

    def links(self) -> Sequence[tuple[str, str]]:
        return [(str(parent), str(child)) for parent, child in self._execute("links")]

    def add_link(self, parent: str, child: str) -> None:
        self._execute("add link", parent, child)

    def remove_link(self, parent: str, child: str) -> bool:
        self._execute("remove link", parent, child)
        return self._connection.changes() > 0

    def open_parents(self, task_id: str) -> Sequence[str]:
        return self._texts("open parents", task_id)

    def promotable(self) -> Sequence[str]:
        return self._texts("promotable")

    def comments(self, task_id: str) -> Sequence[Comment]:
        return self._all(Comment, "WHERE task_id = ? ORDER BY id", task_id)

    def add_comment(self, task_id: str, author: str, body: str, at: int) -> int:
        return fetch_number(self._execute("add comment", task_id, author, body, at))

    def events(self, task_id: str, limit: int) -> Sequence[TaskEvent]:
        where = "WHERE task_id = ? ORDER BY id DESC LIMIT ?"
        return self._all(TaskEvent, where, task_id, limit)[::-1]

    def events_after(self, event_id: int, limit: int) -> Sequence[TaskEvent]:
        return self._all(TaskEvent, "WHERE id > ? ORDER BY id LIMIT ?", event_id, limit)

    def news(
        self, event_id: int, kinds: Collection[str], task_id: str | None, limit: int
    ) -> Sequence[TaskEvent]:
        where = f"WHERE id > ? AND kind IN ({', '.join('?' * len(kinds))})"
        values: list[Value] = [event_id, *kinds]
        if task_id is not None:
            where += " AND task_id = ?"
            values.append(task_id)
        return self._all(TaskEvent, f"{where} ORDER BY id LIMIT ?", *values, limit)

    def last_event(self, task_id: str, kinds: Collection[str]) -> TaskEvent | None:
        where = f"WHERE task_id = ? AND kind IN ({', '.join('?' * len(kinds))}) ORDER BY id DESC"
        return self._first(TaskEvent, where, task_id, *kinds)

    def last_event_id(self) -> int:
        return fetch_number(self._execute("last event"))

    def add_event(
        self, task_id: str, kind: str, at: int, payload: JsonObject | None, run_id: int | None
    ) -> int:
        text = None if payload is None else msgspec.json.encode(payload).decode()
        return fetch_number(self._execute("add event", task_id, kind, at, text, run_id))

    def run(self, run_id: int) -> TaskRun | None:
        return self._first(TaskRun, "WHERE id = ?", run_id)

    def runs(self, task_id: str) -> Sequence[TaskRun]:
        return self._all(TaskRun, "WHERE task_id = ? ORDER BY id", task_id)

    def recent_runs_by(self, profile: str, limit: int) -> Sequence[TaskRun]:
        where = "WHERE profile = ? AND outcome = 'completed' ORDER BY id DESC LIMIT ?"
        return self._all(TaskRun, where, profile, limit)

    def add_run(self, run: TaskRun) -> int:
        return self._insert(run, generated="id")

    def change_run(self, run_id: int, change: RunChange) -> None:
        self._update("task_runs", run_id, change)

    def attachments(self, task_id: str) -> Sequence[Attachment]:
        return self._all(Attachment, "WHERE task_id = ? ORDER BY id", task_id)

    def attachment(self, attachment_id: int) -> Attachment | None:
        return self._first(Attachment, "WHERE id = ?", attachment_id)

    def add_attachment(self, attachment: Attachment) -> int:
        return self._insert(attachment, generated="id")

    def remove_attachment(self, attachment_id: int) -> None:
        self._execute("remove attachment", attachment_id)

    def subscriptions(self, task_id: str | None = None) -> Sequence[BoardSubscription]:
        if task_id is None:
            return self._all(BoardSubscription, "ORDER BY rowid")
        return self._all(BoardSubscription, "WHERE task_id = ? ORDER BY rowid", task_id)

    def put_subscription(self, subscription: BoardSubscription) -> bool:
        found = self._first(
            BoardSubscription,
            "WHERE task_id = ? AND platform = ? AND chat_id = ? AND thread_id = ?",
            *_subscription_key(subscription),
        )
        if found is None:
            self._insert(subscription, generated="rowid", keep_generated=False)
        return found is None

    def remove_subscription(
        self, task_id: str, platform: str, chat_id: str, thread_id: str
    ) -> bool:
        self._execute("remove subscription", task_id, platform, chat_id, thread_id)
        return self._connection.changes() > 0

    def move_cursor(self, subscription: BoardSubscription, event_id: int) -> None:
        self._execute("move cursor", event_id, *_subscription_key(subscription))

    def delete_events(self, before: int) -> int:
        self._execute("delete events", before)
        return self._connection.changes()

    def _execute(self, statement: str, *values: Value) -> Rows:
        return self._connection.execute(_SQL[statement], values)

    def _texts(self, statement: str, *values: Value) -> list[str]:
        return [str(row[0]) for row in self._execute(statement, *values)]

    def _first(self, kind: type[T], rest: str, *values: Value) -> T | None:
        for row in self._select(kind, f"{rest} LIMIT 1", values).fetchall():
            return _decode(row, kind)
        return None

    def _all(self, kind: type[T], rest: str, *values: Value) -> list[T]:
        """Skip rows that cannot be read, so that one bad row does not stop the board."""
        found: list[T] = []
        for row in self._select(kind, rest, values).fetchall():
            try:
                found.append(_decode(row, kind))
            except StoreError as error:
                log.warning("%s", error)
        return found

    def _select(self, kind: type[Struct], rest: str, values: Sequence[Value]) -> Rows:
        # Column names come from our own types.
        columns = ", ".join(kind.__struct_fields__)
        return self._connection.execute(
            f"SELECT {columns} FROM {_TABLES[kind]} {rest}",  # noqa: S608 - as above
            values,
        )

    def _insert(self, row: Struct, generated: str = "rowid", *, keep_generated: bool = True) -> int:
        values = {name: value for name, value in _columns(row) if name != generated}
        columns, places = ", ".join(values), ", ".join("?" * len(values))
        returned = self._connection.execute(
            f"INSERT INTO {_TABLES[type(row)]} ({columns}) VALUES ({places}) "  # noqa: S608 - as above
            "RETURNING rowid",
            tuple(values.values()),
        )
        return fetch_number(returned) if keep_generated else 0

    def _update(self, table: str, row_id: str | int, change: TaskChange | RunChange) -> None:
        values = {name: value for name, value in _columns(change) if value is not UNSET}
        if not values:
            return
        columns = ", ".join(f"{name} = ?" for name in values)
        self._connection.execute(
            f"UPDATE {table} SET {columns} WHERE id = ?",  # noqa: S608 - as above
            (*values.values(), row_id),
        )


def _subscription_key(subscription: BoardSubscription) -> tuple[str, str, str, str]:
    return (
        subscription.task_id,
        subscription.platform,
        subscription.chat_id,
        subscription.thread_id,
    )


def _columns(row: Struct) -> list[tuple[str, Value]]:
    return [(name, _encode(name, value)) for name, value in structs.asdict(row).items()]


def _encode(name: str, value: Value) -> Value:
    if value is None or value is UNSET:
        return value
    if name in _JSON_COLUMNS:
        return msgspec.json.encode(value).decode() if value else None
    return int(value) if isinstance(value, bool) else value


def _decode(row: Row, kind: type[T]) -> T:
    """Convert a row; a missing value takes the field's default."""
    values: dict[str, object] = {}
    try:
        for name, value in zip(kind.__struct_fields__, row, strict=True):
            if value is not None and name in _JSON_COLUMNS:
                values[name] = msgspec.json.decode(str(value) or "null")
            elif value is not None:
                values[name] = value
        return msgspec.convert(values, kind, strict=False)
    except ValueError as error:
        raise unreadable_error(f"The row {row[0]!r} of the board", error) from error


def _open(path: Path) -> Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
    except OSError as error:
        raise file_store_error(error, path) from error
    try:
        connection = connect(path, READ_WRITE)
        try:
            enter_wal(connection)
            connection.execute(_SQL["pragmas"]).fetchall()
            _complete_schema(connection)
        except BaseException:
            connection.close()
            raise
    except apsw.Error as error:
        raise store_error(error, path) from error
    return connection


def _complete_schema(connection: Connection) -> None:
    """Create what is missing; the public system adds columns in the same way."""
    complete = connect(Path(":memory:"), READ_WRITE)
    complete.execute(_SCHEMA).fetchall()
    tables = [str(row[0]) for row in complete.execute(_SQL["tables"])]
    wanted = {table: _declarations(complete, table) for table in tables}
    complete.close()
    has_columns = all(not _missing(connection, *one) for one in wanted.items())
    # The order of lists is not indexed in boards of the public system.
    if has_columns and fetch_number(connection.execute(_SQL["has indexes"])):
        return
    with write_transaction(connection):
        connection.execute(_SCHEMA).fetchall()
        for table, columns in wanted.items():
            for name in _missing(connection, table, columns):
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {columns[name]}")
        connection.execute(_SQL["indexes"]).fetchall()


def _missing(connection: Connection, table: str, columns: Mapping[str, str]) -> list[str]:
    existing = _declarations(connection, table)
    return [name for name in columns if name not in existing]


def _declarations(connection: Connection, table: str) -> dict[str, str]:
    """The columns of a table, each as it would be declared."""
    found: dict[str, str] = {}
    for row in connection.execute(f"PRAGMA table_info({table})").fetchall():
        _, name, kind, required, default, _ = row
        parts = [str(name), str(kind), "NOT NULL" if required else ""]
        parts.append("" if default is None else f"DEFAULT {default}")
        found[str(name)] = " ".join(filter(None, parts))
    return found
