"""Sessions for programs: list, make, read, rename, end, copy and delete them."""

import msgspec
from aiohttp import web
from msgspec import UNSET, structs

from hermes.api.callbacks import Callback, callback_of, callback_registration, check_callback
from hermes.api.catalog import model_route_for
from hermes.api.context import (
    AFTER,
    FOLLOW_PARAMETERS,
    TURN_PARAMETERS,
    ApiContext,
    Route,
    decode_body,
    integer_schema,
    json_response,
    query_parameter,
)
from hermes.api.errors import ApiError, invalid
from hermes.api.idempotency import TURN_ERRORS
from hermes.api.run_input import get_session, new_session
from hermes.api.secret_box import secret_box_of
from hermes.api.session_chat import SessionChat, SessionFollower
from hermes.api.session_objects import (
    ChatTurn,
    ForkRequest,
    MessageList,
    NewSession,
    SessionCompletion,
    SessionDeleted,
    SessionList,
    SessionObject,
    SessionPatch,
    message_object,
    session_object,
    summary_object,
)
from hermes.api.session_resolver import id_from_header
from hermes.app.build import App
from hermes.kit.ids import new_id
from hermes.ports.store import ChangeSession, Fence, OpenSession, Write
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
    query_parameter("limit", integer_schema(1), f"{MAX_LISTED} at most; usually 50."),
    query_parameter("offset", integer_schema(), "How many are passed over."),
    query_parameter("source", {"type": "string"}, "Only those that began there."),
    query_parameter(
        "include_children", {"type": "boolean"}, "Also copies and parts; usually true."
    ),
)


def routes(desk: ApiContext) -> list[Route]:
    door = _SessionHandlers(desk)
    return [
        *_read_routes(door, SessionFollower(desk)),
        *_change_routes(door),
        *_turn_routes(SessionChat(desk)),
    ]


def _read_routes(door: "_SessionHandlers", follow: SessionFollower) -> list[Route]:
    return [
        Route(
            method="GET",
            path=SESSIONS_PATH,
            handler=door.list,
            summary="Sessions, the last active first.",
            answer=SessionList,
            takes=LIST_PARAMETERS,
        ),
        Route(
            method="GET",
            path=SESSION_PATH,
            handler=door.get,
            summary="One session.",
            answer=SessionObject,
        ),
        Route(
            method="GET",
            path=f"{SESSION_PATH}/messages",
            handler=door.messages,
            summary="What was said in it.",
            answer=MessageList,
            takes=(
                AFTER,
                query_parameter(
                    "limit", integer_schema(1), f"{MAX_MESSAGES:,} at most; usually 500."
                ),
            ),
        ),
        Route(
            method="GET",
            path=f"{SESSION_PATH}/events",
            handler=follow.events,
            summary="Follow what is said in a session.",
            streams=True,
            takes=FOLLOW_PARAMETERS,
        ),
    ]


def _change_routes(door: "_SessionHandlers") -> list[Route]:
    taken = {409: "The id or the title is taken."}
    busy = {409: "The session is in the middle of a turn."}
    return [
        Route(
            method="POST",
            path=SESSIONS_PATH,
            handler=door.create,
            summary="Make a session.",
            body=NewSession,
            answer=SessionObject,
            status=201,
            answers=taken,
        ),
        Route(
            method="PATCH",
            path=SESSION_PATH,
            handler=door.change,
            summary="Rename or end a session, or give it a callback.",
            body=SessionPatch,
            answer=SessionObject,
            answers=taken,
        ),
        Route(
            method="DELETE",
            path=SESSION_PATH,
            handler=door.delete,
            summary="Delete a session with all that is in it.",
            answer=SessionDeleted,
            answers=busy,
        ),
        Route(
            method="POST",
            path=f"{SESSION_PATH}/fork",
            handler=door.fork,
            summary="Go on in a copy of a session.",
            body=ForkRequest,
            answer=SessionObject,
            status=201,
            answers=busy,
        ),
    ]


