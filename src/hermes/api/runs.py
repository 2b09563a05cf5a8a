"""Runs: work that is begun with a request and goes on without it, followed on a durable journal."""

import secrets
from collections.abc import AsyncGenerator

import msgspec
from aiohttp import web
from msgspec import structs

from hermes.api.callbacks import checked
from hermes.api.desk import PROFILE, Desk, Route, answer, decode
from hermes.api.entry import Ask, Going
from hermes.api.errors import ApiError, invalid, missing
from hermes.api.naming import model_names, route_for
from hermes.api.parameters import FOLLOWED, NEW_TURN, TURN
from hermes.api.run_events_stream import stream_events
from hermes.api.runs_desk import PREFIX, Runs
from hermes.api.runs_requests import (
    ApprovalAnswer,
    ApprovalRequest,
    ClarifyAnswer,
    ClarifyRequest,
    RunBegun,
    RunList,
    RunRequest,
    RunSteered,
    RunStopped,
    SteerRequest,
)
from hermes.api.runs_talk import (
    Question,
    Talk,
    Wanted,
    idempotency,
    key_reused,
)
from hermes.api.runs_wire import RunState, frame, state_of
from hermes.api.seal import seal_of
from hermes.api.talks import SESSION_KEY, header_name, settle
from hermes.app.build import App
from hermes.approvals.desk import Answerer
from hermes.kit.text import one_line
from hermes.ports.journal import RunRecord, RunStatus
from hermes.schema.errors import NotFound
from hermes.schema.messages import Trust
from hermes.schema.questions import Choice
from hermes.schema.scope import OWNER, Role

CLOSED = b": stream closed\n\n"

_RUN = msgspec.json.Decoder(RunRequest)
_STEER = msgspec.json.Decoder(SteerRequest)
_APPROVAL = msgspec.json.Decoder(ApprovalRequest)
_CLARIFY = msgspec.json.Decoder(ClarifyRequest)


def routes(desk: Desk) -> list[Route]:
    door = _Door(desk)
    return [*_runs(door), *_words(door)]


def _runs(door: "_Door") -> list[Route]:
    busy = {
        409: "The session is in the middle of a turn.",
        422: "The Idempotency-Key was used for another request.",
        429: "There is no room.",
        503: "Ending.",
    }
    return [
        Route(
            method="POST",
            path="/v1/runs",
            handler=door.start,
            body=RunRequest,
            answer=RunBegun,
            takes=NEW_TURN,
            status=202,
            answers=busy,
            summary="Begin a run, which goes on by itself.",
        ),
        Route(
            method="GET",
            path="/v1/runs",
            handler=door.list,
            answer=RunList,
            summary="The runs that go on, and the turns that have an Idempotency-Key.",
        ),
        Route(
            method="GET",
            path="/v1/runs/{run_id}",
            handler=door.state,
            answer=RunState,
            summary="How a run stands.",
        ),
        Route(
            method="GET",
            path="/v1/runs/{run_id}/events",
            handler=door.events,
            streams=True,
            takes=FOLLOWED,
            summary="Follow a run from any event on.",
        ),
    ]


def _words(door: "_Door") -> list[Route]:
    """What is said to a run that goes on."""
    not_now = {409: "It is not the time for this."}
    return [
        Route(
            method="POST",
            path="/v1/runs/{run_id}/stop",
            handler=door.stop,
            answer=RunStopped,
            answers=not_now,
            summary="Stop a run, or a turn that has an Idempotency-Key, at once.",
        ),
        Route(
            method="POST",
            path="/v1/runs/{run_id}/steer",
            handler=door.steer,
            body=SteerRequest,
            answer=RunSteered,
            takes=TURN,
            status=202,
            answers=not_now | {429: "Too much waits already."},
            summary="Say something to a run that goes on.",
        ),
        Route(
            method="POST",
            path="/v1/runs/{run_id}/approval",
            handler=door.approve,
            body=ApprovalRequest,
            answer=ApprovalAnswer,
            answers=not_now,
            summary="Answer what a run asks leave for.",
        ),
        Route(
            method="POST",
            path="/v1/runs/{run_id}/clarify",
            handler=door.clarify,
            body=ClarifyRequest,
            answer=ClarifyAnswer,
            answers=not_now,
            summary="Answer a question of a run.",
        ),
    ]


