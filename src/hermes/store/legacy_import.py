"""Import sessions from the public system's database: copy, verify, then swap the files."""

import os
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.ports.store import OpenSession
from hermes.schema.errors import StoreError
from hermes.schema.messages import Assistant
from hermes.store import legacy_rows
from hermes.store.connection import (
    READ_ONLY,
    READ_WRITE,
    Connection,
    Value,
    connect,
    load_statements,
    store_error,
)
from hermes.store.database_file import (
    is_hermes_database,
    is_legacy_database,
    open_writer,
    table_names,
)
from hermes.store.legacy_rows import LegacyMessage, LegacySession
from hermes.store.rows import encode_message, fetch_number, to_micros
from hermes.store.search_index import index_batch
from hermes.store.writes import add_usage, apply_writes, preview_of, role_of, session_number

_SQL = load_statements("adopt")
_LEGACY_SQL = load_statements("public")
_BUSY_TIMEOUT_MS = 500


class ImportResult(Struct, frozen=True):
    """What was imported, and where the old file is; None when there was nothing to do."""

    sessions: int
    messages: int
    backup_path: Path | None


def import_legacy(path: Path, clock: Clock) -> ImportResult:
    """Convert the public system's `state.db`. Blocks: run it in a thread.

    Everything is copied into a new file first and the names are swapped at the very end, so that a
    crash leaves either the old database or the new one in place.
    """
    try:
        if _is_done(path):
            return ImportResult(0, 0, None)
        with _locked_database(path) as old:
            new_path = path.with_name(f".{path.name}.adopting")
            _remove_remains(new_path)
            counts = _copy(old, new_path, clock)
            kept = _swap(path, new_path)
    except apsw.Error as error:
        raise store_error(error, path) from error
    except OSError as error:
        raise StoreError(f"{path} could not be imported: {error.strerror}.") from error
    return ImportResult(*counts, kept)


def _is_done(path: Path) -> bool:
    if not path.exists():
        raise StoreError(f"There is no database {path} to import.")
    with closing(connect(path, READ_ONLY)) as connection:
        if is_hermes_database(connection):
            return True
        if not is_legacy_database(connection):
            raise StoreError(f"{path} is a database of another program; it was not changed.")
    return False


@contextmanager
def _locked_database(path: Path) -> Generator[Connection]:
    """Open the old database exclusively, as a single file."""
    with closing(connect(path, READ_WRITE)) as old:
        old.set_busy_timeout(_BUSY_TIMEOUT_MS)
        try:
            # Leaving WAL mode requires all other connections to be closed, and merges the journal.
            old.execute(_LEGACY_SQL["fold journal"]).fetchall()
            old.execute("BEGIN EXCLUSIVE")
        except (apsw.BusyError, apsw.LockedError) as error:
            raise StoreError(
                f"Another process is using {path}.",
                hint="Stop the gateway and everything else that uses this home, then try again.",
            ) from error
        yield old
        old.execute("ROLLBACK")


def _copy(old: Connection, path: Path, clock: Clock) -> tuple[int, int]:
    """Return how many sessions and messages were copied; raises when any is missing."""
    with closing(open_writer(path)) as new:
        new.execute("BEGIN IMMEDIATE")
        sessions = list(legacy_rows.legacy_sessions(old))
        titles: set[tuple[str, str]] = set()
        messages = 0
        for session in sessions:
            _open(new, session, titles, clock)
            messages += _copy_messages(
                new, session.id, list(legacy_rows.legacy_messages(old, session.id))
            )
        for session in sessions:
            new.execute(_SQL["parent"], {"id": session.id, "parent": session.parent_session_id})
        for use in legacy_rows.legacy_usage(old, table_names(old)):
            if not use.is_empty:
                add_usage(new, use.row())
        _verify(old, new, len(sessions))
        new.execute("COMMIT")
        while index_batch(new):
            pass
        new.execute(_SQL["fold journal"]).fetchall()
    return len(sessions), messages


def _open(
    new: Connection, session: LegacySession, titles: set[tuple[str, str]], clock: Clock
) -> None:
    title = session.title or ""
    if (session.principal, title) in titles:
        title = f"{title} ({session.id})"
    if title:
        titles.add((session.principal, title))
    apply_writes(new, [OpenSession(session.session(title, clock.now()))], 0)


def _copy_messages(new: Connection, session: str, messages: Sequence[LegacyMessage]) -> int:
    n = session_number(new, session)
    preview: dict[str, Value] = {"preview": "", "preview_seq": 0}
    last, count, tool_calls = 0, 0, 0
    rows: list[tuple[Value, ...]] = []
    for seq, row in enumerate(messages, 1):
        message = row.message()
        at = legacy_rows.parse_time(row.timestamp)
        last = to_micros(at) if at else last
        calls = len(message.calls) if isinstance(message, Assistant) else 0
        rows.append((n, seq, role_of(message), last, calls, row.state, encode_message(message)))
        if row.state == 2:
            continue
        count += 1
        tool_calls += calls
        if not preview["preview"]:
            preview = {"preview": preview_of(message), "preview_seq": seq}
    new.executemany(_SQL["append"], rows)
    sums = {"last_seq": len(rows), "last_at": last, "messages": count, "tool_calls": tool_calls}
    new.execute(_SQL["tally"], {"n": n, **sums, **preview})
    return len(rows)


def _verify(old: Connection, new: Connection, sessions: int) -> None:
    expected = (sessions, fetch_number(old.execute(_LEGACY_SQL["count of messages"])))
    copied = (
        fetch_number(new.execute(_SQL["count of sessions"])),
        fetch_number(new.execute(_SQL["count of messages"])),
    )
    if copied != expected:
        raise StoreError(
            f"Only {copied[0]} of {expected[0]} sessions and {copied[1]} of {expected[1]} messages "
            "could be copied; the old database was not changed."
        )


def _swap(path: Path, new: Path) -> Path:
    """Give the old file a second name before replacing it."""
    number = 1
    while (kept := path.with_name(f"{path.name}.public-{number}")).exists():
        if kept.samefile(path):
            break
        number += 1
    else:
        os.link(path, kept)
    new.chmod(0o600)
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return kept


def _remove_remains(path: Path) -> None:
    """Remove the files of an import that was killed."""
    for end in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)
