"""`POST /v1/chat/completions`: one turn of the agent, whole or as it grows."""

from collections.abc import Sequence
from functools import partial

import msgspec
from aiohttp import web
from msgspec import Raw, Struct

from hermes.api.answer_text import AnswerTextStream
from hermes.api.catalog import model_names, model_route_for
from hermes.api.chat_completion import (
    ChunkEncoder,
    CompletionLabel,
    FinishedCompletion,
    completion_error,
    completion_headers,
    completion_object,
    finish_completion,
)
from hermes.api.chat_objects import ChatCompletion, ChatRequest
from hermes.api.context import (
    KEY_PROFILE,
    NEW_TURN_PARAMETERS,
    TASK,
    ApiContext,
    Route,
    decode_body,
    json_response,
)
from hermes.api.errors import ApiError, invalid
from hermes.api.event_stream import EventStream, run_into_stream
from hermes.api.idempotency import (
    KEY_HEADER,
    REPLAYED_HEADERS,
    TURN_ERRORS,
    IdempotentRequests,
    KeyClaim,
    KeyedTurn,
)
from hermes.api.request_options import (
    ToolChoice,
    read_response_format,
    read_tool_choice,
    require_output_format,
    with_output_format,
)
from hermes.api.session_resolver import (
    SESSION_KEY_HEADER,
    ResolvedSession,
    SessionResolver,
    id_from_header,
    prepare_session,
)
from hermes.api.settings import ModelRoute
from hermes.api.side_calls import cost_session, has_own_model, is_side_call, side_call_request
from hermes.api.turn_gate import ApiTurnRequest, TurnSlot
from hermes.api.turn_input import ParsedMessages, TurnInput, client_tools
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.sse import frame
from hermes.ports.store import Write
from hermes.schema.errors import SessionBusy, StateConflict
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StreamReset,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Result, Stop, Text

SESSION_ID_HEADER = "X-Hermes-Session-Id"
ANSWER_RESTARTED = (
    "The model broke off and gave another answer than the one that was begun here. "
    "Discard this text and ask again; with an Idempotency-Key you then get the other answer."
)


class _CheckedRequest(Struct, frozen=True, kw_only=True):
    """One request, checked; nothing is written yet."""

    app: App
    draft: ParsedMessages
    offer: ToolChoice
    route: ModelRoute | None
    model: str
    named: str
    key: str
    streams: bool
    usage_apart: bool
    aside: ChatRequest | None = None
    """The body again, of a side call."""


def routes(desk: ApiContext) -> list[Route]:
    chat = ChatHandlers(desk)
    return [
        Route(
            method="POST",
            path="/v1/chat/completions",
            handler=chat.complete,
            summary="One turn of the agent, as a chat completion.",
            body=ChatRequest,
            answer=ChatCompletion,
            takes=(*NEW_TURN_PARAMETERS, TASK),
            streams=True,
            answers=TURN_ERRORS,
        )
    ]


