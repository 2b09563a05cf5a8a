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
from hermes.cli.verbs.sessions.actions import SessionsAction
from hermes.cli.verbs.sessions.formats.jsonl import SessionExport, decode
from hermes.config.home import ensure_home
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.ports.blobs import Blobs
from hermes.ports.store import AppendMessage, OpenSession, RecordUsage, Write
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.messages import Assistant, Message, Reasoning, Result, Trust, Usage, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUsage, Session
from hermes.store.sqlite import SqliteStore

_MAX_AMOUNT = 1_000_000_000
"""Calls, tokens, money: more than any one session takes."""
_MAX_NAMED = 5
_MAX_LINE = 512 * 1024 * 1024
_MAX_PIPED = 8 * 1024 * 1024 * 1024


class _LinePosition(Struct, frozen=True):
    """Where in the file a session stands."""

    id: str
    parent: str | None
    number: int
    offset: int


class _ImportReport(Struct):
    sessions: int = 0
    messages: int = 0
    there: list[str] = []
    renamed: list[str] = []
    orphaned: list[str] = []


def import_sessions(desk: SessionsAction) -> int:
    with _open_input(desk) as file:
        places = list(_parents_first(_find_sessions(file)))
        if not places:
            raise UsageError(f"There is no session in {desk.args.file}.")

        home = desk.context.home()
        ensure_home(home)
        blobs = open_blobs(home)

        async def work(store: SqliteStore) -> _ImportReport:
            report = _ImportReport()
            for place in places:
                await _import(store, blobs, _read(file, place), report)
            return report

        report = desk.with_store(work)
    _print_report(desk, report)
    return 0


@contextmanager
def _open_input(desk: SessionsAction) -> Generator[BinaryIO]:
    """The file, or what is piped in, kept where it can be read twice."""
    if desk.args.file == "-":
        with _spool(desk.context.stdin.buffer) as spool:
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
            with _spool(file) as spool:
                yield spool


@contextmanager
def _spool(source: BinaryIO) -> Generator[BinaryIO]:
    with tempfile.TemporaryFile() as spool:
        if _copy_limited(source, spool) > _MAX_PIPED:
            raise UsageError(
                f"More than {_MAX_PIPED:,} bytes were piped in.",
                hint="Write them to a file first, and import that.",
            )
        spool.seek(0)
        yield cast("BinaryIO", spool)


def _copy_limited(source: BinaryIO, spool: IO[bytes]) -> int:
    """How many bytes there were; what comes after too many is not read."""
    size = 0
    while size <= _MAX_PIPED and (piece := source.read(1024 * 1024)):
        size += spool.write(piece)
    return size


def _find_sessions(file: BinaryIO) -> dict[str, _LinePosition]:
    """Read it all before anything is written: a broken line means that nothing is imported."""
    places: dict[str, _LinePosition] = {}
    offset = 0
    for number, line in enumerate(iter(partial(file.readline, _MAX_LINE + 1), b""), 1):
        if len(line) > _MAX_LINE:
            raise UsageError(f"Line {number} is too long to be an exported session.")
        if line.strip():
            session = decode(line, number).session
            places.setdefault(session.id, _LinePosition(session.id, session.parent, number, offset))
        offset += len(line)
    return places


def _parents_first(places: dict[str, _LinePosition]) -> Iterator[_LinePosition]:
    """Every session after the one it continues."""
    given: set[str] = set()
    for place in places.values():
        line: list[_LinePosition] = []
        current: _LinePosition | None = place
        while current is not None and current.id not in given:
            given.add(current.id)
            line.append(current)
            current = places.get(current.parent or "")
        yield from reversed(line)


def _read(file: BinaryIO, place: _LinePosition) -> SessionExport:
    file.seek(place.offset)
    return decode(file.readline(), place.number)


async def _import(
    store: SqliteStore, blobs: Blobs, copy: SessionExport, report: _ImportReport
) -> None:
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
        report.renamed.append(f"{single_line(session.id)} is called {single_line(title)!r} now")
        session = structs.replace(session, title=title)
    for data in copy.files.values():
        await blobs.put(data, "")
    await store.commit(*_writes(session, copy))
    report.sessions += 1
    report.messages += len(copy.messages)


def _writes(session: Session, copy: SessionExport) -> Iterator[Write]:
    yield OpenSession(session)
    for stored in copy.messages:
        yield AppendMessage(session.id, stored.run, _as_untrusted(stored.message), stored.at)
    for use in copy.usage:
        yield _usage_write(session, use)


def _as_untrusted(message: Message) -> Message:
    """Nobody here has said it, and no provider has sealed it for us."""
    match message:
        case User():
            return structs.replace(message, trust=Trust.DATA)
        case Assistant(parts=parts, usage=usage):
            unsealed = tuple(
                structs.replace(part, signature=None) if isinstance(part, Reasoning) else part
                for part in parts
            )
            return structs.replace(message, parts=unsealed, usage=_clamp_usage(usage))
        case Result():
            return message
        case _:
            assert_never(message)


def _clamp_usage(usage: Usage) -> Usage:
    """What a file claims is added up for ever; no claim may spoil the sum."""
    counts = structs.asdict(usage)
    return Usage(**{name: min(max(count, 0), _MAX_AMOUNT) for name, count in counts.items()})


def _usage_write(session: Session, use: ModelUsage) -> RecordUsage:
    calls = max(1, min(use.calls, _MAX_AMOUNT))
    cost = None if use.cost is None else min(max(use.cost, 0.0), float(_MAX_AMOUNT))
    at = session.started_at
    return RecordUsage(
        session.id, "", use.model, use.provider, _clamp_usage(use.usage), cost, at, calls
    )


async def _exists(store: SqliteStore, session: str) -> bool:
    try:
        await store.archive_for(OWNER).get(session)
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
        found = await store.archive_for(principal).find(title)
    except NotFound:
        return False
    return found.title == title and found.principal == principal


def _print_report(desk: SessionsAction, report: _ImportReport) -> None:
    messages = plural(report.messages, "message")
    desk.printer.line(f"Imported {plural(report.sessions, 'session')} with {messages}.")
    if report.there:
        desk.printer.line(f"Skipped, because they are here already: {_name_list(report.there)}.")
    if report.orphaned:
        desk.printer.line(f"What these continue is not here: {_name_list(report.orphaned)}.")
    for renamed in report.renamed[:_MAX_NAMED]:
        desk.printer.line(f"Another session has that title: {renamed}.")


def _name_list(names: Iterable[str]) -> str:
    known = [single_line(name) for name in names]
    more = len(known) - _MAX_NAMED
    return ", ".join(known[:_MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")
