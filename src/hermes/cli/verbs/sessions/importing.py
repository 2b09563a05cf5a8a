"""`sessions import`: what was said comes back; what is here already stays untouched.

A file can claim anything. So what gives rights or steers the agent does not come with it: whose
session it is, its chat, its folder, its prompt and voice, and who stands behind a message.
"""

import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, assert_never, cast

from msgspec import Struct, structs

from hermes.app.archive import open_blobs
from hermes.cli.export.jsonl import Copy, decode
from hermes.cli.export.plain import flat
from hermes.cli.verbs.sessions.desk import Desk
from hermes.config.home import ensure_home
from hermes.kit.text import plural
from hermes.ports.blobs import Blobs
from hermes.ports.store import Append, Meter, OpenSession, Write
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.messages import Assistant, Message, Reasoning, Result, Trust, Usage, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUse, Session
from hermes.store.sqlite import SqliteStore

_MOST = 1_000_000_000
"""Calls, tokens, money: more than any one session takes."""
_NAMED = 5
_LONGEST_LINE = 512 * 1024 * 1024
_MOST_PIPED = 8 * 1024 * 1024 * 1024


class _Place(Struct, frozen=True):
    """Where in the file a session stands."""

    id: str
    parent: str | None
    number: int
    offset: int


class _Report(Struct):
    sessions: int = 0
    messages: int = 0
    there: list[str] = []
    renamed: list[str] = []
    orphaned: list[str] = []


def bring(desk: Desk) -> int:
    with _opened(desk) as file:
        places = list(_in_order(_survey(file)))
        if not places:
            raise UsageError(f"There is no session in {desk.args.file}.")

        home = desk.context.home()
        ensure_home(home)
        blobs = open_blobs(home)

        async def work(store: SqliteStore) -> _Report:
            report = _Report()
            for place in places:
                await _import(store, blobs, _read(file, place), report)
            return report

        report = desk.with_store(work)
    _tell(desk, report)
    return 0


@contextmanager
def _opened(desk: Desk) -> Generator[BinaryIO]:
    """The file, or what is piped in, kept where it can be read twice."""
    if desk.args.file == "-":
        with _spooled(desk.context.stdin.buffer) as spool:
            yield spool
        return
    path = Path(desk.args.file).expanduser()
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    with file:
        if path.is_file():
            yield file
        else:
            with _spooled(file) as spool:
                yield spool


@contextmanager
def _spooled(source: BinaryIO) -> Generator[BinaryIO]:
    with tempfile.TemporaryFile() as spool:
        if _copied(source, spool) > _MOST_PIPED:
            raise UsageError(
                f"More than {_MOST_PIPED:,} bytes were piped in.",
                hint="Write them to a file first, and import that.",
            )
        spool.seek(0)
        yield cast("BinaryIO", spool)


def _copied(source: BinaryIO, spool: IO[bytes]) -> int:
    """How many bytes there were; what comes after too many is not read."""
    size = 0
    while size <= _MOST_PIPED and (piece := source.read(1024 * 1024)):
        size += spool.write(piece)
    return size


def _survey(file: BinaryIO) -> dict[str, _Place]:
    """Read it all before anything is written: a broken line means that nothing is imported."""
    places: dict[str, _Place] = {}
    offset = 0
    for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE + 1), b""), 1):
        if len(line) > _LONGEST_LINE:
            raise UsageError(f"Line {number} is too long to be an exported session.")
        if line.strip():
            session = decode(line, number).session
            places.setdefault(session.id, _Place(session.id, session.parent, number, offset))
        offset += len(line)
    return places


def _in_order(places: dict[str, _Place]) -> Iterator[_Place]:
    """Every session after the one it continues."""
    given: set[str] = set()
    for place in places.values():
        line: list[_Place] = []
        current: _Place | None = place
        while current is not None and current.id not in given:
            given.add(current.id)
            line.append(current)
            current = places.get(current.parent or "")
        yield from reversed(line)


def _read(file: BinaryIO, place: _Place) -> Copy:
    file.seek(place.offset)
    return decode(file.readline(), place.number)


async def _import(store: SqliteStore, blobs: Blobs, copy: Copy, report: _Report) -> None:
    session = structs.replace(
        copy.session, principal=OWNER, key="", system="", cwd="", effort="", personality=""
    )
    if await _exists(store, session.id):
        report.there.append(session.id)
        return
    if session.parent is not None and not await _exists(store, session.parent):
        report.orphaned.append(session.id)
        session = structs.replace(session, parent=None)
    title = await _free_title(store, session)
    if title != session.title:
        report.renamed.append(f"{flat(session.id)} is called {flat(title)!r} now")
        session = structs.replace(session, title=title)
    for data in copy.files.values():
        await blobs.put(data, "")
    await store.commit(*_writes(session, copy))
    report.sessions += 1
    report.messages += len(copy.messages)


def _writes(session: Session, copy: Copy) -> Iterator[Write]:
    yield OpenSession(session)
    for stored in copy.messages:
        yield Append(session.id, stored.run, _as_data(stored.message), stored.at)
    for use in copy.usage:
        yield _meter(session, use)


def _as_data(message: Message) -> Message:
    """Nobody here has said it, and no provider has sealed it for us."""
    match message:
        case User():
            return structs.replace(message, trust=Trust.DATA)
        case Assistant(parts=parts, usage=usage):
            unsealed = tuple(
                structs.replace(part, signature=None) if isinstance(part, Reasoning) else part
                for part in parts
            )
            return structs.replace(message, parts=unsealed, usage=_sane(usage))
        case Result():
            return message
        case _:
            assert_never(message)


def _sane(usage: Usage) -> Usage:
    """What a file claims is added up for ever; no claim may spoil the sum."""
    counts = structs.asdict(usage)
    return Usage(**{name: min(max(count, 0), _MOST) for name, count in counts.items()})


def _meter(session: Session, use: ModelUse) -> Meter:
    calls = max(1, min(use.calls, _MOST))
    cost = None if use.cost is None else min(max(use.cost, 0.0), float(_MOST))
    at = session.started_at
    return Meter(session.id, "", use.model, use.provider, _sane(use.usage), cost, at, calls)


async def _exists(store: SqliteStore, session: str) -> bool:
    try:
        await store.seen_by(OWNER).get(session)
    except NotFound:
        return False
    return True


async def _free_title(store: SqliteStore, session: Session) -> str:
    """Titles are unique; a second one gets a number."""
    title, number = session.title, 1
    while title and await _is_taken(store, session.principal, title):
        number += 1
        title = f"{session.title} ({number})"
    return title


async def _is_taken(store: SqliteStore, principal: str, title: str) -> bool:
    try:
        found = await store.seen_by(principal).find(title)
    except NotFound:
        return False
    return found.title == title and found.principal == principal


def _tell(desk: Desk, report: _Report) -> None:
    messages = plural(report.messages, "message")
    desk.paper.line(f"Imported {plural(report.sessions, 'session')} with {messages}.")
    if report.there:
        desk.paper.line(f"Skipped, because they are here already: {_some(report.there)}.")
    if report.orphaned:
        desk.paper.line(f"What these continue is not here: {_some(report.orphaned)}.")
    for renamed in report.renamed[:_NAMED]:
        desk.paper.line(f"Another session has that title: {renamed}.")


def _some(names: Iterable[str]) -> str:
    known = [flat(name) for name in names]
    more = len(known) - _NAMED
    return ", ".join(known[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