class ChatHandlers:
    def __init__(self, desk: ApiContext) -> None:
        self._desk = desk
        self._session_resolver = SessionResolver(desk.settings.key)
        self._idempotency = IdempotentRequests(desk)
        self._decoder = msgspec.json.Decoder(ChatRequest)
        self._kept = msgspec.json.Decoder(FinishedCompletion)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        body = await self._desk.body_of(request)
        job = self._job(app, request, decode_body(body, self._decoder))
        claim = self._idempotency.claim(app, request, body, job.named, job.key)
        # It may be ten megabytes, and the turn an hour.
        del body
        run, again = partial(self._run, request, job), partial(self._again, request, job)
        return await self._idempotency.serve(app, claim, run, again)

    def _job(self, app: App, request: web.Request, body: ChatRequest) -> _CheckedRequest:
        if body.n not in {None, 1}:
            raise invalid("Only one answer is given: n must be 1.", param="n")
        offered = read_tool_choice(
            client_tools(body.tools), body.tool_choice, body.parallel_tool_calls
        )
        offered = with_output_format(offered, read_response_format(body.response_format))
        settings = self._desk.settings
        apart = body.stream_options is not None and bool(body.stream_options.include_usage)
        named = id_from_header(request.headers.get(SESSION_ID_HEADER), SESSION_ID_HEADER)
        bound = bool(named or request.headers.get(KEY_HEADER))
        aside = is_side_call(request, body, bound=bound) and has_own_model(app)
        return _CheckedRequest(
            app=app,
            draft=ParsedMessages(body.messages),
            offer=offered,
            route=model_route_for(settings, app, body.model),
            model=body.model or model_names(settings, app)[0],
            named=named,
            key=id_from_header(request.headers.get(SESSION_KEY_HEADER), SESSION_KEY_HEADER),
            streams=bool(body.stream),
            usage_apart=apart,
            aside=body if aside else None,
        )

    async def _run(
        self, request: web.Request, job: _CheckedRequest, claim: KeyClaim | None
    ) -> web.StreamResponse:
        prompt: TurnInput | None = None
        while True:
            with self._desk.entry.take(request.get(KEY_PROFILE, "")) as slot:
                prompt = prompt or await job.draft.keep(job.app)
                place = await self._place(job, prompt, sure=claim is not None)
                once = self._idempotency.once(job.app, claim, place.session.id)
                turn = _ChatTurn(job, prompt, place, once, self._desk.clock)
                try:
                    async with once:
                        return await self._answered(request, turn, slot)
                except (StateConflict, SessionBusy):
                    # A place that was only supposed to be free is not; the next one may be.
                    if not place.supposed or turn.ended is not None:
                        raise
                finally:
                    self._session_resolver.leave(place)

    async def _place(
        self, job: _CheckedRequest, prompt: TurnInput, *, sure: bool
    ) -> ResolvedSession:
        if job.aside is not None:
            return ResolvedSession(cost_session(job.app), new=False)
        return await self._session_resolver.find(job.app, prompt, job.named, job.key, sure=sure)

    async def _answered(
        self, request: web.Request, turn: "_ChatTurn", slot: TurnSlot
    ) -> web.StreamResponse:
        job = turn.job
        if job.offer.calling.form is not None:
            await require_output_format(job.app, turn.place.session, job.route)
        turn.place = await prepare_session(job.app, turn.place, job.route)
        if job.streams:
            response = await self._stream(request, turn, slot)
        else:
            response = await self._whole(turn, slot)
        self._remember(turn)
        return response

    async def _whole(self, turn: "_ChatTurn", slot: TurnSlot) -> web.Response:
        await self._desk.entry.enter(turn.job.app, turn.ask(), turn.hear, slot)
        result = turn.result()
        if failure := completion_error(result, acted=turn.once.acted):
            raise failure
        return json_response(
            completion_object(result), headers=turn.headers | completion_headers(result)
        )

    async def _stream(
        self, request: web.Request, turn: "_ChatTurn", slot: TurnSlot
    ) -> web.StreamResponse:
        stream = EventStream(request, self._desk.limits, turn.headers)
        telling = _ChunkWriter(turn, stream)
        entry, job = self._desk.entry, turn.job
        failure = await run_into_stream(entry, stream, job.app, turn.ask(), slot, telling.hear)
        telling.end(failure)
        await stream.close()
        return stream.response

    async def _again(
        self, request: web.Request, job: _CheckedRequest, kept: Raw
    ) -> web.StreamResponse:
        known = self._kept.decode(kept)
        headers = {SESSION_ID_HEADER: known.label.session, **REPLAYED_HEADERS}
        if not job.streams:
            return json_response(
                completion_object(known), headers=headers | completion_headers(known)
            )
        stream = EventStream(request, self._desk.limits, headers)
        await stream.open()
        for one in ChunkEncoder(known.label).whole(known, usage_apart=job.usage_apart):
            stream.send(one)
        await stream.close()
        return stream.response

    def _remember(self, turn: "_ChatTurn") -> None:
        ended = turn.ended
        if turn.job.named or turn.job.aside or ended is None or ended.outcome is not Outcome.DONE:
            return
        prompt = turn.prompt
        spoken = Assistant("", (Text(turn.result().text),), Stop.END)
        asked = [prompt.asked] if prompt.asked else []
        past = [*prompt.past, *asked, spoken]
        self._session_resolver.remember(turn.job.app, past, turn.place.session.id)


