"""Carrying out one unit of writes inside the transaction that somebody else opened."""

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

import apsw
from msgspec import UNSET, Struct

from hermes.kit.text import one_line
from hermes.ports.journal import KeepResponse, NoteRun
from hermes.ports.matters import PutMatter
from hermes.ports.store import (
    Amend,
    Append,
    Begin,
    ChangeSession,
    Done,
    Hide,
    Intent,
    Meter,
    OpenSession,
    Parcel,
    Post,
    Release,
    Settle,
    Single,
    Write,
)
from hermes.schema.attachments import own_text
from hermes.schema.errors import NotFound, Overtaken, StoreError
from hermes.schema.messages import Assistant, Message, Result, Trust, User
from hermes.schema.sessions import Session, SessionChange
from hermes.store.connection import Connection, Value
from hermes.store.journal import keep, note
from hermes.store.leases import give_back
from hermes.store.matters import put
from hermes.store.rows import encode, micros, number_of, number_or_none, one_of
from hermes.store.statements import load

_SQL = load("writes")
PREVIEW = 80


def apply(connection: Connection, writes: Sequence[Write], now: int) -> None:
    appends: list[Append] = []
    for write in writes:
        if isinstance(write, Append):
            appends.append(write)
            continue
        if appends:
            _append(connection, appends)
            appends = []
        _apply(connection, write, now)
    if appends:
        _append(connection, appends)


def _apply(connection: Connection, write: Single, now: int) -> None:
    match write:
        case OpenSession(session):
            _open(connection, session)
        case ChangeSession(session, change):
            _change(connection, session, change, now)
        case Hide(session, seq):
            _hide(connection, session, seq)
        case Begin() | Settle():
            _intend(connection, write)
        case Meter():
            _meter(connection, write)
        case Post() | Done() | Amend():
            _move(connection, write, now)
        case Release(session, generation):
            give_back(connection, session, generation)
        case NoteRun() | KeepResponse() | PutMatter():
            _keep(connection, write)
        case _:
            assert_never(write)


def _keep(connection: Connection, write: NoteRun | KeepResponse | PutMatter) -> None:
    match write:
        case NoteRun():
            note(connection, write)
        case KeepResponse(response):
            keep(connection, response)
        case PutMatter():
            put(connection, write)
        case _:
            assert_never(write)


def _move(connection: Connection, write: Post | Done | Amend, now: int) -> None:
    match write:
        case Post(parcel):
            post(connection, parcel)
        case Done(key):
            connection.execute(_SQL["done"], {"key": key, "now": now})
        case Amend(key, body):
            connection.execute(_SQL["amend"], {"key": key, "body": bytes(body)})
        case _:
            assert_never(write)


def post(connection: Connection, parcel: Parcel) -> bool:
    """False when the key was seen before."""
    due = None if parcel.due is None else micros(parcel.due)
    connection.execute(_SQL["post"], _values(parcel) | {"due": due})
    return connection.changes() > 0


def post_claimed(connection: Connection, parcel: Parcel, holder: str, until: int) -> bool:
    """Post it as somebody's already, which saves claiming it. False when the key is known."""
    connection.execute(_SQL["post claimed"], _values(parcel) | {"holder": holder, "until": until})
    return connection.changes() > 0


def _values(parcel: Parcel) -> dict[str, Value]:
    return {
        "key": parcel.key,
        "lane": parcel.lane,
        "topic": parcel.topic,
        "body": bytes(parcel.body),
        "attempts": parcel.attempts,
    }


def role_of(message: Message) -> str:
    match message:
        case User():
            return "user"
        case Assistant():
            return "assistant"
        case Result():
            return "result"
        case _:
            assert_never(message)


def preview_of(message: Message) -> str:
    """How a session introduces itself: by what its person said, in a line."""
    if not isinstance(message, User) or message.trust is Trust.HOUSE:
        return ""
    text = own_text(message)[: PREVIEW * 20]
    # What comes from outside says first where it came from, and then how to take it.
    return one_line(text.partition("\n\n")[0] if message.trust is Trust.DATA else text, PREVIEW)


def number_of_session(connection: Connection, session: str) -> int:
    number = number_or_none(connection.execute(_SQL["number"], {"id": session}))
    if number is None:
        raise no_session(session)
    return number


def no_session(name: str) -> NotFound:
    return NotFound(
        f"There is no session {name!r}.", hint="`hermes sessions list` shows those there are."
    )


def _open(connection: Connection, session: Session) -> None:
    parent = None if session.parent is None else number_of_session(connection, session.parent)
    values = {
        "id": session.id,
        "started_at": micros(session.started_at),
        "source": session.source,
        "principal": session.principal,
        "key": session.key,
        "title": session.title,
        "model": session.model,
        "provider": session.provider,
        "parent": parent,
        "cwd": session.cwd,
        "ended_at": None if session.ended_at is None else micros(session.ended_at),
        "end_reason": session.end_reason,
        "effort": session.effort,
        "personality": session.personality,
    }
    try:
        n = number_of(connection.execute(_SQL["open"], values))
    except apsw.ConstraintError as error:
        raise _taken(connection, session) from error
    if session.system:
        connection.execute(_SQL["prompt"], {"n": n, "value": session.system})


