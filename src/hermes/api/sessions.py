"""Session endpoints: list, create, read, rename, end, fork and delete."""

from functools import partial

import msgspec
from aiohttp import web
from msgspec import UNSET, structs

from hermes.api.callbacks import (
    Callback,
    check_callback,
    secret_box_of,
)
from hermes.api.catalog import choose_model, require_provider
from hermes.api.chat_objects import provider_name
from hermes.api.context import (
    AFTER,
    FOLLOW_PARAMETERS,
    TURN_PARAMETERS,
    ApiContext,
    Parameter,
    Route,
    decode_body,
    integer_schema,
    json_response,
    read_number,
)
from hermes.api.errors import ApiError, invalid
from hermes.api.idempotency import TURN_ERRORS
from hermes.api.session_chat import SessionChat, SessionFollower
from hermes.api.session_objects import (
    ChatTurn,
    ForkRequest,
    MessageList,
    NewSession,
    SessionCompletion,
    SessionDeleted,
    SessionEnvelope,
    SessionList,
    SessionObject,
    SessionPatch,
    called_tools,
    message_object,
    session_object,
    summary_object,
)
from hermes.api.session_resolver import (
    find_session,
    get_session,
    id_from_header,
    new_session,
    with_route,
)
from hermes.app.build import App
from hermes.kit.ids import new_id
from hermes.ports.api_records import SetCallback
from hermes.ports.store import ChangeSession, Fence, OpenSession, SessionArchive, Write
from hermes.schema.errors import NotFound, StoreError
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import (
    Session,
    SessionChange,
    SessionFilter,
    SessionSummary,
    continued_from,
)
from hermes.session.conversation import copy_session
from hermes.session.lease import Lease

MAX_LISTED = 200
MAX_MESSAGES = 2_000
MAX_TITLE = 200
MAX_PROMPT = 200_000
MAX_OFFSET = 10**15
SESSIONS_PATH = "/api/sessions"
SESSION_PATH = "/api/sessions/{session_id}"

_NEW = msgspec.json.Decoder(NewSession)
_PATCH = msgspec.json.Decoder(SessionPatch)
_FORK = msgspec.json.Decoder(ForkRequest)


LIST_PARAMETERS = (
    Parameter(
        "limit",
        "query",
        integer_schema(1),
        f"Maximum number of sessions, at most {MAX_LISTED} (default 50).",
    ),
    Parameter("offset", "query", integer_schema(), "Number of sessions to skip."),
    Parameter("source", "query", {"type": "string"}, "Only sessions from this source."),
    Parameter(
        "include_children",
        "query",
        {"type": "boolean"},
        "Include forks and child sessions (default true).",
    ),
)
MESSAGE_PARAMETERS = (
    AFTER,
    Parameter(
        "limit",
        "query",
        integer_schema(1),
        f"Maximum number of messages, at most {MAX_MESSAGES:,} (default 500).",
    ),
)


def routes(context: ApiContext) -> list[Route]:
    handlers = _SessionHandlers(context)
    return [
        *_read_routes(handlers, SessionFollower(context)),
        *_change_routes(handlers),
        *_turn_routes(SessionChat(context)),
    ]


def _read_routes(handlers: "_SessionHandlers", follower: SessionFollower) -> list[Route]:
    return [
        Route(
            "GET",
            SESSIONS_PATH,
            handlers.list,
            "List sessions, most recently active first.",
            answer=SessionList,
            parameters=LIST_PARAMETERS,
        ),
        Route("GET", SESSION_PATH, handlers.get, "Get a session.", answer=SessionEnvelope),
        Route(
            "GET",
            f"{SESSION_PATH}/messages",
            handlers.messages,
            "List the messages of a session.",
            answer=MessageList,
            parameters=MESSAGE_PARAMETERS,
        ),
        Route(
            "GET",
            f"{SESSION_PATH}/events",
            follower.events,
            "Follow the messages of a session.",
            streams=True,
            parameters=FOLLOW_PARAMETERS,
        ),
    ]


def _change_routes(handlers: "_SessionHandlers") -> list[Route]:
    taken = {409: "The id or title is already in use."}
    busy = {409: TURN_ERRORS[409]}
    new_session_route = partial(Route, "POST", answer=SessionEnvelope, status=201)
    return [
        new_session_route(
            SESSIONS_PATH, handlers.create, "Create a session.", body=NewSession, answers=taken
        ),
        Route(
            "PATCH",
            SESSION_PATH,
            handlers.change,
            "Rename or end a session, or set its callback.",
            body=SessionPatch,
            answer=SessionEnvelope,
            answers=taken,
        ),
        Route(
            "DELETE",
            SESSION_PATH,
            handlers.delete,
            "Delete a session and its messages.",
            answer=SessionDeleted,
            answers=busy,
        ),
        new_session_route(
            f"{SESSION_PATH}/fork",
            handlers.fork,
            "Fork a session.",
            body=ForkRequest,
            answers=busy,
        ),
    ]


