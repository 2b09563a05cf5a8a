"""Import sessions from the public system's database: copy, verify, then swap the files."""

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias, TypeVar

import apsw
import msgspec
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.store import OpenSession
from hermes.schema.chat_api import (
    ExtraFields,
    WireCall,
    WireContent,
    WireFunction,
    WireMessage,
    as_user_message,
    message_of,
)
from hermes.schema.errors import StoreError
from hermes.schema.messages import Assistant, Message, Trust
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
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
    sync_folder,
    table_names,
)
from hermes.store.rows import encode_message, fetch_number, to_micros
from hermes.store.search_index import index_batch
from hermes.store.writes import add_usage, apply_writes, preview_of, role_of, session_number

T = TypeVar("T")
LegacyTime: TypeAlias = float | str | None
_SQL = load_statements("adopt")
_LEGACY_SQL = load_statements("public")
_JSON_MARKS = ("\x00json:", "\x01json:")
"""Prefixes that mark content as a list of parts."""
_LOCAL = frozenset({"", "cli", "tui", "acp", "desktop", "cron"})


class LegacySession(Struct, frozen=True):
    id: str
    source: str | None = None
    user_id: str | None = None
    session_key: str | None = None
    model: str | None = None
    billing_provider: str | None = None
    system_prompt: str | None = None
    parent_session_id: str | None = None
    started_at: LegacyTime = None
    ended_at: LegacyTime = None
    end_reason: str | None = None
    cwd: str | None = None
    title: str | None = None

    @property
    def principal(self) -> str:
        """The chat user it belongs to, or the owner."""
        source = self.source or ""
        return OWNER if source in _LOCAL or not self.user_id else f"{source}:{self.user_id}"

    def session(self, title: str, now: datetime) -> Session:
        return Session(
            id=self.id,
            started_at=parse_time(self.started_at) or now,
            source=self.source or "cli",
            principal=self.principal,
            key=self.session_key or "",
            title=title,
            model=self.model or "",
            provider=self.billing_provider or "",
            system=self.system_prompt or "",
            cwd=self.cwd or "",
            ended_at=parse_time(self.ended_at),
            end_reason=self.end_reason or "",
        )


class LegacyMessage(Struct, frozen=True):
    id: int
    session_id: str
    role: str
    content: str | None = None
    tool_call_id: str | None = None
    tool_calls: str | None = None
    timestamp: LegacyTime = None
    finish_reason: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    active: int | None = 1
    compacted: int | None = 0

    @property
    def state(self) -> int:
        """As in the table `messages`: live, compacted, or taken back."""
        if self.active or self.active is None:
            return 0
        return 1 if self.compacted else 2

    def message(self) -> Message:
        name = f"msg_public_{self.id}"
        wire = WireMessage(
            role=self.role,
            content=_content(self.content),
            reasoning_content=self.reasoning_content or self.reasoning,
            tool_calls=_calls(self.tool_calls),
            tool_call_id=self.tool_call_id,
            finish_reason=self.finish_reason,
            hermes=ExtraFields(id=name),
        )
        # Texts from their program keep their position, marked as a program's.
        fields = ExtraFields(id=name, trust=Trust.PROGRAM)
        return message_of(wire) or as_user_message(structs.replace(wire, hermes=fields))


class LegacyUsage(Struct, frozen=True):
    """Tokens of one model in one session; cached tokens are not part of `input`."""

    session_id: str
    model: str | None = None
    billing_provider: str | None = None
    api_call_count: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated_cost_usd: float | None = None
    actual_cost_usd: float | None = None
    cost_status: str | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.api_call_count or self.input_tokens or self.output_tokens)

    def row(self) -> dict[str, Value]:
        read, written = self.cache_read_tokens or 0, self.cache_write_tokens or 0
        cost = self.actual_cost_usd or self.estimated_cost_usd or 0.0
        known = cost > 0 or self.cost_status not in (None, "", "unknown")
        return {
            "id": self.session_id,
            "model": self.model or "",
            "provider": self.billing_provider or "",
            "calls": self.api_call_count or 0,
            "input": (self.input_tokens or 0) + read + written,
            "output": self.output_tokens or 0,
            "cache_read": read,
            "cache_write": written,
            "reasoning": self.reasoning_tokens or 0,
            "cost": cost,
            "unpriced": 0 if known else max(self.api_call_count or 0, 1),
        }


def legacy_sessions(old: Connection) -> Iterator[LegacySession]:
    """All sessions, including those that are only known from their messages."""
    yield from _read(old, "sessions", LegacySession, _columns(old, "sessions"))
    yield from _read(old, "orphans", LegacySession, ["id", "started_at"])


def legacy_messages(old: Connection, session: str) -> Iterator[LegacyMessage]:
    return _read(old, "messages", LegacyMessage, _columns(old, "messages"), {"id": session})


def legacy_usage(old: Connection, tables: set[str]) -> Iterator[LegacyUsage]:
    """Usage per model where it was recorded, otherwise the session's totals."""
    counted: set[str] = set()
    if "session_model_usage" in tables:
        columns = _columns(old, "session_model_usage")
        for use in _read(old, "session_model_usage", LegacyUsage, columns):
            counted.add(use.session_id)
            yield use
    for use in _read(old, "totals", LegacyUsage, [*_columns(old, "sessions"), "session_id"]):
        if use.session_id not in counted:
            yield use


def parse_time(at: LegacyTime) -> datetime | None:
    if at is None or at == "":
        return None
    try:
        return datetime.fromtimestamp(float(at), UTC)
    except (ValueError, OverflowError):
        pass
    try:
        parsed = datetime.fromisoformat(str(at))
    except ValueError:
        return None
    return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _columns(old: Connection, table: str) -> list[str]:
    """Ask the file itself, since columns differ between releases."""
    return [str(row[0]) for row in old.execute(_LEGACY_SQL["columns"], {"table": table}).fetchall()]


def _read(
    old: Connection,
    statement: str,
    kind: type[T],
    columns: Sequence[str],
    values: Mapping[str, Value] | None = None,
) -> Iterator[T]:
    for row in old.execute(_LEGACY_SQL[statement], values):
        fields = {
            name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            for name, value in zip(columns, row, strict=True)
        }
        yield msgspec.convert(fields, kind, strict=False)


def _content(content: str | None) -> WireContent:
    if not content or not content.startswith(_JSON_MARKS):
        return content
    try:
        return msgspec.json.decode(content[6:], type=list[dict[str, object]])
    except msgspec.MsgspecError:
        return content[6:]


def _calls(text: str | None) -> list[WireCall]:
    if not text:
        return []
    try:
        return msgspec.json.decode(text, type=list[WireCall])
    except msgspec.MsgspecError:
        return [WireCall(new_id("call"), WireFunction("unreadable", text))]


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
        sessions = list(legacy_sessions(old))
        titles: set[tuple[str, str]] = set()
        messages = 0
        for session in sessions:
            _open(new, session, titles, clock)
            messages += _copy_messages(new, session.id, list(legacy_messages(old, session.id)))
        for session in sessions:
            new.execute(_SQL["parent"], {"id": session.id, "parent": session.parent_session_id})
        for use in legacy_usage(old, table_names(old)):
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
        at = parse_time(row.timestamp)
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
    sync_folder(path.parent)
    return kept


def _remove_remains(path: Path) -> None:
    """Remove the files of an import that was killed."""
    for end in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)
