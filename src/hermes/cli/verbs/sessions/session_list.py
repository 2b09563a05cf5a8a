"""`sessions list` and `search`, and the filters shared with `export` and `prune`."""

import re
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hermes.app.session_documents import session_name
from hermes.cli.dates import local_time, relative_time
from hermes.cli.verbs.sessions import NO_SESSIONS, SessionsAction
from hermes.kit.terminal_text import fit, single_line
from hermes.kit.text import one_line, plural
from hermes.ports.store import SessionArchive, Store
from hermes.schema.errors import UsageError
from hermes.schema.messages import Trust, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SearchHit, SessionFilter, SessionSummary
from hermes.subagents.messages import SUBAGENT, goal_of_task_text

_WIDE = 110
_NARROW = 60
_SOURCE_WIDTH = 14
_MAX_GOAL = 80


_JSON_FIELDS = (
    "id", "title", "source", "principal", "model", "provider", "cwd", "parent", "started_at",
    "ended_at", "end_reason", "last_at", "messages", "tool_calls", "model_calls", "usage", "cost",
    "preview",
)  # fmt: skip


def list_sessions(action: SessionsAction) -> int:
    summaries, more = ([], False) if action.is_empty else _fetch(action)
    if action.args.json:
        for summary in summaries:
            known = structs.asdict(summary.session) | structs.asdict(summary)
            row = {name: known[name] for name in _JSON_FIELDS}
            action.printer.data(msgspec.json.encode(row) + b"\n")
        return 0
    if not summaries:
        wanted = selection_from(action.args, action.clock.now())
        action.note(NO_SESSIONS if wanted.everything else "No matching sessions.")
        return 0
    print_table(action, summaries)
    if more:
        action.note(f"There are more. Show them: -n {2 * action.args.limit}")
    return 0


def print_table(action: SessionsAction, summaries: list[SessionSummary]) -> None:
    now = action.clock.now()
    width = action.printer.width
    wide = width is None or width >= _WIDE
    lines = [("ID", "LAST USED", "SOURCE", "MSGS", "TITLE")]
    for summary in summaries:
        session_id, name = single_line(summary.session.id), _display_name(summary)
        source = fit(single_line(summary.session.source), _SOURCE_WIDTH)
        last = _last_used(summary.last_at, now, wide=wide)
        lines.append((session_id, last, source, f"{summary.messages:,}", name))
    if width is not None and width < _NARROW:
        action.printer.table([(line[0], line[4]) for line in lines])
    else:
        action.printer.table(lines, right=(3,))


def _display_name(summary: SessionSummary) -> str:
    """The title, or the first message in quotes."""
    if single_line(summary.session.title):
        return session_name(summary.session)
    preview = single_line(summary.preview)
    return f"“{preview}”" if preview else "-"


def _last_used(then: datetime, now: datetime, *, wide: bool) -> str:
    if wide:
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

    async def fetch(store: Store) -> list[SessionSummary]:
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


_HIT_MARKS = re.compile(r">>>(.*?)<<<", re.DOTALL)
_STORED_ROLE = {"user": "user", "assistant": "assistant", "tool": "result"}
_OTHER_AUTHORS = {Trust.DATA: "from elsewhere", Trust.PROGRAM: "note to Hermes"}
_SHOWN_ROLE = {stored: role for role, stored in _STORED_ROLE.items()}


def search(action: SessionsAction) -> int:
    query = " ".join(action.args.query).strip()
    if not query:
        raise UsageError("The query is empty.", hint="Try: hermes sessions search word")
    if action.is_empty:
        action.note(NO_SESSIONS)
        return 0
    role = _STORED_ROLE.get(action.args.role or "")
    found = action.with_store(
        lambda store: store.archive_for(OWNER).search_by_meaning(query, action.args.limit, role)
    )
    if found.note:
        left = f"About {found.unindexed:,} are left; to do it now: hermes sessions optimize"
        action.note(f"{found.note} {left}")
    if action.args.json:
        for hit in found.hits:
            action.printer.data(msgspec.json.encode(_json_row(hit)) + b"\n")
        return 0
    if not found.hits:
        action.note("No matches.")
    _print(action, found.hits)
    return 0


def _print(action: SessionsAction, hits: Sequence[SearchHit]) -> None:
    """One entry per session: its best match, and how many more there are."""
    style, now = action.printer.style, action.clock.now()
    matches = Counter(hit.session.id for hit in hits)
    best = {hit.session.id: hit for hit in reversed(hits)}
    for session in matches:
        hit, others = best[session], matches[session] - 1
        title = "" if not hit.session.title else f"  {session_name(hit.session)}"
        action.printer.line(style(single_line(session), "bold") + title)
        more = f" ({plural(others, 'more match')})" if others else ""
        when = f"{local_time(hit.at)} ({relative_time(hit.at, now)}), {_author(hit)}{more}:"
        action.printer.line(f"  {style(when, 'dim')}")
        # At a terminal the matches are highlighted; elsewhere only the marks are removed.
        snippet = single_line(hit.snippet)
        shown = _HIT_MARKS.sub(lambda found: style(found[1], "bold", "yellow"), snippet)
        action.printer.line(f"    {shown}")


def _author(hit: SearchHit) -> str:
    """Return the author; not every user message comes from a person."""
    return _role(hit) if hit.trust is None else _OTHER_AUTHORS.get(hit.trust, _role(hit))


def _role(hit: SearchHit) -> str:
    return _SHOWN_ROLE.get(hit.role, hit.role)


def _json_row(hit: SearchHit) -> dict[str, object]:
    return {
        "session": hit.session.id,
        "title": hit.session.title,
        "source": hit.session.source,
        "seq": hit.seq,
        "at": hit.at,
        "role": _role(hit),
        "snippet": hit.snippet,
    }
