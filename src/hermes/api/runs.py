"""Runs: work that is begun with a request and goes on without it, followed on a durable journal."""

import secrets
from collections.abc import AsyncGenerator

import msgspec
from aiohttp import web
from msgspec import structs

from hermes.api.callbacks import check_callback
from hermes.api.catalog import model_names, model_route_for
from hermes.api.context import (
    FOLLOW_PARAMETERS,
    KEY_PROFILE,
    NEW_TURN_PARAMETERS,
    TURN_PARAMETERS,
    ApiContext,
    Route,
    decode_body,
    json_response,
)
from hermes.api.errors import ApiError, invalid, not_found
from hermes.api.event_stream import stream_events
from hermes.api.run_event_writer import RunState, event_frame, run_state
from hermes.api.run_input import ParsedInput, ResolvedInput, RunInput, idempotency_key, key_reused
from hermes.api.run_objects import (
    ApprovalAnswer,
    ApprovalAnswerRequest,
    ClarifyAnswer,
    ClarifyRequest,
    RunAccepted,
    RunList,
    RunRequest,
    RunSteered,
    RunStopped,
    SteerRequest,
)
from hermes.api.run_service import RUN_ID_PREFIX, RunService
from hermes.api.secret_box import secret_box_of
from hermes.api.session_resolver import SESSION_KEY_HEADER, id_from_header, prepare_session
from hermes.api.turn_gate import ApiTurnRequest, RunningTurn
from hermes.app.build import App
from hermes.approvals.service import Answerer
from hermes.kit.text import one_line
from hermes.ports.journal import RunRecord, RunStatus
from hermes.schema.errors import NotFound
from hermes.schema.messages import Trust
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import OWNER, Role

STREAM_CLOSED = b": stream closed\n\n"

_RUN = msgspec.json.Decoder(RunRequest)
_STEER = msgspec.json.Decoder(SteerRequest)
_APPROVAL = msgspec.json.Decoder(ApprovalAnswerRequest)
_CLARIFY = msgspec.json.Decoder(ClarifyRequest)


def routes(desk: ApiContext) -> list[Route]:
    door = _RunHandlers(desk)
    return [*_run_routes(door), *_control_routes(door)]


def _run_routes(door: "_RunHandlers") -> list[Route]:
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
            answer=RunAccepted,
            takes=NEW_TURN_PARAMETERS,
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
            takes=FOLLOW_PARAMETERS,
            summary="Follow a run from any event on.",
        ),
    ]


