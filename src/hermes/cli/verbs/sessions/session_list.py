"""`sessions list`: one line per session, the last used first."""

from argparse import Namespace
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hermes.cli.dates import local_time, relative_time
from hermes.cli.verbs.sessions.actions import NO_SESSIONS, SessionsAction
from hermes.kit.terminal_text import fit, single_line
from hermes.kit.text import one_line
from hermes.ports.store import SessionArchive
from hermes.schema.messages import Usage, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter, SessionSummary
from hermes.store.sqlite import SqliteStore
from hermes.subagents.messages import SUBAGENT, goal_of_task_text

_WIDE = 110
_NARROW = 60
_SOURCE_WIDTH = 14
_MAX_GOAL = 80


class SessionRow(Struct, frozen=True, kw_only=True):
    """A session as `--json` prints it."""

    id: str
    title: str
    source: str
    principal: str
    model: str
    provider: str
    cwd: str
    parent: str | None
    started_at: datetime
    ended_at: datetime | None
    end_reason: str
    last_at: datetime
    messages: int
    tool_calls: int
    model_calls: int
    usage: Usage
    cost: float | None
    preview: str


def list_sessions(desk: SessionsAction) -> int:
    digests, more = ([], False) if desk.is_empty else _fetch(desk)
    if desk.args.json:
        for digest in digests:
            desk.printer.data(msgspec.json.encode(json_row(digest)) + b"\n")
        return 0
    if not digests:
        wanted = selection_from(desk.args, desk.clock.now())
        desk.note(NO_SESSIONS if wanted.everything else "No session fits.")
        return 0
    print_table(desk, digests)
    if more:
        desk.note(f"There are more; `-n {2 * desk.args.limit}` shows them.")
    return 0


def json_row(digest: SessionSummary) -> SessionRow:
    session = digest.session
    return SessionRow(
        id=session.id,
        title=session.title,
        source=session.source,
        principal=session.principal,
        model=session.model,
        provider=session.provider,
        cwd=session.cwd,
        parent=session.parent,
        started_at=session.started_at,
        ended_at=session.ended_at,
        end_reason=session.end_reason,
        last_at=digest.last_at,
        messages=digest.messages,
        tool_calls=digest.tool_calls,
        model_calls=digest.model_calls,
        usage=digest.usage,
        cost=digest.cost,
        preview=digest.preview,
    )


def print_table(desk: SessionsAction, digests: list[SessionSummary]) -> None:
    now = desk.clock.now()
    width = desk.printer.width
    roomy = width is None or width >= _WIDE
    lines = [("ID", "LAST USED", "SOURCE", "MSGS", "TITLE")]
    for digest in digests:
        session = digest.session
        source = fit(single_line(session.source), _SOURCE_WIDTH)
        last = _last_used(digest.last_at, now, roomy=roomy)
        lines.append(
            (single_line(session.id), last, source, f"{digest.messages:,}", display_name(digest))
        )
    if width is not None and width < _NARROW:
        desk.printer.table([(line[0], line[4]) for line in lines])
    else:
        desk.printer.table(lines, right=(3,))


def display_name(digest: SessionSummary) -> str:
    """The title; without one, how the session began, in quotes."""
    if title := single_line(digest.session.title):
        return title
    preview = single_line(digest.preview)
    return f"“{preview}”" if preview else "-"


def _last_used(then: datetime, now: datetime, *, roomy: bool) -> str:
    if roomy:
        return f"{local_time(then)} ({relative_time(then, now)})"
    near = (now - then).days < 300
    return f"{then.astimezone():{'%b %d' if near else '%b %Y'}}, {relative_time(then, now)}"


async def _with_goal(archive: SessionArchive, digest: SessionSummary) -> SessionSummary:
    """What a subagent was told begins the same for all of them: its goal tells them apart."""
    if digest.session.source != SUBAGENT or not digest.messages:
        return digest
    goal = goal_of_task_text(text_of((await archive.messages(digest.session.id))[0].message))
    return structs.replace(digest, preview=one_line(goal, _MAX_GOAL) or digest.preview)


def _fetch(desk: SessionsAction) -> tuple[list[SessionSummary], bool]:
    limit: int = desk.args.limit
    wanted = selection_from(desk.args, desk.clock.now())

    async def fetch(store: SqliteStore) -> list[SessionSummary]:
        archive = store.archive_for(OWNER)
        found = matching_sessions(archive, wanted, limit + 1)
        return [await _with_goal(archive, digest) async for digest in found]

    digests = desk.with_store(fetch)
    return digests[:limit], len(digests) > limit


_PAGE_SIZE = 200


class SessionSelection(Struct, frozen=True):
    """`unused_since` looks at the last message, so that a long talk is as old as its end."""

    where: SessionFilter
    unused_since: datetime | None = None

    @property
    def everything(self) -> bool:
        return self == SessionSelection(SessionFilter(reviews=self.where.reviews))


def selection_from(args: Namespace, now: datetime, *, reviews: bool = False) -> SessionSelection:
    """With `reviews` also the sessions that nobody but the agent held."""
    unused_since = None if args.older_than is None else now - args.older_than
    before = None if args.before is None else args.before.at(now)
    bounds = [bound for bound in (before, unused_since) if bound is not None]
    return SessionSelection(
        SessionFilter(
            source=args.source,
            model=args.model,
            title=args.title,
            cwd=None if args.cwd is None else str(Path(args.cwd).expanduser().resolve()),
            started_before=min(bounds, default=None),
            started_after=None if args.since is None else args.since.at(now),
            min_messages=args.min_messages,
            max_messages=args.max_messages,
            reviews=reviews,
        ),
        unused_since,
    )


async def matching_sessions(
    archive: SessionArchive, wanted: SessionSelection, limit: int | None = None
) -> AsyncIterator[SessionSummary]:
    """The last used first; what moves while we turn the pages is given once."""
    seen: set[str] = set()
    offset = 0
    size = _PAGE_SIZE if limit is None else min(limit, _PAGE_SIZE)
    while True:
        page = await archive.list(wanted.where, size, offset)
        for digest in page:
            fits = wanted.unused_since is None or digest.last_at < wanted.unused_since
            if not fits or digest.session.id in seen:
                continue
            seen.add(digest.session.id)
            yield digest
            if len(seen) == limit:
                return
        if len(page) < size:
            return
        offset += size
