"""The `session_search` tool: find, scroll and browse what was said in past sessions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.kit.text import head_and_tail, one_line, plural
from hermes.ports.store import SessionArchive, Store
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.attachments import has_untrusted_attachment
from hermes.schema.errors import NotFound, ToolError
from hermes.schema.messages import Assistant, Message, Result, Text, ToolCall, Trust, User, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SearchHit, Session, SessionFilter, StoredMessage
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.tool_io import Arguments, encode_result, load_description

MAX_RESULTS = 10
MAX_WINDOW = 20
CONTEXT_MESSAGES = 2
"""Messages on both sides of a find that are shown with it."""
MAX_MESSAGE = 1_500
"""Characters of one message."""
_MAX_HITS = 60

Role = Literal["user", "assistant", "tool"]


class SearchArgs(Struct, frozen=True, forbid_unknown_fields=True):
    query: str = ""
    session_id: str = ""
    around_message_id: str = ""
    window: Annotated[int, Meta(ge=1, le=MAX_WINDOW)] = 5
    limit: Annotated[int, Meta(ge=1, le=MAX_RESULTS)] = 3
    sort: Literal["best", "newest", "oldest"] = "best"
    role_filter: Role | UnsetType = UNSET


class FoundMessage(Struct, frozen=True, kw_only=True):
    id: str
    role: str
    text: str
    at: datetime


class FoundSession(Struct, frozen=True, kw_only=True):
    session_id: str
    when: datetime
    source: str
    model: str
    title: str
    matched_role: str
    match_message_id: str
    snippet: str
    bookend_start: str
    messages: list[FoundMessage]
    bookend_end: str
    messages_before: int
    messages_after: int
    strange: bool


class DiscoverResult(Struct, frozen=True, kw_only=True):
    mode: str
    results: list[FoundSession]
    note: str | UnsetType = UNSET


class ScrollResult(Struct, frozen=True, kw_only=True):
    mode: str
    session_id: str
    title: str
    messages: list[FoundMessage]
    messages_before: int
    messages_after: int


class RecentSession(Struct, frozen=True, kw_only=True):
    session_id: str
    title: str
    source: str
    last_active: datetime
    messages: int
    preview: str


class BrowseResult(Struct, frozen=True, kw_only=True):
    mode: str
    sessions: list[RecentSession]


class SessionSearch:
    """Sees what the principal of the turn may see, and nothing else."""

    name = "session_search"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._arguments = Arguments(self.name, SearchArgs)
        self.spec = ToolSpec(
            self.name,
            load_description(__file__),
            self._arguments.schema,
            Effect.READ,
            timeout=30.0,
            toolset="session_search",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        asked = self._arguments.decode(args)
        archive = self._store.archive_for(ctx.scope.principal)
        try:
            if asked.session_id:
                return await self._scroll(archive, asked)
            if asked.query.strip():
                return await self._discover(archive, asked, ctx.scope.session)
            return await self._browse(archive, asked, ctx.scope.session)
        except NotFound as error:
            raise ToolError(f"session_search: {error}", hint=error.hint) from error

    async def _discover(self, archive: SessionArchive, asked: SearchArgs, here: str) -> ToolOutput:
        role = None if isinstance(asked.role_filter, UnsetType) else asked.role_filter
        hits = await archive.recall(asked.query, _MAX_HITS, "result" if role == "tool" else role)
        chosen = _best_per_session([hit for hit in hits if hit.session.id != here])
        if asked.sort != "best":
            chosen.sort(key=lambda hit: hit.at, reverse=asked.sort == "newest")
        places = [await _found_session(archive, hit) for hit in chosen[: asked.limit]]
        found = [one for one, _ in places]
        foreign = any(one.strange for one in found)
        unverified = any(unverified for _, unverified in places)
        note = UNSET if found else "Nothing was found. Try fewer or other words."
        answer = DiscoverResult(mode="discover", results=found, note=note)
        shown = plural(len(found), "session")
        return ToolOutput((Text(encode_result(answer)),), shown, False, foreign, unverified)

    async def _scroll(self, archive: SessionArchive, asked: SearchArgs) -> ToolOutput:
        session = await archive.find(asked.session_id)
        rows = await archive.messages(session.id)
        place = _index_of(rows, asked.around_message_id)
        first, last = max(0, place - asked.window), place + asked.window + 1
        answer = ScrollResult(
            mode="scroll",
            session_id=session.id,
            title=session.title,
            messages=[_found_message(row) for row in rows[first:last]],
            messages_before=first,
            messages_after=max(0, len(rows) - last),
        )
        foreign = _has_untrusted(session, rows[first:last])
        shown = plural(len(answer.messages), "message")
        unverified = _has_unverified(rows[:last])
        return ToolOutput((Text(encode_result(answer)),), shown, False, foreign, unverified)

    async def _browse(self, archive: SessionArchive, asked: SearchArgs, here: str) -> ToolOutput:
        digests = await archive.list(SessionFilter(), asked.limit + 1)
        sessions = [
            RecentSession(
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
        answer = BrowseResult(mode="browse", sessions=sessions[: asked.limit])
        return ToolOutput.text(encode_result(answer), shown=plural(len(answer.sessions), "session"))


def _best_per_session(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """The best place of each session, best session first."""
    return list({hit.session.id: hit for hit in reversed(hits)}.values())[::-1]


async def _found_session(archive: SessionArchive, hit: SearchHit) -> tuple[FoundSession, bool]:
    """What is shown of a session, and whether others may have led to what is said there."""
    session: Session = hit.session
    rows = await archive.messages(session.id)
    place = next((n for n, row in enumerate(rows) if row.seq == hit.seq), 0)
    first, last = max(0, place - CONTEXT_MESSAGES), place + CONTEXT_MESSAGES + 1
    found = FoundSession(
        session_id=session.id,
        when=hit.at,
        source=session.source,
        model=session.model,
        title=session.title,
        matched_role=hit.role,
        match_message_id=rows[place].message.id if rows else "",
        snippet=hit.snippet,
        bookend_start=one_line(_text(rows[0].message), 200) if rows else "",
        messages=[_found_message(row) for row in rows[first:last]],
        bookend_end=one_line(_text(rows[-1].message), 200) if rows else "",
        messages_before=first,
        messages_after=max(0, len(rows) - last),
        strange=_has_untrusted(session, rows[first:last]),
    )
    return found, _has_unverified(rows)


def _has_untrusted(session: Session, rows: Sequence[StoredMessage]) -> bool:
    """Whether others than the owner, or what others wrote, speak in it."""
    return session.principal != OWNER or any(_is_untrusted(row.message) for row in rows)


def _has_unverified(rows: Sequence[StoredMessage]) -> bool:
    """Also for what was said after them: an answer may repeat what it was told."""
    return any(
        _is_untrusted(row.message) or (isinstance(row.message, Result) and row.message.unverified)
        for row in rows
    )


def _is_untrusted(message: Message) -> bool:
    match message:
        case User(trust=trust):
            return trust in {Trust.GUEST, Trust.DATA} or has_untrusted_attachment(message)
        case Result(foreign=foreign):
            return foreign
        case Assistant():
            return False


def _index_of(rows: Sequence[StoredMessage], message: str) -> int:
    if not message:
        return max(0, len(rows) - 1)
    for place, row in enumerate(rows):
        if message in {row.message.id, str(row.seq)}:
            return place
    raise NotFound(f"There is no message {message!r} in that session.")


def _found_message(row: StoredMessage) -> FoundMessage:
    message = row.message
    text = head_and_tail(_text(message), MAX_MESSAGE)
    return FoundMessage(id=message.id, role=_role(message), text=text, at=row.at)


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
