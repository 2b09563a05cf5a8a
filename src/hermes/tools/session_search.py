"""The `session_search` tool: find, scroll and browse what was said in past sessions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.kit.text import head_and_tail, one_line, plural
from hermes.ports.store import Archive, Store
from hermes.ports.tool import Output, ToolContext
from hermes.schema.attachments import brings_strangers
from hermes.schema.errors import NotFound, ToolError
from hermes.schema.messages import Assistant, Message, Result, Text, ToolCall, Trust, User, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Hit, Session, SessionFilter, Stored
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.arguments import Arguments, description, result

MOST = 10
MOST_AROUND = 20
AROUND = 2
"""Messages on both sides of a find that are shown with it."""
SHOWN = 1_500
"""Characters of one message."""
_HITS = 60

Role = Literal["user", "assistant", "tool"]


class SearchArgs(Struct, frozen=True, forbid_unknown_fields=True):
    query: str = ""
    session_id: str = ""
    around_message_id: str = ""
    window: Annotated[int, Meta(ge=1, le=MOST_AROUND)] = 5
    limit: Annotated[int, Meta(ge=1, le=MOST)] = 3
    sort: Literal["best", "newest", "oldest"] = "best"
    role_filter: Role | UnsetType = UNSET


class Line(Struct, frozen=True, kw_only=True):
    id: str
    role: str
    text: str
    at: datetime


class Found(Struct, frozen=True, kw_only=True):
    session_id: str
    when: datetime
    source: str
    model: str
    title: str
    matched_role: str
    match_message_id: str
    snippet: str
    bookend_start: str
    messages: list[Line]
    bookend_end: str
    messages_before: int
    messages_after: int
    strange: bool


class Discovered(Struct, frozen=True, kw_only=True):
    mode: str
    results: list[Found]
    note: str | UnsetType = UNSET


class Scrolled(Struct, frozen=True, kw_only=True):
    mode: str
    session_id: str
    title: str
    messages: list[Line]
    messages_before: int
    messages_after: int


class Recent(Struct, frozen=True, kw_only=True):
    session_id: str
    title: str
    source: str
    last_active: datetime
    messages: int
    preview: str


class Browsed(Struct, frozen=True, kw_only=True):
    mode: str
    sessions: list[Recent]


class SessionSearch:
    """Sees what the principal of the turn may see, and nothing else."""

    name = "session_search"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._arguments = Arguments(self.name, SearchArgs)
        self.spec = ToolSpec(
            self.name,
            description(__file__),
            self._arguments.schema,
            Effect.READ,
            timeout=30.0,
            toolset="session_search",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        asked = self._arguments.decode(args)
        archive = self._store.seen_by(ctx.scope.principal)
        try:
            if asked.session_id:
                return await self._scroll(archive, asked)
            if asked.query.strip():
                return await self._discover(archive, asked, ctx.scope.session)
            return await self._browse(archive, asked, ctx.scope.session)
        except NotFound as error:
            raise ToolError(f"session_search: {error}", hint=error.hint) from error

    async def _discover(self, archive: Archive, asked: SearchArgs, here: str) -> Output:
        role = None if isinstance(asked.role_filter, UnsetType) else asked.role_filter
        hits = await archive.recall(asked.query, _HITS, "result" if role == "tool" else role)
        chosen = _one_for_each([hit for hit in hits if hit.session.id != here])
        if asked.sort != "best":
            chosen.sort(key=lambda hit: hit.at, reverse=asked.sort == "newest")
        places = [await _found(archive, hit) for hit in chosen[: asked.limit]]
        found = [one for one, _ in places]
        foreign = any(one.strange for one in found)
        unverified = any(unverified for _, unverified in places)
        note = UNSET if found else "Nothing was found. Try fewer or other words."
        answer = Discovered(mode="discover", results=found, note=note)
        shown = plural(len(found), "session")
        return Output((Text(result(answer)),), shown, False, foreign, unverified)

    async def _scroll(self, archive: Archive, asked: SearchArgs) -> Output:
        session = await archive.find(asked.session_id)
        rows = await archive.messages(session.id)
        place = _place(rows, asked.around_message_id)
        first, last = max(0, place - asked.window), place + asked.window + 1
        answer = Scrolled(
            mode="scroll",
            session_id=session.id,
            title=session.title,
            messages=[_line(row) for row in rows[first:last]],
            messages_before=first,
            messages_after=max(0, len(rows) - last),
        )
        foreign = _strange(session, rows[first:last])
        shown = plural(len(answer.messages), "message")
        unverified = _has_others_words(rows[:last])
        return Output((Text(result(answer)),), shown, False, foreign, unverified)

    async def _browse(self, archive: Archive, asked: SearchArgs, here: str) -> Output:
        digests = await archive.list(SessionFilter(), asked.limit + 1)
        sessions = [
            Recent(
                session_id=one.session.id,
                title=one.session.title,
                source=one.session.source,
                last_active=one.last_at,
                messages=one.messages,
                preview=one.preview,
            )
            for one in digests
            if one.session.id != here
        ]
        answer = Browsed(mode="browse", sessions=sessions[: asked.limit])
        return Output.text(result(answer), shown=plural(len(answer.sessions), "session"))


def _one_for_each(hits: Sequence[Hit]) -> list[Hit]:
    """The best place of each session, best session first."""
    return list({hit.session.id: hit for hit in reversed(hits)}.values())[::-1]


async def _found(archive: Archive, hit: Hit) -> tuple[Found, bool]:
    """What is shown of a session, and whether others may have led to what is said there."""
    session: Session = hit.session
    rows = await archive.messages(session.id)
    place = next((n for n, row in enumerate(rows) if row.seq == hit.seq), 0)
    first, last = max(0, place - AROUND), place + AROUND + 1
    found = Found(
        session_id=session.id,
        when=hit.at,
        source=session.source,
        model=session.model,
        title=session.title,
        matched_role=hit.role,
        match_message_id=rows[place].message.id if rows else "",
        snippet=hit.snippet,
        bookend_start=one_line(_text(rows[0].message), 200) if rows else "",
        messages=[_line(row) for row in rows[first:last]],
        bookend_end=one_line(_text(rows[-1].message), 200) if rows else "",
        messages_before=first,
        messages_after=max(0, len(rows) - last),
        strange=_strange(session, rows[first:last]),
    )
    return found, _has_others_words(rows)


def _strange(session: Session, rows: Sequence[Stored]) -> bool:
    """Whether others than the owner, or what others wrote, speak in it."""
    return session.principal != OWNER or any(_is_foreign(row.message) for row in rows)


def _has_others_words(rows: Sequence[Stored]) -> bool:
    """Also for what was said after them: an answer may repeat what it was told."""
    return any(
        _is_foreign(row.message) or (isinstance(row.message, Result) and row.message.unverified)
        for row in rows
    )


def _is_foreign(message: Message) -> bool:
    match message:
        case User(trust=trust):
            return trust in {Trust.GUEST, Trust.DATA} or brings_strangers(message)
        case Result(foreign=foreign):
            return foreign
        case Assistant():
            return False


def _place(rows: Sequence[Stored], message: str) -> int:
    if not message:
        return max(0, len(rows) - 1)
    for place, row in enumerate(rows):
        if message in {row.message.id, str(row.seq)}:
            return place
    raise NotFound(f"There is no message {message!r} in that session.")


def _line(row: Stored) -> Line:
    message = row.message
    text = head_and_tail(_text(message), SHOWN)
    return Line(id=message.id, role=_role(message), text=text, at=row.at)


def _role(message: Message) -> str:
    match message:
        case User():
            return "user"
        case Assistant():
            return "assistant"
        case Result():
            return "tool"


def _text(message: Message) -> str:
    said = text_of(message)
    if not isinstance(message, Assistant):
        return said
    calls = [f"[{part.name}]" for part in message.parts if isinstance(part, ToolCall)]
    return " ".join([said, *calls]).strip()
