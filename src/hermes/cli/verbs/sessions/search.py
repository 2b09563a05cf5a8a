"""`sessions search`: where words were said, or what means much the same."""

import re
from datetime import datetime

import msgspec
from msgspec import Struct

from hermes.cli.dates import local_time, relative_time
from hermes.cli.output import Style
from hermes.cli.verbs.sessions.actions import NO_SESSIONS, SessionsAction
from hermes.cli.verbs.sessions.formats.markdown import session_name
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


def search(desk: SessionsAction) -> int:
    query = " ".join(desk.args.query).strip()
    if not query:
        raise UsageError("There is nothing to look for.", hint="Try: hermes sessions search word")
    if desk.is_empty:
        desk.note(NO_SESSIONS)
        return 0
    hits = _fetch(desk, query)
    if desk.args.json:
        for hit in hits:
            desk.printer.data(msgspec.json.encode(_json_row(hit)) + b"\n")
        return 0
    if not hits:
        desk.note("Nothing was found.")
    _print(desk, hits)
    return 0


def _fetch(desk: SessionsAction, query: str) -> list[SearchHit]:
    role = _STORED_ROLE.get(desk.args.role or "")

    async def fetch(store: SqliteStore) -> list[SearchHit]:
        return list(await store.archive_for(OWNER).recall(query, desk.args.limit, role))

    return desk.with_store(fetch)


def _print(desk: SessionsAction, hits: list[SearchHit]) -> None:
    style, now = desk.printer.style, desk.clock.now()
    last = ""
    for hit in hits:
        if hit.session.id != last:
            last = hit.session.id
            title = "" if not hit.session.title else f"  {session_name(hit.session)}"
            desk.printer.line(style(single_line(hit.session.id), "bold") + title)
        when = f"{local_time(hit.at)} ({relative_time(hit.at, now)}), {_role(hit)}:"
        desk.printer.line(f"  {style(when, 'dim')}")
        desk.printer.line(f"    {_highlighted(single_line(hit.snippet), style)}")


def _highlighted(snippet: str, style: Style) -> str:
    """Bold at a terminal; plain, as it was said, in a pipe."""
    return _HIT_MARKS.sub(lambda found: style(found[1], "bold", "yellow"), snippet)


def _role(hit: SearchHit) -> str:
    return _SHOWN_ROLE.get(hit.role, hit.role)


def _json_row(hit: SearchHit) -> SearchRow:
    session = hit.session
    return SearchRow(
        session.id, session.title, session.source, hit.seq, hit.at, _role(hit), hit.snippet
    )
