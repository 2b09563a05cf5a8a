"""Sessions for programs: list, make, read, rename, end, copy and delete them."""

import msgspec
from aiohttp import web
from msgspec import UNSET, structs

from hermes.api.callbacks import Callback, callback_of, checked, registered
from hermes.api.desk import Desk, Route, answer, decode
from hermes.api.errors import ApiError, invalid
from hermes.api.naming import route_for
from hermes.api.parameters import AFTER, FOLLOWED, TURN, query, whole_number
from hermes.api.replies import ANSWERS
from hermes.api.runs_talk import fresh_session, known_session
from hermes.api.seal import seal_of
from hermes.api.sessions_chat import SessionChat
from hermes.api.sessions_follow import SessionFollow
from hermes.api.sessions_wire import (
    ChatTurn,
    Fork,
    MessageList,
    NewSession,
    SessionCompletion,
    SessionDeleted,
    SessionList,
    SessionObject,
    SessionPatch,
    digest_object,
    message_object,
    session_object,
)
from hermes.api.talks import header_name
from hermes.app.build import App
from hermes.kit.ids import new_id
from hermes.ports.store import ChangeSession, Fence, OpenSession, Write
from hermes.schema.errors import NotFound, StoreError
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Digest, Session, SessionChange, SessionFilter, going_on
from hermes.session.conversation import copied
from hermes.session.lease import Lease

MOST_LISTED = 200
MOST_MESSAGES = 2_000
LONGEST_TITLE = 200
LONGEST_PROMPT = 200_000
FARTHEST = 10**15
ALL = "/api/sessions"
ONE = "/api/sessions/{session_id}"

_NEW = msgspec.json.Decoder(NewSession)
_PATCH = msgspec.json.Decoder(SessionPatch)
_FORK = msgspec.json.Decoder(Fork)


LISTED = (
    query("limit", whole_number(1), f"{MOST_LISTED} at most; usually 50."),
    query("offset", whole_number(), "How many are passed over."),
    query("source", {"type": "string"}, "Only those that began there."),
    query("include_children", {"type": "boolean"}, "Also copies and parts; usually true."),
)


def routes(desk: Desk) -> list[Route]:
    door = _Door(desk)
    return [*_looks(door, SessionFollow(desk)), *_changes(door), *_turns(SessionChat(desk))]


def _looks(door: "_Door", follow: SessionFollow) -> list[Route]:
    return [
        Route(
            method="GET",
            path=ALL,
            handler=door.list,
            summary="Sessions, the last active first.",
            answer=SessionList,
            takes=LISTED,
        ),
        Route(
            method="GET",
            path=ONE,
            handler=door.get,
            summary="One session.",
            answer=SessionObject,
        ),
        Route(
            method="GET",
            path=f"{ONE}/messages",
            handler=door.messages,
            summary="What was said in it.",
            answer=MessageList,
            takes=(
                AFTER,
                query("limit", whole_number(1), f"{MOST_MESSAGES:,} at most; usually 500."),
            ),
        ),
        Route(
            method="GET",
            path=f"{ONE}/events",
            handler=follow.events,
            summary="Follow what is said in a session.",
            streams=True,
            takes=FOLLOWED,
        ),
    ]


def _changes(door: "_Door") -> list[Route]:
    taken = {409: "The id or the title is taken."}
    busy = {409: "The session is in the middle of a turn."}
    return [
        Route(
            method="POST",
            path=ALL,
            handler=door.create,
            summary="Make a session.",
            body=NewSession,
            answer=SessionObject,
            status=201,
            answers=taken,
        ),
        Route(
            method="PATCH",
            path=ONE,
            handler=door.change,
            summary="Rename or end a session, or give it a callback.",
            body=SessionPatch,
            answer=SessionObject,
            answers=taken,
        ),
        Route(
            method="DELETE",
            path=ONE,
            handler=door.delete,
            summary="Delete a session with all that is in it.",
            answer=SessionDeleted,
            answers=busy,
        ),
        Route(
            method="POST",
            path=f"{ONE}/fork",
            handler=door.fork,
            summary="Go on in a copy of a session.",
            body=Fork,
            answer=SessionObject,
            status=201,
            answers=busy,
        ),
    ]


