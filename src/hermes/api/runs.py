"""Runs: work started by a request that continues without it, followed through a stored journal."""

import secrets
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from hermes.api.callbacks import check_callback, secret_box_of
from hermes.api.catalog import ChosenModel, choose_model, model_names, require_provider
from hermes.api.context import (
    FOLLOW_PARAMETERS,
    KEY_HEADER,
    KEY_PROFILE,
    NEW_TURN_PARAMETERS,
    SESSION_ID_HEADER,
    SESSION_KEY_HEADER,
    TURN_PARAMETERS,
    ApiContext,
    Route,
    decode_body,
    json_response,
)
from hermes.api.errors import ApiError, invalid, not_found
from hermes.api.event_stream import read_after, stream_events
from hermes.api.idempotency import TURN_ERRORS, key_reused, run_key
from hermes.api.run_event_writer import RunState, event_frame, run_state
from hermes.api.run_input import (
    History,
    Identifier,
    Input,
    ParsedInput,
    ResolvedInput,
    RunInput,
)
from hermes.api.run_service import RUN_ID_PREFIX, RunService
from hermes.api.session_resolver import id_from_header, prepare_session
from hermes.api.turn_gate import RunningTurn
from hermes.app.build import App
from hermes.approvals.service import Answerer
from hermes.config.sections import FreeTable
from hermes.kit.text import one_line
from hermes.ports.journal import RunRecord, RunStatus
from hermes.schema.errors import NotFound
from hermes.schema.messages import Trust
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import OWNER, Role
from hermes.session.turn_request import TurnRequest


class RunRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a run. `session_id` continues a session or creates it; a history is for a new one.

    `model` is a model of `provider`, if there is one. `model_options`, `reasoning_effort` and
    `service_tier` have no effect; the answer lists them as `ignored`.

    Without `later`, the model is not offered work that reports after the end of the run. A caller
    acting for another person passes that person's `role`, and sets `brought` if the input is
    untrusted data. Neither grants more than the key does.
    """

    input: Input
    instructions: str | None = None
    conversation_history: History | None = None
    previous_response_id: Identifier | None = None
    session_id: Identifier | None = None
    model: Identifier | None = None
    provider: Identifier | None = None
    model_options: FreeTable | None = None
    reasoning_effort: str | None = None
    service_tier: str | None = None
    later: bool = True
    role: Role = Role.OWNER
    brought: bool = False
    callback_url: str | None = None
    callback_secret: str | None = None


class RunAccepted(Struct, frozen=True, kw_only=True):
    run_id: str
    session_id: str
    status: str = "started"
    ignored: list[str] | UnsetType = UNSET


class RunList(Struct, frozen=True):
    """Active runs. A `hermes.turn` belongs to an idempotency key and can only be stopped."""

    data: list[RunState]
    object: str = "list"


class RunStopped(Struct, frozen=True, kw_only=True):
    run_id: str
    status: RunStatus


class SteerRequest(Struct, frozen=True, kw_only=True):
    input: Input


class RunSteered(Struct, frozen=True, kw_only=True):
    run_id: str
    status: str = "accepted"


class ApprovalAnswerRequest(Struct, frozen=True, kw_only=True):
    """Answer one question by `question_id`, the latest one without it, or every one with `all`."""

    choice: Literal["once", "session", "always", "deny", "approve", "allow"]
    question_id: Identifier = ""
    all: bool = False
    resolve_all: bool = False


class ClarifyRequest(Struct, frozen=True, kw_only=True):
    """An answer in free text, or one of the choices."""

    answer: Annotated[str, Meta(min_length=1, max_length=20_000)]
    question_id: Identifier = ""


class ClarifyAnswer(Struct, frozen=True, kw_only=True):
    object: str = "hermes.run.clarify_response"
    run_id: str
    resolved: int


class ApprovalAnswer(Struct, frozen=True, kw_only=True):
    object: str = "hermes.run.approval_response"
    run_id: str
    choice: str
    resolved: int


_RUN_PATH = "/v1/runs/{run_id}"
_WITHOUT_EFFECT = ("model_options", "reasoning_effort", "service_tier")
STREAM_CLOSED = b": stream closed\n\n"

_RUN = msgspec.json.Decoder(RunRequest)
_STEER = msgspec.json.Decoder(SteerRequest)
_APPROVAL = msgspec.json.Decoder(ApprovalAnswerRequest)
_CLARIFY = msgspec.json.Decoder(ClarifyRequest)


def routes(context: ApiContext) -> list[Route]:
    handlers = _RunHandlers(context)
    return [*_run_routes(handlers), *_control_routes(handlers)]


def _run_routes(handlers: "_RunHandlers") -> list[Route]:
    return [
        Route(
            "POST",
            "/v1/runs",
            handlers.start,
            "Start a run, which continues without its request.",
            body=RunRequest,
            answer=RunAccepted,
            parameters=NEW_TURN_PARAMETERS,
            status=202,
            answers={status: TURN_ERRORS[status] for status in (409, 422, 429)}
            | {503: "The gateway is shutting down."},
        ),
        Route(
            "GET",
            "/v1/runs",
            handlers.list,
            "List active runs and turns with an Idempotency-Key.",
            answer=RunList,
        ),
        Route("GET", _RUN_PATH, handlers.state, "Get the state of a run.", answer=RunState),
        Route(
            "GET",
            f"{_RUN_PATH}/events",
            handlers.events,
            "Follow a run, starting after any event.",
            streams=True,
            parameters=FOLLOW_PARAMETERS,
        ),
    ]


def _control_routes(handlers: "_RunHandlers") -> list[Route]:
    """Routes that control a running run."""
    errors = {409: "Not possible in the run's current state."}
    control_route = partial(Route, "POST", answers=errors)
    return [
        control_route(
            f"{_RUN_PATH}/stop",
            handlers.stop,
            "Stop a run, or a turn with an Idempotency-Key, immediately.",
            answer=RunStopped,
        ),
        Route(
            "POST",
            f"{_RUN_PATH}/steer",
            handlers.steer,
            "Send a message to a running run.",
            body=SteerRequest,
            answer=RunSteered,
            parameters=TURN_PARAMETERS,
            status=202,
            answers=errors | {429: "Too many steering messages are pending."},
        ),
        control_route(
            f"{_RUN_PATH}/approval",
            handlers.approve,
            "Answer a run's approval request.",
            body=ApprovalAnswerRequest,
            answer=ApprovalAnswer,
        ),
        control_route(
            f"{_RUN_PATH}/clarify",
            handlers.clarify,
            "Answer a run's question.",
            body=ClarifyRequest,
            answer=ClarifyAnswer,
        ),
    ]


class _RunHandlers:
    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._runs = RunService(context)
        context.profile_services.append(self._runs.serve_stops)

    async def start(self, request: web.Request) -> web.StreamResponse:
        app = self._context.app(request)
        data = await self._context.body_of(request)
        body = decode_body(data, _RUN)
        session_key = id_from_header(request.headers.get(SESSION_KEY_HEADER), SESSION_KEY_HEADER)
        header = request.headers.get(SESSION_ID_HEADER, "")
        # The same body for another session is a different request.
        request_bytes = b"\0".join([data, *(one.encode() for one in (header, session_key) if one)])
        key, fingerprint = run_key(request.headers.get(KEY_HEADER), request_bytes, "runs")
        question = ParsedInput(_run_input(body, header, session_key))
        chosen = choose_model(self._context.settings, app, body.model, body.provider)
        callback = check_callback(
            body.callback_url,
            body.callback_secret,
            secret_box_of(app.home),
            allow_private=self._context.settings.callback_allow_private,
        )
        run = await app.store.journal.by_key(key, OWNER) if key else None
        if run is None:
            slot = self._context.turn_gate.take(request.get(KEY_PROFILE, ""))
            try:
                await require_provider(app, chosen)
                resolved = await question.resolve(app)
                resolved = structs.replace(
                    resolved, target=await prepare_session(app, resolved.target, chosen.route)
                )
            except BaseException:
                slot.release()
                raise
            record = self._record(app, chosen, resolved.target.session.id, (key, fingerprint))
            turn = _turn_request(body, resolved, record.run)
            run = await self._runs.start(app, record, turn, slot, callback)
        if run.fingerprint != fingerprint:
            raise key_reused()
        ignored = [name for name in _WITHOUT_EFFECT if getattr(body, name) is not None]
        accepted = RunAccepted(run_id=run.run, session_id=run.session, ignored=ignored or UNSET)
        headers = {"X-Hermes-Run-Id": run.run, SESSION_ID_HEADER: run.session}
        headers |= {SESSION_KEY_HEADER: session_key} if session_key else {}
        return json_response(accepted, 202, headers)

    async def list(self, request: web.Request) -> web.StreamResponse:
        app = self._context.app(request)
        runs = [run_state(record) for record in await self._runs.active(app)]
        turns = [
            self._turn(turn) for turn in self._context.turn_gate.running.values() if turn.app is app
        ]
        return json_response(RunList(sorted([*runs, *turns], key=lambda run: run.created_at)))

    async def state(self, request: web.Request) -> web.StreamResponse:
        if turn := self._running_turn(request):
            return json_response(self._turn(turn))
        _, record = await self._load(request)
        return json_response(run_state(record))

    async def events(self, request: web.Request) -> web.StreamResponse:
        after = read_after(request, "An event number", digits=18)
        app, record = await self._load(request)

        async def frames() -> AsyncGenerator[bytes]:
            async for batch in self._runs.follow(app, record, after):
                yield b"".join(event_frame(event.seq, event.body) for event in batch)
            yield STREAM_CLOSED

        return await stream_events(self._context, request, frames())

    async def stop(self, request: web.Request) -> web.StreamResponse:
        if turn := self._running_turn(request):
            turn.scope.cancel()
            return json_response(RunStopped(run_id=turn.request.run, status=RunStatus.STOPPING))
        app, record = await self._load(request)
        status = await self._runs.stop(app, record)
        return json_response(RunStopped(run_id=record.run, status=status))

    async def steer(self, request: web.Request) -> web.StreamResponse:
        body = await self._context.read(request, _STEER)
        question = ParsedInput(RunInput(input=body.input))
        key, _ = run_key(request.headers.get(KEY_HEADER), b"", "steer")
        app, record = await self._load(request)
        message = await question.user_message(app)
        await self._runs.steer(record, message, key)
        return json_response(RunSteered(run_id=record.run), 202)

    async def approve(self, request: web.Request) -> web.StreamResponse:
        body = await self._context.read(request, _APPROVAL)
        app, record = await self._load(request)
        self._require_live(record, "approval_not_active")
        is_plain_yes = body.choice in {"approve", "allow"}
        choice = ApprovalChoice.ONCE if is_plain_yes else ApprovalChoice(body.choice)
        answerer = Answerer(session=record.session)
        result = await app.approvals.answer(
            answerer, choice, question=body.question_id, everything=body.all or body.resolve_all
        )
        if not result.count:
            raise ApiError(409, "approval_not_pending", result.message)
        answer = ApprovalAnswer(run_id=record.run, choice=choice, resolved=result.count)
        return json_response(answer)

    async def clarify(self, request: web.Request) -> web.StreamResponse:
        body = await self._context.read(request, _CLARIFY)
        app, record = await self._load(request)
        self._require_live(record, "clarify_not_active")
        answerer = Answerer(session=record.session)
        result = await app.approvals.reply(answerer, body.answer, question=body.question_id)
        if result is None or not result.count:
            message = (result and result.message) or f"Run {record.run} has no pending question."
            raise ApiError(409, "clarify_not_pending", message)
        return json_response(ClarifyAnswer(run_id=record.run, resolved=result.count))

    def _require_live(self, record: RunRecord, code: str) -> None:
        if not self._runs.is_live(record):
            message = f"Run {record.run} has no pending question: it is not running here."
            raise ApiError(409, code, message)

    def _running_turn(self, request: web.Request) -> RunningTurn | None:
        return self._context.turn_gate.running_turn(
            self._context.app(request), request.match_info["run_id"]
        )

    def _turn(self, running: RunningTurn) -> RunState:
        began, stopping = running.started_at.timestamp(), running.scope.cancel_called
        return RunState(
            object="hermes.turn",
            run_id=running.request.run,
            status=RunStatus.STOPPING if stopping else RunStatus.RUNNING,
            created_at=began,
            updated_at=began,
            session_id=running.request.session.id,
            model=model_names(self._context.settings, running.app)[0],
            last_event=None,
            last_event_id=0,
        )

    async def _load(self, request: web.Request) -> tuple[App, RunRecord]:
        app = self._context.app(request)
        run = request.match_info["run_id"]
        unknown = not_found(f"Run {one_line(run, 100)!r} not found.", "run_not_found")
        if not run.startswith(RUN_ID_PREFIX):
            raise unknown
        try:
            return app, await self._runs.state(app, run)
        except NotFound as error:
            raise unknown from error

    def _record(
        self, app: App, chosen: ChosenModel, session: str, idempotency: tuple[str, str]
    ) -> RunRecord:
        now = app.clock.now()
        return RunRecord(
            run=f"{RUN_ID_PREFIX}{secrets.token_hex(16)}",
            session=session,
            principal=OWNER,
            created=now,
            updated=now,
            model=chosen.name,
            key=idempotency[0],
            fingerprint=idempotency[1],
        )


def _run_input(body: RunRequest, header: str, key: str) -> RunInput:
    if body.session_id and body.previous_response_id:
        message = "Give either session_id or previous_response_id, not both."
        raise invalid(message, param="previous_response_id")
    own_trust = Trust.OWNER if body.role is Role.OWNER else Trust.GUEST
    return RunInput(
        input=body.input,
        history=body.conversation_history or [],
        session=body.session_id or "",
        header=header,
        key=key,
        previous=body.previous_response_id or "",
        trust=Trust.DATA if body.brought else own_trust,
        role=body.role,
    )


def _turn_request(body: RunRequest, resolved: ResolvedInput, run: str) -> TurnRequest:
    instructions = resolved.instructions(body.instructions)
    return TurnRequest(
        session=resolved.target.session,
        run=run,
        message=resolved.turn_input.question,
        role=body.role,
        new=resolved.target.new,
        results=resolved.turn_input.results,
        instructions="\n\n".join(filter(None, [instructions, resolved.turn_input.instructions])),
        async_delivery=body.later,
        attended=True,
    )
