"""`sessions search`: find messages by words or similar meaning."""

import re
from datetime import datetime

import msgspec
from msgspec import Struct

from hermes.cli.dates import local_time, relative_time
from hermes.cli.output import Style
from hermes.cli.verbs.sessions.actions import NO_SESSIONS, SessionsAction
from hermes.cli.verbs.sessions.documents import session_name
from hermes.kit.terminal_text import single_line
from hermes.schema.errors import UsageError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SearchHit
from hermes.store.sqlite import SqliteStore

_HIT_MARKS = re.compile(r">>>(.*?)<<<", re.DOTALL)
_STORED_ROLE = {"user": "user", "assistant": "assistant", "tool": "result"}
_SHOWN_ROLE = {stored: role for role, stored in _STORED_ROLE.items()}


class SearchRow(Struct, frozen=True):
    """A hit as `--json` prints it."""

    session: str
    title: str
    source: str
    seq: int
    at: datetime
    role: str
    snippet: str


def search(action: SessionsAction) -> int:
    query = " ".join(action.args.query).strip()
    if not query:
        raise UsageError("The query is empty.", hint="Try: hermes sessions search word")
    if action.is_empty:
        action.note(NO_SESSIONS)
        return 0
    hits = _fetch(action, query)
    if action.args.json:
        for hit in hits:
            action.printer.data(msgspec.json.encode(_json_row(hit)) + b"\n")
        return 0
    if not hits:
        action.note("No matches.")
    _print(action, hits)
    return 0


def _fetch(action: SessionsAction, query: str) -> list[SearchHit]:
    role = _STORED_ROLE.get(action.args.role or "")

    async def fetch(store: SqliteStore) -> list[SearchHit]:
        return list(
            await store.archive_for(OWNER).search_by_meaning(query, action.args.limit, role)
        )

    return action.with_store(fetch)


def _print(action: SessionsAction, hits: list[SearchHit]) -> None:
    style, now = action.printer.style, action.clock.now()
    last = ""
    for hit in hits:
        if hit.session.id != last:
            last = hit.session.id
            title = "" if not hit.session.title else f"  {session_name(hit.session)}"
            action.printer.line(style(single_line(hit.session.id), "bold") + title)
        when = f"{local_time(hit.at)} ({relative_time(hit.at, now)}), {_role(hit)}:"
        action.printer.line(f"  {style(when, 'dim')}")
        action.printer.line(f"    {_highlighted(single_line(hit.snippet), style)}")


def _highlighted(snippet: str, style: Style) -> str:
    """Highlight the matches at a terminal; remove the marks elsewhere."""
    return _HIT_MARKS.sub(lambda found: style(found[1], "bold", "yellow"), snippet)


def _role(hit: SearchHit) -> str:
    return _SHOWN_ROLE.get(hit.role, hit.role)


def _json_row(hit: SearchHit) -> SearchRow:
    session = hit.session
    return SearchRow(
        session.id, session.title, session.source, hit.seq, hit.at, _role(hit), hit.snippet
    )