class _Door:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._runs = Runs(desk)

    async def start(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        data = await self._desk.bytes_of(request)
        body = decode(data, _RUN)
        named = header_name(request.headers.get(SESSION_KEY), SESSION_KEY)
        header = request.headers.get("X-Hermes-Session-Id", "")
        # The same words to another session are another request.
        whole = b"\0".join([data, *(one.encode() for one in (header, named) if one)])
        key, fingerprint = idempotency(request.headers.get("Idempotency-Key"), whole, "runs")
        wanted = _wanted(body, header)
        question = Question(structs.replace(wanted, key=named))
        route = route_for(self._desk.settings, app, body.model)
        private = self._desk.settings.callback_allow_private
        seal = seal_of(app.home)
        callback = checked(body.callback_url, body.callback_secret, seal, private=private)
        opened = await app.store.journal.by_key(key, OWNER) if key else None
        if opened is None:
            slot = self._desk.entry.take(request.get(PROFILE, ""))
            try:
                talk = await question.place(app)
                talk = structs.replace(talk, place=await settle(app, talk.place, route))
            except BaseException:
                slot.release()
                raise
            record = self._record(app, body, talk.place.session.id, (key, fingerprint))
            opened = await self._runs.start(app, record, _ask(body, talk), slot, callback)
        if opened.fingerprint != fingerprint:
            raise key_reused()
        told = RunBegun(run_id=opened.run, session_id=opened.session)
        headers = {"X-Hermes-Run-Id": opened.run, "X-Hermes-Session-Id": opened.session}
        return answer(told, 202, headers | ({SESSION_KEY: named} if named else {}))

    async def list(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        runs = [state_of(record) for record in await self._runs.going_on(app)]
        turns = [self._turn(one) for one in self._desk.entry.going.values() if one.app is app]
        return answer(RunList(sorted([*runs, *turns], key=lambda one: one.created_at)))

    async def state(self, request: web.Request) -> web.StreamResponse:
        if going := self._going(request):
            return answer(self._turn(going))
        _, record = await self._found(request)
        return answer(state_of(record))

    async def events(self, request: web.Request) -> web.StreamResponse:
        after = _after(request)
        app, record = await self._found(request)

        async def frames() -> AsyncGenerator[bytes]:
            async for some in self._runs.follow(app, record, after):
                yield b"".join(frame(event.seq, event.body) for event in some)
            yield CLOSED

        return await stream_events(self._desk, request, frames())

    async def stop(self, request: web.Request) -> web.StreamResponse:
        if going := self._going(request):
            going.scope.cancel()
            return answer(RunStopped(run_id=going.ask.run, status=RunStatus.STOPPING))
        _, record = await self._found(request)
        return answer(RunStopped(run_id=record.run, status=self._runs.stop(record)))

    async def steer(self, request: web.Request) -> web.StreamResponse:
        body = await self._desk.read(request, _STEER)
        question = Question(Wanted(input=body.input))
        key, _ = idempotency(request.headers.get("Idempotency-Key"), b"", "steer")
        app, record = await self._found(request)
        word = await question.asked(app)
        await self._runs.steer(app, record, word, key)
        return answer(RunSteered(run_id=record.run), 202)

    async def approve(self, request: web.Request) -> web.StreamResponse:
        body = await self._desk.read(request, _APPROVAL)
        app, record = await self._found(request)
        self._demand_live(record, "approval_not_active")
        choice = Choice.ONCE if body.choice in {"approve", "allow"} else Choice(body.choice)
        who = Answerer(session=record.session)
        heard = await app.approvals.answer(
            who, choice, question=body.question_id, everything=body.all or body.resolve_all
        )
        if not heard.count:
            raise ApiError(409, "approval_not_pending", heard.told)
        told = ApprovalAnswer(run_id=record.run, choice=choice, resolved=heard.count)
        return answer(told)

    async def clarify(self, request: web.Request) -> web.StreamResponse:
        body = await self._desk.read(request, _CLARIFY)
        app, record = await self._found(request)
        self._demand_live(record, "clarify_not_active")
        who = Answerer(session=record.session)
        heard = await app.approvals.reply(who, body.answer, question=body.question_id)
        if heard is None or not heard.count:
            told = (heard and heard.told) or f"Run {record.run} asks nothing."
            raise ApiError(409, "clarify_not_pending", told)
        return answer(ClarifyAnswer(run_id=record.run, resolved=heard.count))

    def _demand_live(self, record: RunRecord, code: str) -> None:
        if not self._runs.is_live(record):
            raise ApiError(409, code, f"Run {record.run} asks nothing: it does not go on here.")

    def _going(self, request: web.Request) -> Going | None:
        return self._desk.entry.going_in(self._desk.app(request), request.match_info["run_id"])

    def _turn(self, going: Going) -> RunState:
        began, stopping = going.began.timestamp(), going.scope.cancel_called
        return RunState(
            object="hermes.turn",
            run_id=going.ask.run,
            status=RunStatus.STOPPING if stopping else RunStatus.RUNNING,
            created_at=began,
            updated_at=began,
            session_id=going.ask.session.id,
            model=model_names(self._desk.settings, going.app)[0],
            last_event=None,
            last_event_id=0,
        )

    async def _found(self, request: web.Request) -> tuple[App, RunRecord]:
        app = self._desk.app(request)
        run = request.match_info["run_id"]
        unknown = missing(f"There is no run {one_line(run, 100)!r}.", "run_not_found")
        if not run.startswith(PREFIX):
            raise unknown
        try:
            return app, await self._runs.state(app, run)
        except NotFound as error:
            raise unknown from error

    def _record(self, app: App, body: RunRequest, session: str, once: tuple[str, str]) -> RunRecord:
        now = app.clock.now()
        return RunRecord(
            run=f"{PREFIX}{secrets.token_hex(16)}",
            session=session,
            principal=OWNER,
            created=now,
            updated=now,
            model=body.model or model_names(self._desk.settings, app)[0],
            key=once[0],
            fingerprint=once[1],
        )


def _wanted(body: RunRequest, header: str) -> Wanted:
    if body.session_id and body.previous_response_id:
        told = "Name a session or a response to go on from, not both."
        raise invalid(told, param="previous_response_id")
    return Wanted(
        input=body.input,
        history=body.conversation_history or [],
        session=body.session_id or "",
        header=header,
        previous=body.previous_response_id or "",
        trust=_trust(body),
        role=body.role,
    )


def _trust(body: RunRequest) -> Trust:
    if body.brought:
        return Trust.DATA
    return Trust.OWNER if body.role is Role.OWNER else Trust.GUEST


def _ask(body: RunRequest, talk: Talk) -> Ask:
    carried = talk.previous.instructions if talk.previous else ""
    said = carried if body.instructions is None else body.instructions
    return Ask(
        session=talk.place.session,
        asked=talk.prompt.asked,
        role=body.role,
        new=talk.place.new,
        results=talk.prompt.results,
        instructions="\n\n".join(filter(None, [said, talk.prompt.instructions])),
        followed=body.later,
        attended=True,
    )


def _after(request: web.Request) -> int:
    """From which event on; what a browser sends by itself when it comes back counts more."""
    given = request.headers.get("Last-Event-ID") or request.query.get("after") or "0"
    if not given.isascii() or not given.isdecimal() or len(given) > 18:
        raise invalid("The number of an event is a whole number from 0 on.", param="after")
    return int(given)
