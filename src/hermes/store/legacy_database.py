"""Read the public system's database, without changing it or leaving files next to it."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import quote

import apsw
import msgspec
from msgspec import Struct, structs

from hermes.kit.ids import new_id
from hermes.kit.json_errors import JSON_ERRORS
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
from hermes.schema.messages import Message, Trust
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.store.connection import Connection, Value, connect_uri, load_statements
from hermes.store.database_file import is_legacy_database, table_names
from hermes.store.rows import fetch_number

T = TypeVar("T")
R = TypeVar("R")
LegacyTime: TypeAlias = float | str | None
_SQL = load_statements("legacy_database")
_JSON_MARKS = ("\x00json:", "\x01json:")
"""Prefixes that mark content as a list of parts."""
_LOCAL = frozenset({"", "cli", "tui", "acp", "desktop", "cron"})
_READ_TRIES = 5
log = logging.getLogger(__name__)


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

    def session(self, now: datetime) -> Session:
        return Session(
            id=self.id,
            started_at=parse_time(self.started_at) or now,
            source=self.source or "cli",
            principal=self.principal,
            key=self.session_key or "",
            title=self.title or "",
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
            "day": None,
        }


class LegacyPage(Struct, frozen=True, kw_only=True):
    """Rows that follow a position: either sessions, or messages with the sessions they name."""

    sessions: Sequence[LegacySession] = ()
    usage: Sequence[LegacyUsage] = ()
    messages: Sequence[LegacyMessage] = ()
    last_session: int = 0
    last_message: int = 0


class LegacyDatabase:
    """The other program may use the file meanwhile: each page is read by a new connection."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def stamp(self) -> str:
        """Return a value that changes when the file or its journal is written."""
        return " ".join(_file_stamp(Path(f"{self._path}{end}")) for end in ("", "-wal"))

    def size(self) -> tuple[int, int]:
        """The highest row number of a session and of a message."""
        return self._read(_highest)

    def sessions(self, after: int, limit: int) -> LegacyPage:
        return self._read(lambda connection: _session_page(connection, after, limit))

    def messages(self, after: int, limit: int) -> LegacyPage:
        return self._read(lambda connection: _message_page(connection, after, limit))

    def _read(self, work: Callable[[Connection], R]) -> R:
        """Raises `StoreError` when the file cannot be read or is not the public system's.

        Reading would leave an empty journal behind where there was none. A file without a journal
        is therefore opened as immutable, and read again if it was changed meanwhile.
        """
        for _ in range(_READ_TRIES):
            if self._has_journal():
                return self._connected(work, "mode=ro")
            before = self.stamp()
            try:
                found = self._connected(work, "immutable=1")
            except StoreError:
                if self.stamp() == before and not self._has_journal():
                    raise
            else:
                if self.stamp() == before and not self._has_journal():
                    return found
        raise StoreError(
            f"{self._path} kept changing and was not imported. Stop the program that writes to it."
        )

    def _has_journal(self) -> bool:
        return any(Path(f"{self._path}{end}").exists() for end in ("-wal", "-journal"))

    def _connected(self, work: Callable[[Connection], R], mode: str) -> R:
        uri = f"file:{quote(str(self._path.absolute()))}?{mode}"
        try:
            with closing(connect_uri(uri)) as connection:
                connection.execute("BEGIN")
                if not is_legacy_database(connection):
                    raise StoreError(f"{self._path} is a database of another program.")
                return work(connection)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise StoreError(f"{self._path} cannot be imported: {error}.") from error


def _file_stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "-"
    return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def _highest(connection: Connection) -> tuple[int, int]:
    return (
        fetch_number(connection.execute(_SQL["last session"])),
        fetch_number(connection.execute(_SQL["last message"])),
    )


def _session_page(connection: Connection, after: int, limit: int) -> LegacyPage:
    values = {"after": after, "limit": limit}
    last = fetch_number(connection.execute(_SQL["last session of page"], values))
    columns = _columns(connection, "sessions")
    sessions = list(_rows(connection, "sessions", LegacySession, columns, values))
    usage = _usage(connection, [session.id for session in sessions])
    return LegacyPage(sessions=sessions, usage=usage, last_session=max(last, after))


def _message_page(connection: Connection, after: int, limit: int) -> LegacyPage:
    values = {"after": after, "limit": limit}
    last = fetch_number(connection.execute(_SQL["last message of page"], values))
    columns = _columns(connection, "messages")
    messages = list(_rows(connection, "messages", LegacyMessage, columns, values))
    # A session that is only known from its messages begins with the first of them.
    sessions = {
        message.session_id: LegacySession(id=message.session_id, started_at=message.timestamp)
        for message in reversed(messages)
    }
    columns = _columns(connection, "sessions")
    for session in _rows(connection, "named sessions", LegacySession, columns, _ids(sessions)):
        sessions[session.id] = session
    return LegacyPage(
        sessions=list(sessions.values()), messages=messages, last_message=max(last, after)
    )


def _usage(connection: Connection, sessions: Sequence[str]) -> list[LegacyUsage]:
    """Usage per model where it was recorded, otherwise the session's totals."""
    ids, found = _ids(sessions), list[LegacyUsage]()
    if "session_model_usage" in table_names(connection):
        columns = _columns(connection, "session_model_usage")
        found += _rows(connection, "usage per model", LegacyUsage, columns, ids)
    counted = {use.session_id for use in found}
    columns = [*_columns(connection, "sessions"), "session_id"]
    totals = _rows(connection, "usage per session", LegacyUsage, columns, ids)
    return found + [use for use in totals if use.session_id not in counted]


def _ids(sessions: Iterable[str]) -> dict[str, Value]:
    return {"ids": msgspec.json.encode(list(sessions)).decode()}


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


def _columns(connection: Connection, table: str) -> list[str]:
    """Ask the file itself, since columns differ between releases."""
    return [str(row[0]) for row in connection.execute(_SQL["columns"], {"table": table})]


def _rows(
    connection: Connection,
    statement: str,
    kind: type[T],
    columns: Sequence[str],
    values: Mapping[str, Value],
) -> Iterator[T]:
    """Yield the rows that can be read."""
    for row in connection.execute(_SQL[statement], values):
        fields = {
            name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            for name, value in zip(columns, row, strict=True)
        }
        try:
            yield msgspec.convert(fields, kind, strict=False)
        except msgspec.ValidationError as error:
            log.warning("skipped a row of the public system: %s", error)


def _content(content: str | None) -> WireContent:
    if not content or not content.startswith(_JSON_MARKS):
        return content
    try:
        return msgspec.json.decode(content[6:], type=list[dict[str, object]])
    except JSON_ERRORS:
        return content[6:]


def _calls(text: str | None) -> list[WireCall]:
    if not text:
        return []
    try:
        return msgspec.json.decode(text, type=list[WireCall])
    except JSON_ERRORS:
        return [WireCall(new_id("call"), WireFunction("unreadable", text))]
