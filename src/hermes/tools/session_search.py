"""The `session_search` tool: search, scroll and browse past sessions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.kit.text import head_and_tail, one_line, plural
from hermes.ports.store import SessionArchive, Store
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import NotFound, ToolError
from hermes.schema.messages import (
    Assistant,
    Message,
    Result,
    Text,
    ToolCall,
    User,
    has_untrusted_text,
    text_of,
)
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SearchHit, Session, SessionFilter, StoredMessage
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators, required
from hermes.tools.tool_io import Arguments, encode_result

MAX_RESULTS = 10
MAX_WINDOW = 20
CONTEXT_MESSAGES = 2
"""Messages shown before and after a match."""
MAX_MESSAGE = 1_500
"""Characters of one message."""
_MAX_HITS = 60
_ROLES = {User: "user", Assistant: "assistant", Result: "tool"}

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
    """Searches only what the turn's principal may see."""

    name = "session_search"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._arguments = Arguments(self.name, SearchArgs)
        self.spec = self._arguments.spec(
            __file__, Effect.READ, timeout=30.0, toolset="session_search"
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        archive = self._store.archive_for(ctx.scope.principal)
        try:
            if arguments.session_id:
                return await self._scroll(archive, arguments)
            if arguments.query.strip():
                return await self._discover(archive, arguments, ctx.scope.session)
            return await self._browse(archive, arguments, ctx.scope.session)
        except NotFound as error:
            raise ToolError(f"session_search: {error}", hint=error.hint) from error

    async def _discover(
        self, archive: SessionArchive, arguments: SearchArgs, here: str
    ) -> ToolOutput:
        role = None if isinstance(arguments.role_filter, UnsetType) else arguments.role_filter
        searched = await archive.search_by_meaning(
            arguments.query, _MAX_HITS, "result" if role == "tool" else role
        )
        chosen = _best_per_session([hit for hit in searched.hits if hit.session.id != here])
        if arguments.sort != "best":
            chosen.sort(key=lambda hit: hit.at, reverse=arguments.sort == "newest")
        found = [await _found_session(archive, hit) for hit in chosen[: arguments.limit]]
        results = [result for result, _ in found]
        foreign = any(result.strange for result in results)
        unverified = any(unverified for _, unverified in found)
        notes = [searched.note, "" if results else "Nothing was found. Try fewer or other words."]
        note = " ".join(filter(None, notes)) or UNSET
        answer = DiscoverResult(mode="discover", results=results, note=note)
        shown = plural(len(results), "session")
        return ToolOutput((Text(encode_result(answer)),), shown, False, foreign, unverified)

    async def _scroll(self, archive: SessionArchive, arguments: SearchArgs) -> ToolOutput:
        session = await archive.find(arguments.session_id)
        rows = await archive.messages(session.id)
        index = _index_of(rows, arguments.around_message_id)
        first, last = max(0, index - arguments.window), index + arguments.window + 1
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

    async def _browse(
        self, archive: SessionArchive, arguments: SearchArgs, here: str
    ) -> ToolOutput:
        digests = await archive.list(SessionFilter(), arguments.limit + 1)
        sessions = [
            RecentSession(
                session_id=digest.session.id,
                title=digest.session.title,
                source=digest.session.source,
                last_active=digest.last_at,
                messages=digest.messages,
                preview=digest.preview,
            )
            for digest in digests
            if digest.session.id != here
        ]
        answer = BrowseResult(mode="browse", sessions=sessions[: arguments.limit])
        shown = plural(len(answer.sessions), "session")
        # A preview is what a person wrote, and a title may repeat anything that was read.
        foreign = any(one.session.principal != OWNER for one in digests if one.session.id != here)
        unverified = bool(answer.sessions)
        return ToolOutput((Text(encode_result(answer)),), shown, False, foreign, unverified)


def _best_per_session(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Keep the best hit of each session, best session first."""
    return list({hit.session.id: hit for hit in reversed(hits)}.values())[::-1]


async def _found_session(archive: SessionArchive, hit: SearchHit) -> tuple[FoundSession, bool]:
    """Return the session as shown, and whether untrusted content may have influenced it."""
    session = hit.session
    rows = await archive.messages(session.id)
    index = next((n for n, row in enumerate(rows) if row.seq == hit.seq), 0)
    first, last = max(0, index - CONTEXT_MESSAGES), index + CONTEXT_MESSAGES + 1
    found = FoundSession(
        session_id=session.id,
        when=hit.at,
        source=session.source,
        model=session.model,
        title=session.title,
        matched_role=hit.role,
        match_message_id=rows[index].message.id if rows else "",
        snippet=hit.snippet,
        bookend_start=one_line(_text(rows[0].message), 200) if rows else "",
        messages=[_found_message(row) for row in rows[first:last]],
        bookend_end=one_line(_text(rows[-1].message), 200) if rows else "",
        messages_before=first,
        messages_after=max(0, len(rows) - last),
        strange=_has_untrusted(session, [*rows[:1], *rows[first:last], *rows[-1:]]),
    )
    return found, _has_unverified(rows)


def _has_untrusted(session: Session, rows: Sequence[StoredMessage]) -> bool:
    """Whether anyone but the owner takes part, or untrusted content is in these messages."""
    return session.principal != OWNER or any(_is_untrusted(row.message) for row in rows)


def _has_unverified(rows: Sequence[StoredMessage]) -> bool:
    """Judged over all earlier messages: an answer may repeat untrusted content."""
    return any(
        _is_untrusted(row.message) or (isinstance(row.message, Result) and row.message.unverified)
        for row in rows
    )


def _is_untrusted(message: Message) -> bool:
    match message:
        case User():
            return has_untrusted_text(message)
        case Result(foreign=foreign):
            return foreign
        case Assistant():
            return False


def _index_of(rows: Sequence[StoredMessage], message: str) -> int:
    if not message:
        return max(0, len(rows) - 1)
    for index, row in enumerate(rows):
        if message in {row.message.id, str(row.seq)}:
            return index
    raise NotFound(f"There is no message {message!r} in that session.")


def _found_message(row: StoredMessage) -> FoundMessage:
    message = row.message
    text = head_and_tail(_text(message), MAX_MESSAGE)
    return FoundMessage(id=message.id, role=_ROLES[type(message)], text=text, at=row.at)


def _text(message: Message) -> str:
    text = text_of(message)
    if not isinstance(message, Assistant):
        return text
    calls = [f"[{part.name}]" for part in message.parts if isinstance(part, ToolCall)]
    return " ".join([text, *calls]).strip()


def build_session_search(deps: ToolCollaborators) -> SessionSearch:
    return SessionSearch(required(deps.store))
