"""`sessions import`: add sessions from an export; existing sessions are not changed.

The file is untrusted. Whatever grants permissions or steers the agent is not imported: owner,
chat, working directory, system prompt, personality and the trust of messages.
"""

import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, assert_never, cast

from msgspec import Struct, structs

from hermes.app.session_export import SessionExport, decode
from hermes.app.storage import open_blobs
from hermes.cli.verbs.sessions import SessionsAction
from hermes.config.home import ensure_home
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.ports.store import AppendMessage, Blobs, OpenSession, RecordUsage, Store, Write
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.messages import Assistant, Message, Reasoning, Result, Trust, Usage, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session

_MAX_AMOUNT = 1_000_000_000
"""Upper bound for calls, tokens and cost of one session."""
_MAX_NAMED = 5
_MAX_LINE = 512 * 1024 * 1024
_MAX_PIPED = 8 * 1024 * 1024 * 1024


class _LinePosition(Struct, frozen=True):
    """The position of a session in the file."""

    id: str
    parent: str | None
    number: int
    offset: int


class _ImportReport(Struct):
    sessions: int = 0
    messages: int = 0
    existing: list[str] = []
    renamed: list[str] = []
    orphaned: list[str] = []


def import_sessions(action: SessionsAction) -> int:
    with _open_input(action) as file:
        positions = list(_parents_first(_find_sessions(file)))
        if not positions:
            raise UsageError(f"No sessions in {action.args.file}.")

        home = action.context.home()
        ensure_home(home)
        blobs = open_blobs(home)

        async def work(store: Store) -> _ImportReport:
            report = _ImportReport()
            for position in positions:
                file.seek(position.offset)
                await _import(store, blobs, decode(file.readline(), position.number), report)
            return report

        report = action.with_store(work)
    _print_report(action, report)
    return 0


@contextmanager
def _open_input(action: SessionsAction) -> Generator[BinaryIO]:
    """The input file, or a copy of a pipe that can be read twice."""
    if action.args.file == "-":
        with _spool(action.context.stdin.buffer) as spool:
            yield spool
        return
    path = Path(action.args.file).expanduser()
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from error
    with file:
        if path.is_file():
            yield file
        else:
            with _spool(file) as spool:
                yield spool


@contextmanager
def _spool(source: BinaryIO) -> Generator[BinaryIO]:
    with tempfile.TemporaryFile() as spool:
        size = 0
        while size <= _MAX_PIPED and (piece := source.read(1024 * 1024)):
            size += spool.write(piece)
        if size > _MAX_PIPED:
            raise UsageError(
                f"The piped input is larger than {_MAX_PIPED:,} bytes.",
                hint="Save it to a file and import that.",
            )
        spool.seek(0)
        yield cast("BinaryIO", spool)


def _find_sessions(file: BinaryIO) -> dict[str, _LinePosition]:
    """Validate the whole file first, so that a broken line imports nothing."""
    positions: dict[str, _LinePosition] = {}
    offset = 0
    for number, line in enumerate(iter(partial(file.readline, _MAX_LINE + 1), b""), 1):
        if len(line) > _MAX_LINE:
            raise UsageError(f"Line {number} is too long to be an exported session.")
        if line.strip():
            session = decode(line, number).session
            position = _LinePosition(session.id, session.parent, number, offset)
            positions.setdefault(session.id, position)
        offset += len(line)
    return positions


def _parents_first(positions: dict[str, _LinePosition]) -> Iterator[_LinePosition]:
    """Order the sessions so that parents come before their continuations."""
    seen: set[str] = set()
    for position in positions.values():
        chain: list[_LinePosition] = []
        current: _LinePosition | None = position
        while current is not None and current.id not in seen:
            seen.add(current.id)
            chain.append(current)
            current = positions.get(current.parent or "")
        yield from reversed(chain)


async def _import(store: Store, blobs: Blobs, copy: SessionExport, report: _ImportReport) -> None:
    session = structs.replace(
        copy.session, principal=OWNER, key="", system="", cwd="", effort="", personality=""
    )
    if await _exists(store, session.id):
        report.existing.append(session.id)
        return
    if session.parent is not None and not await _exists(store, session.parent):
        report.orphaned.append(session.id)
        session = structs.replace(session, parent=None)
    title = await _free_title(store, session)
    if title != session.title:
        report.renamed.append(f"{single_line(session.id)} renamed to {single_line(title)!r}")
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
        calls = max(1, min(use.calls, _MAX_AMOUNT))
        cost = None if use.cost is None else min(max(use.cost, 0.0), float(_MAX_AMOUNT))
        usage, at = _clamp_usage(use.usage), session.started_at
        yield RecordUsage(session.id, "", use.model, use.provider, usage, cost, at, calls)


def _as_untrusted(message: Message) -> Message:
    """Mark imported messages as untrusted data and drop reasoning signatures."""
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
    """Limit the numbers, which are added to the totals for good."""
    counts = structs.asdict(usage)
    return Usage(**{name: min(max(count, 0), _MAX_AMOUNT) for name, count in counts.items()})


async def _exists(store: Store, session: str) -> bool:
    try:
        await store.archive_for(OWNER).get(session)
    except NotFound:
        return False
    return True


async def _free_title(store: Store, session: Session) -> str:
    """Add a number to the title if it is taken."""
    title, number = session.title, 1
    while title and await _is_taken(store, session.principal, title):
        number += 1
        title = f"{session.title} ({number})"
    return title


async def _is_taken(store: Store, principal: str, title: str) -> bool:
    try:
        found = await store.archive_for(principal).find(title)
    except NotFound:
        return False
    return found.title == title and found.principal == principal


def _print_report(action: SessionsAction, report: _ImportReport) -> None:
    messages = plural(report.messages, "message")
    action.printer.line(f"Imported {plural(report.sessions, 'session')} with {messages}.")
    if report.existing:
        action.printer.line(f"Skipped, already present: {_name_list(report.existing)}.")
    if report.orphaned:
        names = _name_list(report.orphaned)
        action.printer.line(f"Imported without their missing parent: {names}.")
    for renamed in report.renamed[:_MAX_NAMED]:
        action.printer.line(f"Title already in use: {renamed}.")


def _name_list(names: Iterable[str]) -> str:
    shown = [single_line(name) for name in names]
    more = len(shown) - _MAX_NAMED
    return ", ".join(shown[:_MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")