def _turn_routes(chat: SessionChat) -> list[Route]:
    turn_route = partial(
        Route, "POST", body=ChatTurn, parameters=TURN_PARAMETERS, answers=TURN_ERRORS
    )
    return [
        turn_route(
            f"{SESSION_PATH}/chat",
            chat.whole,
            "Run one turn in a session.",
            answer=SessionCompletion,
        ),
        turn_route(
            f"{SESSION_PATH}/chat/stream",
            chat.stream,
            "Run one turn in a session and stream it.",
            streams=True,
        ),
    ]


class _SessionHandlers:
    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def list(self, request: web.Request) -> web.StreamResponse:
        app = self._context.app(request)
        limit = _query_number(request, "limit", 50, MAX_LISTED)
        offset = _query_number(request, "offset", 0, MAX_OFFSET)
        session_filter = SessionFilter(source=request.query.get("source") or None)
        archive = app.store.archive_for(OWNER)
        if _query_flag(request, "include_children"):
            summaries = await archive.list(session_filter, limit + 1, offset)
        else:
            summaries = await _root_sessions(archive, session_filter, limit + 1, offset)
        page = SessionList(
            data=[summary_object(summary) for summary in summaries[:limit]],
            limit=limit,
            offset=offset,
            has_more=len(summaries) > limit,
        )
        return json_response(page)

    async def create(self, request: web.Request) -> web.StreamResponse:
        app = self._context.app(request)
        body = await self._context.read(request, _NEW)
        if body.id and body.session_id and body.id != body.session_id:
            raise invalid("id and session_id differ; give only one of them.", param="session_id")
        session_id = id_from_header(body.id or body.session_id, "id")
        title = _check_title(body.title)
        callback = self._callback(app, body.callback_url, body.callback_secret)
        prompt = body.system_prompt or ""
        if len(prompt) > MAX_PROMPT:
            message = f"The prompt has more than {MAX_PROMPT:,} characters."
            raise invalid(message, param="system_prompt")
        chosen = choose_model(self._context.settings, app, body.model, provider_name(body.provider))
        await require_provider(app, chosen)
        session = structs.replace(new_session(app, session_id), title=title)
        session = with_route(session, chosen.route)
        if prompt.strip():
            session = await _with_prompt(app, session, prompt)
        writes: list[Write] = [OpenSession(session)]
        if callback is not None:
            writes.append(SetCallback(session.id, callback))
        await _commit(app, session_id, title, *writes)
        await self._callback_changed(app, session.id, callback)
        created = structs.replace(session_object(session), callback_url=callback and callback.url)
        return json_response(SessionEnvelope(created), 201)

    async def get(self, request: web.Request) -> web.StreamResponse:
        return json_response(SessionEnvelope(await _with_callback_url(*await self._load(request))))

    async def change(self, request: web.Request) -> web.StreamResponse:
        body = await self._context.read(request, _PATCH)
        has_callback = body.callback_url is not UNSET
        if body.title is UNSET and body.end_reason is UNSET and not has_callback:
            raise invalid("Nothing to change: give title, end_reason or callback_url.")
        title = UNSET if body.title is UNSET else _check_title(body.title)
        app = self._context.app(request)
        callback = self._callback(app, body.callback_url or None, body.callback_secret)
        app, session = await self._load(request)
        new_title = title if title and title != session.title else ""
        ended = UNSET if body.end_reason is UNSET else app.clock.now()
        change = SessionChange(title=title, end_reason=body.end_reason, ended_at=ended)
        writes: list[Write] = [ChangeSession(session.id, change)]
        if has_callback:
            writes.append(SetCallback(session.id, callback))
        await _commit(app, "", new_title, *writes)
        if has_callback:
            await self._callback_changed(app, session.id, callback)
        changed = await _with_callback_url(app, await get_session(app, session.id))
        return json_response(SessionEnvelope(changed))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        app, session = await self._load(request)
        async with app.runner.holding(session.id) as lease:
            await app.store.archive_for(OWNER).delete([session.id], lease.fence)
        await app.store.commit(SetCallback(session.id, None))
        await self._callback_changed(app, session.id, None)
        return json_response(SessionDeleted(id=session.id))

    async def messages(self, request: web.Request) -> web.StreamResponse:
        limit = _query_number(request, "limit", 500, MAX_MESSAGES)
        after = _query_number(request, "after", 0, MAX_OFFSET)
        app, session = await self._load(request)
        archive = app.store.archive_for(OWNER)
        rows = await archive.messages(session.id, after)
        # The results at the start of a page belong to calls before it.
        tools = called_tools(await archive.messages(session.id) if after else rows)
        page = MessageList(
            session_id=session.id,
            data=[message_object(session.id, row, tools) for row in rows[:limit]],
            has_more=len(rows) > limit,
        )
        return json_response(page)

    async def fork(self, request: web.Request) -> web.StreamResponse:
        data = await self._context.body_of(request)
        body = decode_body(data, _FORK) if data.strip() else ForkRequest()
        title = _check_title(body.title)
        fork_id = id_from_header(body.id or body.session_id, "id")
        app, session = await self._load(request)
        async with app.runner.holding(session.id) as lease:
            copy = await _fork_session(app, session, fork_id, title, lease)
        return json_response(SessionEnvelope(session_object(copy)), 201)

    def _callback(self, app: App, url: str | None, secret: str | None) -> Callback | None:
        private = self._context.settings.callback_allow_private
        return check_callback(url, secret, secret_box_of(app.home), allow_private=private)

    async def _callback_changed(self, app: App, session: str, callback: Callback | None) -> None:
        if service := self._context.followup_service(app):
            await service.callback_changed(session, on=callback is not None)

    async def _load(self, request: web.Request) -> tuple[App, Session]:
        app = self._context.app(request)
        return app, await get_session(app, request.match_info["session_id"])


