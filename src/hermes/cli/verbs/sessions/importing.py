"""`sessions import`: an export comes back as it was; what is here already stays untouched."""

import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

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
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUse, Session
from hermes.store.sqlite import SqliteStore

_MOST_CALLS = 1_000_000_000
_NAMED = 5


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
        with tempfile.TemporaryFile() as spool:
            shutil.copyfileobj(desk.context.stdin.buffer, spool)
            spool.seek(0)
            yield cast("BinaryIO", spool)
        return
    path = Path(desk.args.file).expanduser()
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    with file:
        yield file


def _survey(file: BinaryIO) -> dict[str, _Place]:
    """Read it all before anything is written: a broken line means that nothing is imported."""
    places: dict[str, _Place] = {}
    offset = 0
    for number, line in enumerate(file, 1):
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
    session = copy.session
    if await _exists(store, session.id):
        report.there.append(session.id)
        return
    if session.parent is not None and not await _exists(store, session.parent):
        report.orphaned.append(session.id)
        session = structs.replace(session, parent=None)
    title = await _free_title(store, session)
    if title != session.title:
        report.renamed.append(f"{session.id} is called {flat(title)!r} now")
        session = structs.replace(session, title=title)
    for data in copy.files.values():
        await blobs.put(data, "")
    await store.commit(*_writes(session, copy))
    report.sessions += 1
    report.messages += len(copy.messages)


def _writes(session: Session, copy: Copy) -> Iterator[Write]:
    yield OpenSession(session)
    for stored in copy.messages:
        yield Append(session.id, stored.run, stored.message, stored.at)
    for use in copy.usage:
        yield _meter(session, use)


def _meter(session: Session, use: ModelUse) -> Meter:
    calls = max(1, min(use.calls, _MOST_CALLS))
    at = session.started_at
    return Meter(session.id, "", use.model, use.provider, use.usage, use.cost, at, calls)


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
