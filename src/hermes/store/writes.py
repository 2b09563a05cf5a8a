"""Apply a unit of writes inside an open transaction."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from itertools import zip_longest

import apsw
import msgspec
from msgspec import UNSET, Struct

from hermes.kit.ids import worker_of
from hermes.kit.text import one_line
from hermes.ports.journal import AppendRunEvents, SaveResponse
from hermes.ports.store import (
    AmendItem,
    AppendMessage,
    ChangeSession,
    CompleteItem,
    DropItems,
    EnqueueItem,
    HideMessages,
    Intent,
    OpenSession,
    QueueItem,
    RecordIntent,
    RecordUsage,
    ReleaseLease,
    SettleIntent,
    SingleWrite,
    Write,
)
from hermes.schema.errors import LeaseLost, NotFound, StateConflict, StoreError
from hermes.schema.messages import Assistant, Message, Result, Trust, User, typed_text
from hermes.schema.sessions import Session, SessionChange
from hermes.store.connection import Connection, Value, load_statements
from hermes.store.journal import append_run_events, save_response
from hermes.store.rows import (
    NumberRow,
    encode_message,
    fetch_number,
    fetch_one,
    fields_of,
    to_micros,
)
from hermes.store.workers import release_lease

_SQL = load_statements("writes")
_ROLES: dict[type[Message], str] = {User: "user", Assistant: "assistant", Result: "result"}
MAX_PREVIEW = 80


def apply_writes(connection: Connection, writes: Sequence[Write], now: int) -> None:
    appends: list[AppendMessage] = []
    opened: Session | None = None
    for write, following in zip_longest(writes, writes[1:]):
        if isinstance(write, AppendMessage):
            appends.append(write)
            continue
        if appends:
            _append_messages(connection, appends, opened)
            appends, opened = [], None
        if (
            isinstance(write, OpenSession)
            and isinstance(following, AppendMessage)
            and following.session == write.session.id
        ):
            # Added together with its first messages.
            opened = write.session
        else:
            _apply_write(connection, write, now)
    if appends:
        _append_messages(connection, appends, opened)


def _apply_write(  # noqa: C901, PLR0912 - one case per kind of write
    connection: Connection, write: SingleWrite, now: int
) -> None:
    match write:
        case OpenSession(session):
            _open_session(connection, session, _NO_MESSAGES)
        case ChangeSession(session, change):
            _change_session(connection, session, change, now)
        case HideMessages(session, seq):
            _hide(connection, session, seq)
        case RecordIntent(intent):
            _record_intent(connection, intent)
        case SettleIntent(session, call):
            connection.execute(_SQL["settle"], {"session": session, "call": call})
        case RecordUsage():
            _record_usage(connection, write)
        case EnqueueItem(item, holder):
            enqueue(connection, item, holder)
        case CompleteItem(key, holder):
            if holder and not is_held(connection, key, holder):
                raise item_lost(key)
            connection.execute(_SQL["done"], {"key": key, "now": now})
        case AmendItem(key, body, holder):
            if holder and not is_held(connection, key, holder):
                raise item_lost(key)
            connection.execute(_SQL["amend"], {"key": key, "body": bytes(body)})
        case DropItems():
            _drop_items(connection, write, now)
        case ReleaseLease(session, generation):
            release_lease(connection, session, generation)
        case AppendRunEvents():
            append_run_events(connection, write)
        case SaveResponse(response):
            save_response(connection, response)
        case _:
            from hermes.store.repository_writes import apply_repository_write  # noqa: PLC0415 - loaded on first use

            apply_repository_write(connection, write)


def item_lost(key: str) -> LeaseLost:
    return LeaseLost(
        f"Another process has taken over the queue item {key}; nothing was written.",
        hint="Nothing needs to be done: the other process finishes it.",
    )


def is_held(connection: Connection, key: str, holder: str) -> bool:
    """Whether the holder's worker holds the item, or has completed it."""
    values = {"key": key, "worker": worker_of(holder)}
    return fetch_number(connection.execute(_SQL["held"], values)) > 0


def enqueue(connection: Connection, item: QueueItem, holder: str = "") -> bool:
    """Return False when the key was seen before; with a holder it is claimed at once."""
    due = None if item.due is None else to_micros(item.due)
    values = fields_of(item, body=bytes(item.body), due=due, holder=holder, until=None)
    connection.execute(_SQL["post claimed" if holder else "post"], values)
    return connection.changes() > 0


def enqueue_first(connection: Connection, item: QueueItem, holder: str, until: int) -> bool:
    """Like `enqueue` with a holder; False also if other items of the topic wait."""
    values = fields_of(item, body=bytes(item.body), holder=holder, until=until)
    connection.execute(_SQL["post first"], values)
    return connection.changes() > 0


def preview_of(message: Message) -> str:
    """The preview of a session: one line of what its user said."""
    if not isinstance(message, User) or message.trust is Trust.PROGRAM:
        return ""
    text = typed_text(message)[: MAX_PREVIEW * 20]
    # Content from outside starts with its origin, followed by how to treat it.
    return one_line(text.partition("\n\n")[0] if message.trust is Trust.DATA else text, MAX_PREVIEW)


