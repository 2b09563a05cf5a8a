"""Read rows of the public system's database and convert them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs

from hermes.kit.ids import new_id
from hermes.schema.chat_api import (
    ExtraFields,
    WireCall,
    WireContent,
    WireFunction,
    WireMessage,
    as_user_message,
    message_of,
)
from hermes.schema.messages import Message, Trust
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.store.connection import Connection, Value, load_statements

T = TypeVar("T")
LegacyTime: TypeAlias = float | str | None
_SQL = load_statements("public")
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
    return [str(row[0]) for row in old.execute(_SQL["columns"], {"table": table}).fetchall()]


def _read(
    old: Connection,
    statement: str,
    kind: type[T],
    columns: Sequence[str],
    values: Mapping[str, Value] | None = None,
) -> Iterator[T]:
    for row in old.execute(_SQL[statement], values):
        fields = {name: _text(value) for name, value in zip(columns, row, strict=True)}
        yield msgspec.convert(fields, kind, strict=False)


def _text(value: Value) -> str | int | float | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


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
