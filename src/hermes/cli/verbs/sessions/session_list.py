"""`sessions list`, and the filters shared with `export` and `prune`."""

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


def list_sessions(action: SessionsAction) -> int:
    summaries, more = ([], False) if action.is_empty else _fetch(action)
    if action.args.json:
        for summary in summaries:
            action.printer.data(msgspec.json.encode(json_row(summary)) + b"\n")
        return 0
    if not summaries:
        wanted = selection_from(action.args, action.clock.now())
        action.note(NO_SESSIONS if wanted.everything else "No matching sessions.")
        return 0
    print_table(action, summaries)
    if more:
        action.note(f"There are more. Show them: -n {2 * action.args.limit}")
    return 0


def json_row(summary: SessionSummary) -> SessionRow:
    session = summary.session
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
        last_at=summary.last_at,
        messages=summary.messages,
        tool_calls=summary.tool_calls,
        model_calls=summary.model_calls,
        usage=summary.usage,
        cost=summary.cost,
        preview=summary.preview,
    )


def print_table(action: SessionsAction, summaries: list[SessionSummary]) -> None:
    now = action.clock.now()
    width = action.printer.width
    roomy = width is None or width >= _WIDE
    lines = [("ID", "LAST USED", "SOURCE", "MSGS", "TITLE")]
    for summary in summaries:
        session = summary.session
        source = fit(single_line(session.source), _SOURCE_WIDTH)
        last = _last_used(summary.last_at, now, roomy=roomy)
        lines.append(
            (single_line(session.id), last, source, f"{summary.messages:,}", display_name(summary))
        )
    if width is not None and width < _NARROW:
        action.printer.table([(line[0], line[4]) for line in lines])
    else:
        action.printer.table(lines, right=(3,))


def display_name(summary: SessionSummary) -> str:
    """The title, or the first message in quotes."""
    if title := single_line(summary.session.title):
        return title
    preview = single_line(summary.preview)
    return f"“{preview}”" if preview else "-"


def _last_used(then: datetime, now: datetime, *, roomy: bool) -> str:
    if roomy:
        return f"{local_time(then)} ({relative_time(then, now)})"
    near = (now - then).days < 300
    return f"{then.astimezone():{'%b %d' if near else '%b %Y'}}, {relative_time(then, now)}"


async def _with_goal(archive: SessionArchive, summary: SessionSummary) -> SessionSummary:
    """Use a subagent's goal as its preview: their first messages all begin alike."""
    if summary.session.source != SUBAGENT or not summary.messages:
        return summary
    goal = goal_of_task_text(text_of((await archive.messages(summary.session.id))[0].message))
    return structs.replace(summary, preview=one_line(goal, _MAX_GOAL) or summary.preview)


def _fetch(action: SessionsAction) -> tuple[list[SessionSummary], bool]:
    limit: int = action.args.limit
    wanted = selection_from(action.args, action.clock.now())

    async def fetch(store: SqliteStore) -> list[SessionSummary]:
        archive = store.archive_for(OWNER)
        found = matching_sessions(archive, wanted, limit + 1)
        return [await _with_goal(archive, summary) async for summary in found]

    summaries = action.with_store(fetch)
    return summaries[:limit], len(summaries) > limit


_PAGE_SIZE = 200


class SessionSelection(Struct, frozen=True):
    """A filter; `unused_since` compares the time of the last message."""

    where: SessionFilter
    unused_since: datetime | None = None

    @property
    def everything(self) -> bool:
        return self == SessionSelection(SessionFilter(reviews=self.where.reviews))


def selection_from(args: Namespace, now: datetime, *, reviews: bool = False) -> SessionSelection:
    """The filters of the command line; `reviews` includes the agent's own review sessions."""
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
    """Yield sessions, most recently used first, each once even if the order changes."""
    seen: set[str] = set()
    offset = 0
    size = _PAGE_SIZE if limit is None else min(limit, _PAGE_SIZE)
    while True:
        page = await archive.list(wanted.where, size, offset)
        for summary in page:
            matches = wanted.unused_since is None or summary.last_at < wanted.unused_since
            if not matches or summary.session.id in seen:
                continue
            seen.add(summary.session.id)
            yield summary
            if len(seen) == limit:
                return
        if len(page) < size:
            return
        offset += size