def _taken(connection: Connection, session: Session) -> StoreError:
    if number_or_none(connection.execute(_SQL["number"], {"id": session.id})) is not None:
        return Overtaken(f"There is already a session {session.id!r}.")
    return _title_taken(session.title)


def _title_taken(title: str) -> StoreError:
    return StoreError(f"Another session is already called {title!r}.", hint="Choose another title.")


def _change(connection: Connection, session: str, change: SessionChange, now: int) -> None:
    n = number_of_session(connection, session)
    if change.system is not UNSET:
        connection.execute(_SQL["prompt"], {"n": n, "value": change.system})
    ended_at = change.ended_at
    if change.key is not UNSET:
        connection.execute(_SQL["move"], {"n": n, "value": change.key, "now": now})
    fields = {
        "title": change.title,
        "model": change.model,
        "provider": change.provider,
        "cwd": change.cwd,
        "ended_at": micros(ended_at) if ended_at else ended_at,
        "end_reason": change.end_reason,
        "effort": change.effort,
        "personality": change.personality,
    }
    for name, value in fields.items():
        if value is UNSET:
            continue
        try:
            connection.execute(_SQL[f"set {name}"], {"n": n, "value": value})
        except apsw.ConstraintError as error:
            raise _title_taken(str(value)) from error


class _Place(Struct, array_like=True, frozen=True):
    n: int
    last_seq: int


class _Tally(Struct):
    """What a run of new messages adds to one session."""

    count: int = 0
    calls: int = 0
    at: int = 0
    preview: str = ""
    preview_at: int = 0
    n: int = 0
    seq: int = 0

    def add(self, message: Message, at: int) -> int:
        """Returns how many tools the message calls."""
        calls = len(message.calls) if isinstance(message, Assistant) else 0
        self.count += 1
        self.calls += calls
        self.at = max(self.at, at)
        if not self.preview and (preview := preview_of(message)):
            self.preview, self.preview_at = preview, self.count
        return calls


def _append(connection: Connection, appends: Iterable[Append]) -> None:
    """One count per session and one statement for all rows, however many there are."""
    tallies: dict[str, _Tally] = {}
    rows: list[tuple[_Tally, Append, int, int]] = []
    for append in appends:
        at = micros(append.at)
        tally = tallies.setdefault(append.session, _Tally())
        rows.append((tally, append, at, tally.add(append.message, at)))
    for session, tally in tallies.items():
        _count(connection, session, tally)
    connection.executemany(
        _SQL["append"],
        [
            (
                tally.n,
                _next(tally),
                append.run,
                role_of(append.message),
                at,
                calls,
                encode(append.message),
            )
            for tally, append, at, calls in rows
        ],
    )


def _count(connection: Connection, session: str, tally: _Tally) -> None:
    values = {
        "id": session,
        "count": tally.count,
        "calls": tally.calls,
        "at": tally.at,
        "preview": tally.preview,
        "preview_at": tally.preview_at,
    }
    place = one_of(connection.execute(_SQL["tally"], values), _Place)
    if place is None:
        raise no_session(session)
    tally.n, tally.seq = place.n, place.last_seq - tally.count


def _next(tally: _Tally) -> int:
    tally.seq += 1
    return tally.seq


def _hide(connection: Connection, session: str, seq: int) -> None:
    where = {"n": number_of_session(connection, session), "seq": seq}
    for statement in ("unindex words", "unindex grams", "untally", "hide"):
        connection.execute(_SQL[statement], where)


def _intend(connection: Connection, write: Begin | Settle) -> None:
    if isinstance(write, Begin):
        _begin(connection, write.intent)
    else:
        connection.execute(_SQL["settle"], {"session": write.session, "call": write.call})


def _begin(connection: Connection, intent: Intent) -> None:
    connection.execute(
        _SQL["begin"],
        {
            "n": number_of_session(connection, intent.session),
            "call": intent.call,
            "run": intent.run,
            "tool": intent.tool,
            "effect": intent.effect.value,
            "at": micros(intent.at),
        },
    )


def _meter(connection: Connection, meter: Meter) -> None:
    values: dict[str, Value] = {
        "id": meter.session,
        "model": meter.model,
        "provider": meter.provider,
        "input": meter.usage.input,
        "output": meter.usage.output,
        "cache_read": meter.usage.cache_read,
        "cache_write": meter.usage.cache_write,
        "reasoning": meter.usage.reasoning,
        "cost": meter.cost or 0.0,
        "calls": meter.calls,
        "unpriced": meter.calls if meter.cost is None else 0,
    }
    if not add_use(connection, values):
        raise no_session(meter.session)


def add_use(connection: Connection, values: Mapping[str, Value]) -> bool:
    """Add what a model cost to a session, in both sums. False when there is no such session."""
    n = number_or_none(connection.execute(_SQL["meter session"], values))
    if n is None:
        return False
    connection.execute(_SQL["meter model"], {**values, "n": n})
    return True