class _ChatTurn:
    """One turn of a chat completion, and what was heard of it."""

    def __init__(
        self,
        job: _CheckedRequest,
        prompt: TurnInput,
        place: ResolvedSession,
        once: KeyedTurn,
        clock: Clock,
    ) -> None:
        self.job = job
        self.prompt = prompt
        self.place = place
        self.once = once
        self._said: list[Message] = []
        self.ended: RunEnded | None = None
        self._result: FinishedCompletion | None = None
        self.run = new_id("run")
        created = int(clock.now().timestamp())
        session = "" if job.aside else place.session.id
        self.label = CompletionLabel(f"chatcmpl-{self.run[4:]}", created, job.model, session)
        self.headers = {SESSION_ID_HEADER: session} if session else {}
        self.headers["X-Hermes-Run-Id"] = self.run
        if job.key:
            self.headers[SESSION_KEY_HEADER] = job.key

    def ask(self) -> ApiTurnRequest:
        return ApiTurnRequest(
            session=self.place.session,
            asked=self.prompt.asked,
            new=self.place.new,
            results=self.prompt.results,
            instructions=self.prompt.instructions,
            handed=self.job.offer.handed,
            bare=self.job.offer.bare,
            calling=self.job.offer.calling,
            run=self.run,
            closing=self._closing,
            scope=self.once.scope,
            alone=side_call_request(self.prompt, self.job.aside, self.job.offer.calling)
            if self.job.aside
            else None,
        )

    async def hear(self, event: Event) -> None:
        if isinstance(event, MessageAdded):
            self._said.append(event.message)
        elif isinstance(event, RunEnded):
            self.ended = event
        elif isinstance(event, ToolStarted):
            self.once.acted = True

    def result(self) -> FinishedCompletion:
        """To be asked for when the turn is over."""
        if self._result is None:
            self._result = self._finished()
        return self._result

    def _finished(self) -> FinishedCompletion:
        ended = self.ended or RunEnded(self.run, Outcome.FAILED, "The turn had no end.", "internal")
        return finish_completion(self.label, self.job.offer.handed, ended, self._said)

    def _closing(self, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        if not self.once.has_key:
            return ()
        result = finish_completion(self.label, self.job.offer.handed, ended, said)
        return self.once.closing(result) if result.is_replayable else ()


class _ChunkWriter:
    """Brings the events of a turn to its stream."""

    def __init__(self, turn: _ChatTurn, stream: EventStream) -> None:
        self._turn = turn
        self._stream = stream
        self._chunks = ChunkEncoder(turn.label)
        self._words = AnswerTextStream()
        self._tools: dict[str, str] = {}

    async def hear(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._tell(self._words.delta(event.text))
            return
        await self._turn.hear(event)
        match event:
            case RunStarted():
                self._stream.send(self._chunks.role(), at_once=False)
            case ReasoningDelta(text=text):
                self._stream.send(self._chunks.thought(text))
            case StreamReset():
                self._words.reset()
            case MessageAdded(message=Assistant() as message):
                self._tell(self._words.said(message))
            case MessageAdded(message=Result() as message) if message.call in self._tools:
                self._stream.send(self._chunks.ended(message, self._tools.pop(message.call)))
            case ToolStarted(call=call):
                self._tools[call.id] = call.name
                self._stream.send(self._chunks.started(event))
            case _:
                pass

    def end(self, failure: ApiError | None) -> None:
        result = self._turn.result()
        trouble = failure or completion_error(result, acted=self._turn.once.acted)
        if trouble is None and self._words.broken:
            trouble = ApiError(502, "answer_restarted", ANSWER_RESTARTED)
        if trouble is not None:
            self._stream.send(frame(trouble.body))
            self._stream.send(frame(b"[DONE]"))
            return
        for one in self._chunks.end(result, usage_apart=self._turn.job.usage_apart):
            self._stream.send(one)

    def _tell(self, text: str) -> None:
        if text:
            self._stream.send(self._chunks.content(text))
