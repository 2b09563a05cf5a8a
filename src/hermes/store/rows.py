"""Convert database rows to typed data and back."""

from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from hermes.ports.store import Intent
from hermes.schema.errors import StoreError
from hermes.schema.messages import Message, Usage
from hermes.schema.sessions import DailyUsage, ModelUsage, Session, SessionSummary, StoredMessage
from hermes.schema.tools import Effect
from hermes.store.connection import Row, Rows

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class SessionRow(Struct, array_like=True, frozen=True):
    """The leading columns of the view `whole_sessions`."""

    id: str
    started_at: int
    source: str
    principal: str
    key: str
    title: str
    model: str
    provider: str
    system: str | None
    parent: str | None
    cwd: str
    ended_at: int | None
    end_reason: str
    effort: str
    personality: str

    def session(self) -> Session:
        fields = fields_of(
            self,
            started_at=from_micros(self.started_at),
            system=self.system or "",
            ended_at=None if self.ended_at is None else from_micros(self.ended_at),
        )
        return Session(**{name: fields[name] for name in Session.__struct_fields__})


class SummaryRow(SessionRow, array_like=True, frozen=True):
    """All columns of the view `whole_sessions`."""

    last_at: int
    messages: int
    tool_calls: int
    preview: str
    model_calls: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost: float
    unpriced: int

    def summary(self) -> SessionSummary:
        return SessionSummary(
            session=self.session(),
            messages=self.messages,
            tool_calls=self.tool_calls,
            model_calls=self.model_calls,
            usage=Usage(self.input, self.output, self.cache_read, self.cache_write, self.reasoning),
            cost=None if self.unpriced else self.cost,
            last_at=from_micros(self.last_at),
            preview=self.preview,
        )


class SizeRow(Struct, frozen=True, array_like=True):
    seq: int
    size: int


class TimeRow(Struct, frozen=True, array_like=True):
    at: int

    def time(self) -> datetime:
        return from_micros(self.at)


class UsageRow(Struct, array_like=True, frozen=True):
    model: str
    provider: str
    calls: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost: float
    unpriced: int

    def model_usage(self) -> ModelUsage:
        return ModelUsage(
            model=self.model,
            provider=self.provider,
            calls=self.calls,
            usage=Usage(self.input, self.output, self.cache_read, self.cache_write, self.reasoning),
            cost=None if self.unpriced else self.cost,
        )


class DailyUsageRow(UsageRow, array_like=True, frozen=True):
    day: str
    session: str
    principal: str
    source: str

    def daily_usage(self) -> DailyUsage:
        return DailyUsage(
            **structs.asdict(self.model_usage()),
            day=date.fromisoformat(self.day),
            session=self.session,
            principal=self.principal,
            source=self.source,
        )


class MessageRow(Struct, array_like=True, frozen=True):
    seq: int
    at: int
    run: str
    body: bytes

    def stored(self, session: str) -> StoredMessage:
        message = decode_message(self.body, f"Message {self.seq} of session {session}")
        return StoredMessage(self.seq, from_micros(self.at), self.run, message)


class IntentRow(Struct, array_like=True, frozen=True):
    call: str
    session: str
    run: str
    tool: str
    effect: Effect
    at: int

    def intent(self) -> Intent:
        return Intent(**fields_of(self, at=from_micros(self.at)))


class NumberRow(Struct, array_like=True, frozen=True):
    value: int


def fields_of(row: Struct, **changed: object) -> dict[str, Any]:
    """The fields of a row or a record by name, some of them converted."""
    return structs.asdict(row) | changed


def to_micros(at: datetime) -> int:
    if at.tzinfo is None:
        raise StoreError("A time without a time zone cannot be stored.")
    return (at - _EPOCH) // _MICROSECOND


def micros_or_none(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def from_micros(at: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=at)
    except OverflowError as error:
        raise unreadable_error(f"The time {at}", error) from error


def row_as(row: Row, kind: type[T]) -> T:
    """Convert a row. Raises `StoreError` with the value of its first column."""
    try:
        return msgspec.convert(row, kind)
    except (ValueError, RecursionError) as error:
        name = kind.__name__.strip("_")
        raise unreadable_error(f"The {name} {row[0] if row else ''!r}", error) from error


def unreadable_error(what: str, error: Exception) -> StoreError:
    return StoreError(
        f"{what} in the database cannot be read: {error}.",
        hint="A newer version of Hermes may have written it: update Hermes, then try again.",
    )


def fetch_all(cursor: Rows, kind: type[T]) -> list[T]:
    return [row_as(row, kind) for row in cursor.fetchall()]


def fetch_one(cursor: Rows, kind: type[T]) -> T | None:
    """The first row. All are fetched, because an unfinished statement stays open."""
    for row in cursor.fetchall():
        return row_as(row, kind)
    return None


def fetch_number(cursor: Rows) -> int:
    """The single number of a statement that always returns a row."""
    number = fetch_one(cursor, NumberRow)
    if number is None:
        raise StoreError("A number is missing from the database.")
    return number.value


def encode_message(message: Message) -> bytes:
    """Encode a message. Raises when it could not be decoded again."""
    try:
        body = msgspec.json.encode(message)
        if b'"tool_call"' in body:
            _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"Message {message.id} cannot be stored: {error}.",
            hint="The arguments of its tool calls must be JSON.",
        ) from error
    return body


_decoder = msgspec.json.Decoder(Message)


def decode_message(body: bytes, name: str) -> Message:
    """Decode a message. Raises `StoreError` with the row's name."""
    try:
        return _decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise unreadable_error(name, error) from error