def _turns(chat: SessionChat) -> list[Route]:
    return [
        Route(
            method="POST",
            path=f"{ONE}/chat",
            handler=chat.whole,
            summary="One turn in a session.",
            body=ChatTurn,
            answer=SessionCompletion,
            takes=TURN,
            answers=ANSWERS,
        ),
        Route(
            method="POST",
            path=f"{ONE}/chat/stream",
            handler=chat.stream,
            summary="One turn in a session, as it grows.",
            body=ChatTurn,
            streams=True,
            takes=TURN,
            answers=ANSWERS,
        ),
    ]


class _Door:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def list(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        limit = _number(request, "limit", 50, MOST_LISTED)
        offset = _number(request, "offset", 0, FARTHEST)
        where = SessionFilter(source=request.query.get("source") or None)
        if _flag(request, "include_children"):
            found = list(await app.store.seen_by(OWNER).list(where, limit + 1, offset))
        else:
            found = await _roots(app, where, limit + 1, offset)
        listed = SessionList(
            data=[digest_object(one) for one in found[:limit]],
            limit=limit,
            offset=offset,
            has_more=len(found) > limit,
        )
        return answer(listed)

    async def create(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        body = await self._desk.read(request, _NEW)
        if body.id and body.session_id and body.id != body.session_id:
            raise invalid("id and session_id are two names for the same.", param="session_id")
        identity = header_name(body.id or body.session_id, "id")
        title = _title(body.title)
        callback = self._callback(app, body.callback_url, body.callback_secret)
        prompt = body.system_prompt or ""
        if len(prompt) > LONGEST_PROMPT:
            told = f"The prompt has more than {LONGEST_PROMPT:,} characters."
            raise invalid(told, param="system_prompt")
        session = structs.replace(fresh_session(app, identity), title=title)
        if route := route_for(self._desk.settings, app, body.model):
            session = structs.replace(session, model=route.model, provider=route.provider)
        if prompt.strip():
            session = await _with_prompt(app, session, prompt)
        writes: list[Write] = [OpenSession(session)]
        if callback is not None:
            writes.append(registered(session.id, callback, app.clock.now()))
        await _commit(app, identity, title, *writes)
        await self._called_back(app, session.id, callback)
        told = structs.replace(session_object(session), callback_url=callback and callback.url)
        return answer(told, 201)

    async def get(self, request: web.Request) -> web.StreamResponse:
        return answer(await _shown(*await self._found(request)))

    async def change(self, request: web.Request) -> web.StreamResponse:
        body = await self._desk.read(request, _PATCH)
        called = body.callback_url is not UNSET
        if body.title is UNSET and body.end_reason is UNSET and not called:
            raise invalid("Only title, end_reason and callback_url can be changed; name one.")
        title = UNSET if body.title is UNSET else _title(body.title)
        app = self._desk.app(request)
        callback = self._callback(app, body.callback_url or None, body.callback_secret)
        app, session = await self._found(request)
        new_title = title if title and title != session.title else ""
        ended = UNSET if body.end_reason is UNSET else app.clock.now()
        change = SessionChange(title=title, end_reason=body.end_reason, ended_at=ended)
        writes: list[Write] = [ChangeSession(session.id, change)]
        if called:
            writes.append(registered(session.id, callback, app.clock.now()))
        await _commit(app, "", new_title, *writes)
        if called:
            await self._called_back(app, session.id, callback)
        return answer(await _shown(app, await known_session(app, session.id)))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        app, session = await self._found(request)
        async with app.runner.holding(session.id) as lease:
            await app.store.seen_by(OWNER).delete([session.id], lease.fence)
        await app.store.commit(registered(session.id, None, app.clock.now()))
        await self._called_back(app, session.id, None)
        return answer(SessionDeleted(id=session.id))

    async def messages(self, request: web.Request) -> web.StreamResponse:
        limit = _number(request, "limit", 500, MOST_MESSAGES)
        after = _number(request, "after", 0, FARTHEST)
        app, session = await self._found(request)
        rows = await app.store.seen_by(OWNER).messages(session.id, after)
        listed = MessageList(
            session_id=session.id,
            data=[message_object(row) for row in rows[:limit]],
            has_more=len(rows) > limit,
        )
        return answer(listed)

    async def fork(self, request: web.Request) -> web.StreamResponse:
        data = await self._desk.bytes_of(request)
        title = _title((decode(data, _FORK) if data.strip() else Fork()).title)
        app, session = await self._found(request)
        async with app.runner.holding(session.id) as lease:
            copy = await _forked(app, session, title, lease)
        return answer(session_object(copy), 201)

    def _callback(self, app: App, url: str | None, secret: str | None) -> Callback | None:
        private = self._desk.settings.callback_allow_private
        return checked(url, secret, seal_of(app.home), private=private)

    async def _called_back(self, app: App, session: str, callback: Callback | None) -> None:
        if office := self._desk.office(app):
            await office.changed(session, on=callback is not None)

    async def _found(self, request: web.Request) -> tuple[App, Session]:
        app = self._desk.app(request)
        return app, await known_session(app, request.match_info["session_id"])


async def _shown(app: App, session: Session) -> SessionObject:
    callback = await callback_of(app.store, session.id)
    return structs.replace(session_object(session), callback_url=callback and callback.url)


async def _forked(app: App, session: Session, title: str, lease: Lease) -> Session:
    copy = structs.replace(going_on(fresh_session(app), session), title=title)
    writes = await copied(app.store, app.runner, lease, copy, handed=True)
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


async def _roots(app: App, where: SessionFilter, limit: int, offset: int) -> list[Digest]:
    """Only those that are nobody's copy."""
    found: list[Digest] = []
    place = 0
    archive = app.store.seen_by(OWNER)
    while len(found) < offset + limit:
        some = await archive.list(where, MOST_LISTED, place)
        found += [one for one in some if one.session.parent is None]
        place += len(some)
        if len(some) < MOST_LISTED:
            break
    return found[offset : offset + limit]


async def _refuse_taken(app: App, identity: str, title: str) -> None:
    archive = app.store.seen_by(OWNER)
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
    await _refuse_taken(app, identity, title)
    try:
        await app.store.commit(*writes, fence=fence)
    except StoreError:
        await _refuse_taken(app, identity, title)
        raise


def _title_taken(title: str) -> ApiError:
    told = f"Another session is already called {title!r}."
    return ApiError(409, "title_taken", told, param="title")


def _title(given: str | None) -> str:
    title = (given or "").strip()
    if len(title) > LONGEST_TITLE or not title.isprintable():
        told = f"A title is one line of at most {LONGEST_TITLE} characters."
        raise invalid(told, param="title", code="invalid_title")
    return title


def _number(request: web.Request, name: str, usual: int, most: int) -> int:
    given = request.query.get(name)
    if given is None:
        return usual
    if not given.isascii() or not given.isdecimal() or len(given) > 15:
        raise invalid(f"{name} must be a whole number from 0 on.", param=name)
    if name == "limit" and int(given) == 0:
        raise invalid("limit must be at least 1.", param=name)
    return min(int(given), most)


def _flag(request: web.Request, name: str) -> bool:
    """Yes, unless it is said not to be."""
    given = request.query.get(name, "true").lower()
    if given not in {"true", "false", "1", "0"}:
        raise invalid(f"{name} is true or false.", param=name)
    return given in {"true", "1"}
