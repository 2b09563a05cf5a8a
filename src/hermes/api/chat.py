"""`POST /v1/chat/completions`: one agent turn, as one object or as a stream."""

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
    "The model restarted and gave a different answer. Discard this text and ask again; "
    "with an Idempotency-Key you get the new answer."
)


class _CheckedRequest(Struct, frozen=True, kw_only=True):
    """A validated request; nothing is stored yet."""

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
    """The body, if this is a side call."""


def routes(context: ApiContext) -> list[Route]:
    chat = ChatHandlers(context)
    return [
        Route(
            method="POST",
            path="/v1/chat/completions",
            handler=chat.complete,
            summary="Run one agent turn as a chat completion.",
            body=ChatRequest,
            answer=ChatCompletion,
            takes=(*NEW_TURN_PARAMETERS, TASK),
            streams=True,
            answers=TURN_ERRORS,
        )
    ]


class ChatHandlers:
    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._session_resolver = SessionResolver(context.settings.key)
        self._idempotency = IdempotentRequests(context)
        self._decoder = msgspec.json.Decoder(ChatRequest)
        self._stored_decoder = msgspec.json.Decoder(FinishedCompletion)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        app = self._context.app(request)
        body = await self._context.body_of(request)
        checked = self._check(app, request, decode_body(body, self._decoder))
        claim = self._idempotency.claim(app, request, body, checked.named, checked.key)
        # Free the body: it may be 10 MB, and the turn may take an hour.
        del body
        run, again = partial(self._run, request, checked), partial(self._replay, request, checked)
        return await self._idempotency.serve(app, claim, run, again)

    def _check(self, app: App, request: web.Request, body: ChatRequest) -> _CheckedRequest:
        if body.n not in {None, 1}:
            raise invalid("Only one choice is supported: n must be 1.", param="n")
        choice = read_tool_choice(
            client_tools(body.tools), body.tool_choice, body.parallel_tool_calls
        )
        choice = with_output_format(choice, read_response_format(body.response_format))
        settings = self._context.settings
        usage_chunk = body.stream_options is not None and bool(body.stream_options.include_usage)
        session_id = id_from_header(request.headers.get(SESSION_ID_HEADER), SESSION_ID_HEADER)
        is_bound = bool(session_id or request.headers.get(KEY_HEADER))
        side_call = is_side_call(request, body, bound=is_bound) and has_own_model(app)
        return _CheckedRequest(
            app=app,
            draft=ParsedMessages(body.messages),
            offer=choice,
            route=model_route_for(settings, app, body.model),
            model=body.model or model_names(settings, app)[0],
            named=session_id,
            key=id_from_header(request.headers.get(SESSION_KEY_HEADER), SESSION_KEY_HEADER),
            streams=bool(body.stream),
            usage_apart=usage_chunk,
            aside=body if side_call else None,
        )

    async def _run(
        self, request: web.Request, checked: _CheckedRequest, claim: KeyClaim | None
    ) -> web.StreamResponse:
        prompt: TurnInput | None = None
        while True:
            with self._context.entry.take(request.get(KEY_PROFILE, "")) as slot:
                prompt = prompt or await checked.draft.keep(checked.app)
                resolved = await self._resolve(checked, prompt, sure=claim is not None)
                once = self._idempotency.once(checked.app, claim, resolved.session.id)
                turn = _ChatTurn(checked, prompt, resolved, once, self._context.clock)
                try:
                    async with once:
                        return await self._answer(request, turn, slot)
                except (StateConflict, SessionBusy):
                    # The session found only by its opening is in use; try the next one.
                    if not resolved.supposed or turn.ended is not None:
                        raise
                finally:
                    self._session_resolver.leave(resolved)

    async def _resolve(
        self, checked: _CheckedRequest, prompt: TurnInput, *, sure: bool
    ) -> ResolvedSession:
        if checked.aside is not None:
            return ResolvedSession(cost_session(checked.app), new=False)
        return await self._session_resolver.find(
            checked.app, prompt, checked.named, checked.key, sure=sure
        )

    async def _answer(
        self, request: web.Request, turn: "_ChatTurn", slot: TurnSlot
    ) -> web.StreamResponse:
        checked = turn.job
        if checked.offer.calling.form is not None:
            await require_output_format(checked.app, turn.place.session, checked.route)
        turn.place = await prepare_session(checked.app, turn.place, checked.route)
        if checked.streams:
            response = await self._stream(request, turn, slot)
        else:
            response = await self._whole(turn, slot)
        self._remember(turn)
        return response

    async def _whole(self, turn: "_ChatTurn", slot: TurnSlot) -> web.Response:
        await self._context.entry.enter(turn.job.app, turn.ask(), turn.hear, slot)
        result = turn.result()
        if failure := completion_error(result, acted=turn.once.acted):
            raise failure
        return json_response(
            completion_object(result), headers=turn.headers | completion_headers(result)
        )

    async def _stream(
        self, request: web.Request, turn: "_ChatTurn", slot: TurnSlot
    ) -> web.StreamResponse:
        stream = EventStream(request, self._context.limits, turn.headers)
        writer = _ChunkWriter(turn, stream)
        entry, checked = self._context.entry, turn.job
        failure = await run_into_stream(entry, stream, checked.app, turn.ask(), slot, writer.hear)
        writer.end(failure)
        await stream.close()
        return stream.response

    async def _replay(
        self, request: web.Request, checked: _CheckedRequest, stored: Raw
    ) -> web.StreamResponse:
        finished = self._stored_decoder.decode(stored)
        headers = {SESSION_ID_HEADER: finished.label.session, **REPLAYED_HEADERS}
        if not checked.streams:
            return json_response(
                completion_object(finished), headers=headers | completion_headers(finished)
            )
        stream = EventStream(request, self._context.limits, headers)
        await stream.open()
        for one in ChunkEncoder(finished.label).whole(finished, usage_apart=checked.usage_apart):
            stream.send(one)
        await stream.close()
        return stream.response

    def _remember(self, turn: "_ChatTurn") -> None:
        ended = turn.ended
        if turn.job.named or turn.job.aside or ended is None or ended.outcome is not Outcome.DONE:
            return
        prompt = turn.prompt
        answer = Assistant("", (Text(turn.result().text),), Stop.END)
        question = [prompt.asked] if prompt.asked else []
        history = [*prompt.past, *question, answer]
        self._session_resolver.remember(turn.job.app, history, turn.place.session.id)