def _turn_routes(chat: SessionChat) -> list[Route]:
    return [
        Route(
            method="POST",
            path=f"{SESSION_PATH}/chat",
            handler=chat.whole,
            summary="One turn in a session.",
            body=ChatTurn,
            answer=SessionCompletion,
            takes=TURN_PARAMETERS,
            answers=TURN_ERRORS,
        ),
        Route(
            method="POST",
            path=f"{SESSION_PATH}/chat/stream",
            handler=chat.stream,
            summary="One turn in a session, as it grows.",
            body=ChatTurn,
            streams=True,
            takes=TURN_PARAMETERS,
            answers=TURN_ERRORS,
        ),
    ]


class _SessionHandlers:
    def __init__(self, desk: ApiContext) -> None:
        self._desk = desk

    async def list(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        limit = _query_number(request, "limit", 50, MAX_LISTED)
        offset = _query_number(request, "offset", 0, MAX_OFFSET)
        where = SessionFilter(source=request.query.get("source") or None)
        if _query_flag(request, "include_children"):
            found = list(await app.store.archive_for(OWNER).list(where, limit + 1, offset))
        else:
            found = await _root_sessions(app, where, limit + 1, offset)
        listed = SessionList(
            data=[summary_object(one) for one in found[:limit]],
            limit=limit,
            offset=offset,
            has_more=len(found) > limit,
        )
        return json_response(listed)

    async def create(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        body = await self._desk.read(request, _NEW)
        if body.id and body.session_id and body.id != body.session_id:
            raise invalid("id and session_id are two names for the same.", param="session_id")
        identity = id_from_header(body.id or body.session_id, "id")
        title = _check_title(body.title)
        callback = self._callback(app, body.callback_url, body.callback_secret)
        prompt = body.system_prompt or ""
        if len(prompt) > MAX_PROMPT:
            told = f"The prompt has more than {MAX_PROMPT:,} characters."
            raise invalid(told, param="system_prompt")
        session = structs.replace(new_session(app, identity), title=title)
        if route := model_route_for(self._desk.settings, app, body.model):
            session = structs.replace(session, model=route.model, provider=route.provider)
        if prompt.strip():
            session = await _with_prompt(app, session, prompt)
        writes: list[Write] = [OpenSession(session)]
        if callback is not None:
            writes.append(callback_registration(session.id, callback, app.clock.now()))
        await _commit(app, identity, title, *writes)
        await self._callback_changed(app, session.id, callback)
        told = structs.replace(session_object(session), callback_url=callback and callback.url)
        return json_response(told, 201)

    async def get(self, request: web.Request) -> web.StreamResponse:
        return json_response(await _with_callback_url(*await self._found(request)))

    async def change(self, request: web.Request) -> web.StreamResponse:
        body = await self._desk.read(request, _PATCH)
        called = body.callback_url is not UNSET
        if body.title is UNSET and body.end_reason is UNSET and not called:
            raise invalid("Only title, end_reason and callback_url can be changed; name one.")
        title = UNSET if body.title is UNSET else _check_title(body.title)
        app = self._desk.app(request)
        callback = self._callback(app, body.callback_url or None, body.callback_secret)
        app, session = await self._found(request)
        new_title = title if title and title != session.title else ""
        ended = UNSET if body.end_reason is UNSET else app.clock.now()
        change = SessionChange(title=title, end_reason=body.end_reason, ended_at=ended)
        writes: list[Write] = [ChangeSession(session.id, change)]
        if called:
            writes.append(callback_registration(session.id, callback, app.clock.now()))
        await _commit(app, "", new_title, *writes)
        if called:
            await self._callback_changed(app, session.id, callback)
        return json_response(await _with_callback_url(app, await get_session(app, session.id)))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        app, session = await self._found(request)
        async with app.runner.holding(session.id) as lease:
            await app.store.archive_for(OWNER).delete([session.id], lease.fence)
        await app.store.commit(callback_registration(session.id, None, app.clock.now()))
        await self._callback_changed(app, session.id, None)
        return json_response(SessionDeleted(id=session.id))

    async def messages(self, request: web.Request) -> web.StreamResponse:
        limit = _query_number(request, "limit", 500, MAX_MESSAGES)
        after = _query_number(request, "after", 0, MAX_OFFSET)
        app, session = await self._found(request)
        rows = await app.store.archive_for(OWNER).messages(session.id, after)
        listed = MessageList(
            session_id=session.id,
            data=[message_object(row) for row in rows[:limit]],
            has_more=len(rows) > limit,
        )
        return json_response(listed)

    async def fork(self, request: web.Request) -> web.StreamResponse:
        data = await self._desk.body_of(request)
        title = _check_title((decode_body(data, _FORK) if data.strip() else ForkRequest()).title)
        app, session = await self._found(request)
        async with app.runner.holding(session.id) as lease:
            copy = await _fork_session(app, session, title, lease)
        return json_response(session_object(copy), 201)

    def _callback(self, app: App, url: str | None, secret: str | None) -> Callback | None:
        private = self._desk.settings.callback_allow_private
        return check_callback(url, secret, secret_box_of(app.home), private=private)

    async def _callback_changed(self, app: App, session: str, callback: Callback | None) -> None:
        if office := self._desk.office(app):
            await office.changed(session, on=callback is not None)

    async def _found(self, request: web.Request) -> tuple[App, Session]:
        app = self._desk.app(request)
        return app, await get_session(app, request.match_info["session_id"])


async def _with_callback_url(app: App, session: Session) -> SessionObject:
    callback = await callback_of(app.store, session.id)
    return structs.replace(session_object(session), callback_url=callback and callback.url)


async def _fork_session(app: App, session: Session, title: str, lease: Lease) -> Session:
    copy = structs.replace(continued_from(new_session(app), session), title=title)
    writes = await copy_session(app.store, app.runner, lease, copy, handed=True)
    if not session.key:
        # The open session of a chat stays open: its people go on in it.
        ended = SessionChange(ended_at=app.clock.now(), end_reason="branched")
        writes.append(ChangeSession(session.id, ended))
    await _commit(app, "", title, *writes, fence=lease.fence)
    return copy


async def _with_prompt(app: App, session: Session, prompt: str) -> Session:
    """The usual prompt with this one after it, kept as it is for as long as the model stays."""
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
    app: App, where: SessionFilter, limit: int, offset: int
) -> list[SessionSummary]:
    """Only those that are nobody's copy."""
    found: list[SessionSummary] = []
    place = 0
    archive = app.store.archive_for(OWNER)
    while len(found) < offset + limit:
        some = await archive.list(where, MAX_LISTED, place)
        found += [one for one in some if one.session.parent is None]
        place += len(some)
        if len(some) < MAX_LISTED:
            break
    return found[offset : offset + limit]


async def _check_unused(app: App, identity: str, title: str) -> None:
    archive = app.store.archive_for(OWNER)
    if identity:
        try:
            await archive.get(identity)
        except NotFound:
            pass
        else:
            told = f"There is already a session {identity!r}."
            raise ApiError(409, "session_exists", told, param="id")
    if not title:
        return
    try:
        found = await archive.find(title)
    except NotFound:
        return
    if found.title == title:
        raise _title_taken(title)


async def _commit(
    app: App, identity: str, title: str, *writes: Write, fence: Fence | None = None
) -> None:
    """Refuses an id and a title that are taken, also when they were free a moment ago."""
    await _check_unused(app, identity, title)
    try:
        await app.store.commit(*writes, fence=fence)
    except StoreError:
        await _check_unused(app, identity, title)
        raise


def _title_taken(title: str) -> ApiError:
    told = f"Another session is already called {title!r}."
    return ApiError(409, "title_taken", told, param="title")


def _check_title(given: str | None) -> str:
    title = (given or "").strip()
    if len(title) > MAX_TITLE or not title.isprintable():
        told = f"A title is one line of at most {MAX_TITLE} characters."
        raise invalid(told, param="title", code="invalid_title")
    return title


def _query_number(request: web.Request, name: str, usual: int, most: int) -> int:
    given = request.query.get(name)
    if given is None:
        return usual
    if not given.isascii() or not given.isdecimal() or len(given) > 15:
        raise invalid(f"{name} must be a whole number from 0 on.", param=name)
    if name == "limit" and int(given) == 0:
        raise invalid("limit must be at least 1.", param=name)
    return min(int(given), most)


def _query_flag(request: web.Request, name: str) -> bool:
    """Yes, unless it is said not to be."""
    given = request.query.get(name, "true").lower()
    if given not in {"true", "false", "1", "0"}:
        raise invalid(f"{name} is true or false.", param=name)
    return given in {"true", "1"}