def session_number(connection: Connection, session: str) -> int:
    number = fetch_one(connection.execute(_SQL["number"], {"id": session}), NumberRow)
    if number is None:
        raise session_not_found(session)
    return number.value


def session_not_found(name: str) -> NotFound:
    return NotFound(
        f"There is no session {name!r}.", hint="List sessions with: hermes sessions list"
    )


_NO_MESSAGES: Mapping[str, Value] = {
    "count": 0, "calls": 0, "at": 0, "preview": "", "preview_at": 0,
}  # fmt: skip


def _open_session(connection: Connection, session: Session, sums: Mapping[str, Value]) -> int:
    """Add a session with the sums of its first messages; return its number."""
    parent = None if session.parent is None else session_number(connection, session.parent)
    values = fields_of(
        session,
        started_at=to_micros(session.started_at),
        parent=parent,
        ended_at=None if session.ended_at is None else to_micros(session.ended_at),
    )
    try:
        connection.execute(_SQL["open"], {**values, **sums})
    except apsw.ConstraintError as error:
        raise _duplicate_error(connection, session) from error
    n = connection.last_insert_rowid()
    if session.system:
        connection.execute(_SQL["prompt"], {"n": n, "value": session.system})
    return n


def _duplicate_error(connection: Connection, session: Session) -> StoreError:
    if connection.execute(_SQL["number"], {"id": session.id}).fetchall():
        return StateConflict(f"The session {session.id!r} already exists.")
    return _title_error(session.title)


def _title_error(title: str) -> StoreError:
    return StoreError(
        f"Another session already has the title {title!r}.", hint="Choose another title."
    )


def _change_session(connection: Connection, session: str, change: SessionChange, now: int) -> None:
    n = session_number(connection, session)
    if change.system is not UNSET:
        connection.execute(_SQL["prompt"], {"n": n, "value": change.system})
    if change.key is not UNSET:
        connection.execute(_SQL["move"], {"n": n, "value": change.key, "now": now})
    fields = fields_of(change)
    if change.ended_at:
        fields["ended_at"] = to_micros(change.ended_at)
    for name, value in fields.items():
        if value is UNSET or name in {"system", "key"}:
            continue
        try:
            connection.execute(_SQL[f"set {name}"], {"n": n, "value": value})
        except apsw.ConstraintError as error:
            if name != "title":
                raise
            raise _title_error(str(value)) from error


class _SessionPosition(Struct, array_like=True, frozen=True):
    n: int
    last_seq: int


def _append_messages(
    connection: Connection, appends: Iterable[AppendMessage], opened: Session | None
) -> None:
    """Update the sums once per session, or add the one `opened`; insert all rows at once."""
    by_session: dict[str, list[AppendMessage]] = {}
    for append in appends:
        by_session.setdefault(append.session, []).append(append)
    rows: list[tuple[Value, ...]] = []
    for session, added in by_session.items():
        times = [to_micros(append.at) for append in added]
        calls = [
            len(append.message.calls) if isinstance(append.message, Assistant) else 0
            for append in added
        ]
        previews = [preview_of(append.message) for append in added]
        preview = next(filter(None, previews), "")
        values = {
            "id": session,
            "count": len(added),
            "calls": sum(calls),
            "at": max(times),
            "preview": preview,
            "preview_at": previews.index(preview) + 1,
        }
        if opened is not None and opened.id == session:
            position = _SessionPosition(_open_session(connection, opened, values), len(added))
        else:
            position = fetch_one(connection.execute(_SQL["tally"], values), _SessionPosition)
        if position is None:
            raise session_not_found(session)
        first = position.last_seq - len(added) + 1
        for seq, (append, at, called) in enumerate(zip(added, times, calls, strict=True), first):
            message = append.message
            role, body = _ROLES[type(message)], encode_message(message)
            rows.append((position.n, seq, append.run, role, at, called, body))
    connection.executemany(_SQL["append"], rows)


def _hide(connection: Connection, session: str, seq: int) -> None:
    values = {"n": session_number(connection, session), "seq": seq}
    for statement in ("unindex words", "unindex grams", "untally", "hide"):
        connection.execute(_SQL[statement], values)


def _drop_items(connection: Connection, write: DropItems, now: int) -> None:
    kept = msgspec.json.encode(write.kept).decode()
    connection.execute(_SQL["drop"], fields_of(write, kept=kept, now=now))


def _record_intent(connection: Connection, intent: Intent) -> None:
    n = session_number(connection, intent.session)
    connection.execute(_SQL["begin"], fields_of(intent, n=n, at=to_micros(intent.at)))


def _record_usage(connection: Connection, record: RecordUsage) -> None:
    values = fields_of(
        record.usage,
        id=record.session,
        model=record.model,
        provider=record.provider,
        cost=record.cost or 0.0,
        calls=record.calls,
        unpriced=record.calls if record.cost is None else 0,
        day=f"{record.at.astimezone(UTC):%Y-%m-%d}",
    )
    if not add_usage(connection, values):
        raise session_not_found(record.session)


def add_usage(connection: Connection, values: Mapping[str, Value]) -> bool:
    """Add a model's usage to both sums of a session. False when there is no such session.

    Without a `day`, it counts on that of the last message.
    """
    connection.execute(_SQL["meter session"], values)
    if not connection.changes():
        return False
    connection.execute(_SQL["meter model"], values)
    return True