class _ChatTurn:
    """One turn of a chat completion and the events received so far."""

    def __init__(
        self,
        checked: _CheckedRequest,
        prompt: TurnInput,
        resolved: ResolvedSession,
        once: KeyedTurn,
        clock: Clock,
    ) -> None:
        self.job = checked
        self.prompt = prompt
        self.place = resolved
        self.once = once
        self._messages: list[Message] = []
        self.ended: RunEnded | None = None
        self._result: FinishedCompletion | None = None
        self.run = new_id("run")
        created = int(clock.now().timestamp())
        session = "" if checked.aside else resolved.session.id
        self.label = CompletionLabel(f"chatcmpl-{self.run[4:]}", created, checked.model, session)
        self.headers = {SESSION_ID_HEADER: session} if session else {}
        self.headers["X-Hermes-Run-Id"] = self.run
        if checked.key:
            self.headers[SESSION_KEY_HEADER] = checked.key

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
            self._messages.append(event.message)
        elif isinstance(event, RunEnded):
            self.ended = event
        elif isinstance(event, ToolStarted):
            self.once.acted = True

    def result(self) -> FinishedCompletion:
        """Return the result; call it only after the turn has ended."""
        if self._result is None:
            self._result = self._finished()
        return self._result

    def _finished(self) -> FinishedCompletion:
        ended = self.ended or RunEnded(
            self.run, Outcome.FAILED, ("The turn ended without a result."), "internal"
        )
        return finish_completion(self.label, self.job.offer.handed, ended, self._messages)

    def _closing(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        if not self.once.has_key:
            return ()
        result = finish_completion(self.label, self.job.offer.handed, ended, messages)
        return self.once.closing(result) if result.is_replayable else ()


class _ChunkWriter:
    """Writes the events of a turn to its stream as chunks."""

    def __init__(self, turn: _ChatTurn, stream: EventStream) -> None:
        self._turn = turn
        self._stream = stream
        self._chunks = ChunkEncoder(turn.label)
        self._text = AnswerTextStream()
        self._tools: dict[str, str] = {}

    async def hear(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._send_text(self._text.delta(event.text))
            return
        await self._turn.hear(event)
        match event:
            case RunStarted():
                self._stream.send(self._chunks.role(), at_once=False)
            case ReasoningDelta(text=text):
                self._stream.send(self._chunks.thought(text))
            case StreamReset():
                self._text.reset()
            case MessageAdded(message=Assistant() as message):
                self._send_text(self._text.said(message))
            case MessageAdded(message=Result() as message) if message.call in self._tools:
                self._stream.send(self._chunks.ended(message, self._tools.pop(message.call)))
            case ToolStarted(call=call):
                self._tools[call.id] = call.name
                self._stream.send(self._chunks.started(event))
            case _:
                pass

    def end(self, failure: ApiError | None) -> None:
        result = self._turn.result()
        error = failure or completion_error(result, acted=self._turn.once.acted)
        if error is None and self._text.broken:
            error = ApiError(502, "answer_restarted", ANSWER_RESTARTED)
        if error is not None:
            self._stream.send(frame(error.body))
            self._stream.send(frame(b"[DONE]"))
            return
        for one in self._chunks.end(result, usage_apart=self._turn.job.usage_apart):
            self._stream.send(one)

    def _send_text(self, text: str) -> None:
        if text:
            self._stream.send(self._chunks.content(text))