async def _with_callback_url(app: App, session: Session) -> SessionObject:
    callback = await app.store.api.callback(session.id)
    return structs.replace(session_object(session), callback_url=callback and callback.url)


async def _fork_session(
    app: App, session: Session, fork_id: str, title: str, lease: Lease
) -> Session:
    copy = structs.replace(continued_from(new_session(app, fork_id), session), title=title)
    writes = await copy_session(app.store, app.runner, lease, copy, client_calls=True)
    if not session.key:
        # The open session of a chat stays open, because the chat continues in it.
        ended = SessionChange(ended_at=app.clock.now(), end_reason="branched")
        writes.append(ChangeSession(session.id, ended))
    await _commit(app, fork_id, title, *writes, fence=lease.fence)
    return copy


async def _with_prompt(app: App, session: Session, prompt: str) -> Session:
    """Append the prompt to the default one; it stays fixed as long as the model does."""
    scope = Scope(
        profile=app.home.profile,
        session=session.id,
        run=new_id("run"),
        workspace=session.cwd,
        later=False,
        source=session.source,
    )
    plan = await app.planner.plan(session, scope, [])
    return structs.replace(
        session,
        system=f"{plan.system}\n\n{prompt.strip()}",
        model=plan.model.name,
        provider=plan.model.provider,
    )


async def _root_sessions(
    archive: SessionArchive, session_filter: SessionFilter, limit: int, offset: int
) -> list[SessionSummary]:
    """List only sessions that are not children of others."""
    found: list[SessionSummary] = []
    position = 0
    while len(found) < offset + limit:
        batch = await archive.list(session_filter, MAX_LISTED, position)
        found += [summary for summary in batch if summary.session.parent is None]
        position += len(batch)
        if len(batch) < MAX_LISTED:
            break
    return found[offset : offset + limit]


async def _check_unused(app: App, session_id: str, title: str) -> None:
    if session_id and await find_session(app, session_id) is not None:
        message = f"Session {session_id!r} already exists."
        raise ApiError(409, "session_exists", message, param="id")
    if not title:
        return
    try:
        found = await app.store.archive_for(OWNER).find(title)
    except NotFound:
        return
    if found.title == title:
        message = f"Another session already has the title {title!r}."
        raise ApiError(409, "title_taken", message, param="title")


async def _commit(
    app: App, session_id: str, title: str, *writes: Write, fence: Fence | None = None
) -> None:
    """Commit unless the id or title is taken, even by a concurrent request."""
    await _check_unused(app, session_id, title)
    try:
        await app.store.commit(*writes, fence=fence)
    except StoreError:
        await _check_unused(app, session_id, title)
        raise


def _check_title(text: str | None) -> str:
    title = (text or "").strip()
    if len(title) > MAX_TITLE or not title.isprintable():
        message = f"A title must be one line of at most {MAX_TITLE} characters."
        raise invalid(message, param="title", code="invalid_title")
    return title


def _query_number(request: web.Request, name: str, default: int, maximum: int) -> int:
    number = read_number(request.query.get(name, str(default)), name, name)
    if name == "limit" and number == 0:
        raise invalid("limit must be at least 1.", param=name)
    return min(number, maximum)


def _query_flag(request: web.Request, name: str) -> bool:
    """Read a boolean parameter that defaults to true."""
    value = request.query.get(name, "true").lower()
    if value not in {"true", "false", "1", "0"}:
        raise invalid(f"{name} must be true or false.", param=name)
    return value in {"true", "1"}
