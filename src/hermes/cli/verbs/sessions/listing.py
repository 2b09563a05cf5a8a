"""`sessions list`: one line per session, the last used first."""

from datetime import datetime

import msgspec
from msgspec import Struct, structs

from hermes.cli.export.plain import fit, flat
from hermes.cli.verbs.sessions.desk import NONE_YET, Desk
from hermes.cli.verbs.sessions.selection import matching, selection
from hermes.cli.verbs.sessions.when import ago, local
from hermes.kit.text import one_line
from hermes.ports.store import Archive
from hermes.schema.messages import Usage, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Digest
from hermes.store.sqlite import SqliteStore
from hermes.subagents.words import SUBAGENT, goal_in

_ROOMY = 110
_NARROW = 60
_SOURCE = 14
_GOAL = 80


class Row(Struct, frozen=True, kw_only=True):
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


def list_sessions(desk: Desk) -> int:
    digests, more = ([], False) if desk.is_empty else _fetch(desk)
    if desk.args.json:
        for digest in digests:
            desk.paper.data(msgspec.json.encode(row(digest)) + b"\n")
        return 0
    if not digests:
        wanted = selection(desk.args, desk.clock.now())
        desk.note(NONE_YET if wanted.everything else "No session fits.")
        return 0
    print_table(desk, digests)
    if more:
        desk.note(f"There are more; `-n {2 * desk.args.limit}` shows them.")
    return 0


def row(digest: Digest) -> Row:
    session = digest.session
    return Row(
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


def print_table(desk: Desk, digests: list[Digest]) -> None:
    now = desk.clock.now()
    width = desk.paper.width
    roomy = width is None or width >= _ROOMY
    lines = [("ID", "LAST USED", "SOURCE", "MSGS", "TITLE")]
    for digest in digests:
        session = digest.session
        source = fit(flat(session.source), _SOURCE)
        last = _when(digest.last_at, now, roomy=roomy)
        lines.append((flat(session.id), last, source, f"{digest.messages:,}", name(digest)))
    if width is not None and width < _NARROW:
        desk.paper.table([(line[0], line[4]) for line in lines])
    else:
        desk.paper.table(lines, right=(3,))


def name(digest: Digest) -> str:
    """The title; without one, how the session began, in quotes."""
    if title := flat(digest.session.title):
        return title
    preview = flat(digest.preview)
    return f"“{preview}”" if preview else "-"


def _when(then: datetime, now: datetime, *, roomy: bool) -> str:
    if roomy:
        return f"{local(then)} ({ago(then, now)})"
    near = (now - then).days < 300
    return f"{then.astimezone():{'%b %d' if near else '%b %Y'}}, {ago(then, now)}"


async def _by_goal(archive: Archive, digest: Digest) -> Digest:
    """What a subagent was told begins the same for all of them: its goal tells them apart."""
    if digest.session.source != SUBAGENT or not digest.messages:
        return digest
    goal = goal_in(text_of((await archive.messages(digest.session.id))[0].message))
    return structs.replace(digest, preview=one_line(goal, _GOAL) or digest.preview)


def _fetch(desk: Desk) -> tuple[list[Digest], bool]:
    limit: int = desk.args.limit
    wanted = selection(desk.args, desk.clock.now())

    async def fetch(store: SqliteStore) -> list[Digest]:
        archive = store.seen_by(OWNER)
        found = matching(archive, wanted, limit + 1)
        return [await _by_goal(archive, digest) async for digest in found]

    digests = desk.with_store(fetch)
    return digests[:limit], len(digests) > limit
