"""`sessions search`: where words were said, or what means much the same."""

import re
from datetime import datetime

import msgspec
from msgspec import Struct

from hermes.cli.export.markdown import name_of
from hermes.cli.export.plain import flat
from hermes.cli.style import Style
from hermes.cli.verbs.sessions.desk import NONE_YET, Desk
from hermes.cli.verbs.sessions.when import ago, local
from hermes.schema.errors import UsageError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Hit
from hermes.store.sqlite import SqliteStore

_MARKED = re.compile(r">>>(.*?)<<<", re.DOTALL)
_STORED_ROLE = {"user": "user", "assistant": "assistant", "tool": "result"}
_SHOWN_ROLE = {stored: role for role, stored in _STORED_ROLE.items()}


class Found(Struct, frozen=True):
    """A hit as `--json` prints it."""

    session: str
    title: str
    source: str
    seq: int
    at: datetime
    role: str
    snippet: str


def search(desk: Desk) -> int:
    query = " ".join(desk.args.query).strip()
    if not query:
        raise UsageError("There is nothing to look for.", hint="Try: hermes sessions search word")
    if desk.is_empty:
        desk.note(NONE_YET)
        return 0
    hits = _fetch(desk, query)
    if desk.args.json:
        for hit in hits:
            desk.paper.data(msgspec.json.encode(_found(hit)) + b"\n")
        return 0
    if not hits:
        desk.note("Nothing was found.")
    _print(desk, hits)
    return 0


def _fetch(desk: Desk, query: str) -> list[Hit]:
    role = _STORED_ROLE.get(desk.args.role or "")

    async def fetch(store: SqliteStore) -> list[Hit]:
        return list(await store.seen_by(OWNER).recall(query, desk.args.limit, role))

    return desk.with_store(fetch)


def _print(desk: Desk, hits: list[Hit]) -> None:
    style, now = desk.paper.style, desk.clock.now()
    last = ""
    for hit in hits:
        if hit.session.id != last:
            last = hit.session.id
            title = "" if not hit.session.title else f"  {name_of(hit.session)}"
            desk.paper.line(style(flat(hit.session.id), "bold") + title)
        when = f"{local(hit.at)} ({ago(hit.at, now)}), {_role(hit)}:"
        desk.paper.line(f"  {style(when, 'dim')}")
        desk.paper.line(f"    {_highlighted(flat(hit.snippet), style)}")


def _highlighted(snippet: str, style: Style) -> str:
    """Bold at a terminal; plain, as it was said, in a pipe."""
    return _MARKED.sub(lambda found: style(found[1], "bold", "yellow"), snippet)


def _role(hit: Hit) -> str:
    return _SHOWN_ROLE.get(hit.role, hit.role)


def _found(hit: Hit) -> Found:
    session = hit.session
    return Found(
        session.id, session.title, session.source, hit.seq, hit.at, _role(hit), hit.snippet
    )