def _control_routes(door: "_RunHandlers") -> list[Route]:
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
            takes=TURN_PARAMETERS,
            status=202,
            answers=not_now | {429: "Too much waits already."},
            summary="Say something to a run that goes on.",
        ),
        Route(
            method="POST",
            path="/v1/runs/{run_id}/approval",
            handler=door.approve,
            body=ApprovalAnswerRequest,
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


class _RunHandlers:
    def __init__(self, desk: ApiContext) -> None:
        self._desk = desk
        self._runs = RunService(desk)

    async def start(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        data = await self._desk.body_of(request)
        body = decode_body(data, _RUN)
        named = id_from_header(request.headers.get(SESSION_KEY_HEADER), SESSION_KEY_HEADER)
        header = request.headers.get("X-Hermes-Session-Id", "")
        # The same words to another session are another request.
        whole = b"\0".join([data, *(one.encode() for one in (header, named) if one)])
        key, fingerprint = idempotency_key(request.headers.get("Idempotency-Key"), whole, "runs")
        wanted = _run_input(body, header)
        question = ParsedInput(structs.replace(wanted, key=named))
        route = model_route_for(self._desk.settings, app, body.model)
        private = self._desk.settings.callback_allow_private
        seal = secret_box_of(app.home)
        callback = check_callback(body.callback_url, body.callback_secret, seal, private=private)
        opened = await app.store.journal.by_key(key, OWNER) if key else None
        if opened is None:
            slot = self._desk.entry.take(request.get(KEY_PROFILE, ""))
            try:
                talk = await question.place(app)
                talk = structs.replace(talk, place=await prepare_session(app, talk.place, route))
            except BaseException:
                slot.release()
                raise
            record = self._record(app, body, talk.place.session.id, (key, fingerprint))
            opened = await self._runs.start(app, record, _turn_request(body, talk), slot, callback)
        if opened.fingerprint != fingerprint:
            raise key_reused()
        told = RunAccepted(run_id=opened.run, session_id=opened.session)
        headers = {"X-Hermes-Run-Id": opened.run, "X-Hermes-Session-Id": opened.session}
        return json_response(told, 202, headers | ({SESSION_KEY_HEADER: named} if named else {}))

    async def list(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        runs = [run_state(record) for record in await self._runs.going_on(app)]
        turns = [self._turn(one) for one in self._desk.entry.going.values() if one.app is app]
        return json_response(RunList(sorted([*runs, *turns], key=lambda one: one.created_at)))

    async def state(self, request: web.Request) -> web.StreamResponse:
        if going := self._going(request):
            return json_response(self._turn(going))
        _, record = await self._found(request)
        return json_response(run_state(record))

    async def events(self, request: web.Request) -> web.StreamResponse:
        after = _after_seq(request)
        app, record = await self._found(request)

        async def frames() -> AsyncGenerator[bytes]:
            async for some in self._runs.follow(app, record, after):
                yield b"".join(event_frame(event.seq, event.body) for event in some)
            yield STREAM_CLOSED

        return await stream_events(self._desk, request, frames())

    async def stop(self, request: web.Request) -> web.StreamResponse:
        if going := self._going(request):
            going.scope.cancel()
            return json_response(RunStopped(run_id=going.ask.run, status=RunStatus.STOPPING))
        _, record = await self._found(request)
        return json_response(RunStopped(run_id=record.run, status=self._runs.stop(record)))

    async def steer(self, request: web.Request) -> web.StreamResponse:
        body = await self._desk.read(request, _STEER)
        question = ParsedInput(RunInput(input=body.input))
        key, _ = idempotency_key(request.headers.get("Idempotency-Key"), b"", "steer")
        app, record = await self._found(request)
        word = await question.asked(app)
        await self._runs.steer(app, record, word, key)
        return json_response(RunSteered(run_id=record.run), 202)

    async def approve(self, request: web.Request) -> web.StreamResponse:
        body = await self._desk.read(request, _APPROVAL)
        app, record = await self._found(request)
        self._require_live(record, "approval_not_active")
        choice = (
            ApprovalChoice.ONCE
            if body.choice in {"approve", "allow"}
            else ApprovalChoice(body.choice)
        )
        who = Answerer(session=record.session)
        heard = await app.approvals.answer(
            who, choice, question=body.question_id, everything=body.all or body.resolve_all
        )
        if not heard.count:
            raise ApiError(409, "approval_not_pending", heard.told)
        told = ApprovalAnswer(run_id=record.run, choice=choice, resolved=heard.count)
        return json_response(told)

    async def clarify(self, request: web.Request) -> web.StreamResponse:
        body = await self._desk.read(request, _CLARIFY)
        app, record = await self._found(request)
        self._require_live(record, "clarify_not_active")
        who = Answerer(session=record.session)
        heard = await app.approvals.reply(who, body.answer, question=body.question_id)
        if heard is None or not heard.count:
            told = (heard and heard.told) or f"Run {record.run} asks nothing."
            raise ApiError(409, "clarify_not_pending", told)
        return json_response(ClarifyAnswer(run_id=record.run, resolved=heard.count))

    def _require_live(self, record: RunRecord, code: str) -> None:
        if not self._runs.is_live(record):
            raise ApiError(409, code, f"Run {record.run} asks nothing: it does not go on here.")

    def _going(self, request: web.Request) -> RunningTurn | None:
        return self._desk.entry.running_turn(self._desk.app(request), request.match_info["run_id"])

    def _turn(self, going: RunningTurn) -> RunState:
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
        unknown = not_found(f"There is no run {one_line(run, 100)!r}.", "run_not_found")
        if not run.startswith(RUN_ID_PREFIX):
            raise unknown
        try:
            return app, await self._runs.state(app, run)
        except NotFound as error:
            raise unknown from error

    def _record(self, app: App, body: RunRequest, session: str, once: tuple[str, str]) -> RunRecord:
        now = app.clock.now()
        return RunRecord(
            run=f"{RUN_ID_PREFIX}{secrets.token_hex(16)}",
            session=session,
            principal=OWNER,
            created=now,
            updated=now,
            model=body.model or model_names(self._desk.settings, app)[0],
            key=once[0],
            fingerprint=once[1],
        )


def _run_input(body: RunRequest, header: str) -> RunInput:
    if body.session_id and body.previous_response_id:
        told = "Name a session or a response to go on from, not both."
        raise invalid(told, param="previous_response_id")
    return RunInput(
        input=body.input,
        history=body.conversation_history or [],
        session=body.session_id or "",
        header=header,
        previous=body.previous_response_id or "",
        trust=_input_trust(body),
        role=body.role,
    )


def _input_trust(body: RunRequest) -> Trust:
    if body.brought:
        return Trust.DATA
    return Trust.OWNER if body.role is Role.OWNER else Trust.GUEST


def _turn_request(body: RunRequest, talk: ResolvedInput) -> ApiTurnRequest:
    carried = talk.previous.instructions if talk.previous else ""
    said = carried if body.instructions is None else body.instructions
    return ApiTurnRequest(
        session=talk.place.session,
        asked=talk.prompt.asked,
        role=body.role,
        new=talk.place.new,
        results=talk.prompt.results,
        instructions="\n\n".join(filter(None, [said, talk.prompt.instructions])),
        followed=body.later,
        attended=True,
    )


def _after_seq(request: web.Request) -> int:
    """From which event on; what a browser sends by itself when it comes back counts more."""
    given = request.headers.get("Last-Event-ID") or request.query.get("after") or "0"
    if not given.isascii() or not given.isdecimal() or len(given) > 18:
        raise invalid("The number of an event is a whole number from 0 on.", param="after")
    return int(given)
