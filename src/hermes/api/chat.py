"""`POST /v1/chat/completions`: one agent turn, as one object or as a stream."""

from collections.abc import Awaitable, Sequence
from functools import partial

import msgspec
from aiohttp import web
from msgspec import Raw, Struct

from hermes.api.answer_text import AnswerTextStream
from hermes.api.catalog import ChosenModel, choose_model, require_provider
from hermes.api.chat_objects import (
    DONE_FRAME,
    ChatCompletion,
    ChatRequest,
    ChunkEncoder,
    CompletionLabel,
    FinishedCompletion,
    completion_error,
    completion_headers,
    completion_object,
    finish_completion,
    provider_name,
)
from hermes.api.client_tools import ToolChoice, read_chat_tools, read_tool_choice
from hermes.api.context import (
    KEY_HEADER,
    KEY_PROFILE,
    NEW_TURN_PARAMETERS,
    SESSION_ID_HEADER,
    SESSION_KEY_HEADER,
    TASK,
    ApiContext,
    Route,
    decode_body,
    json_response,
)
from hermes.api.errors import ApiError, invalid
from hermes.api.event_stream import EventStream, stream_replay
from hermes.api.idempotency import (
    REPLAYED_HEADERS,
    TURN_ERRORS,
    IdempotentRequests,
    KeyClaim,
    KeyedTurn,
)
from hermes.api.session_resolver import (
    CLIENT_ERRORS,
    ResolvedSession,
    SessionResolver,
    discard_unanswered,
    id_from_header,
    prepare_session,
)
from hermes.api.side_calls import SideCall, cost_session, is_side_call, side_call_request
from hermes.api.turn_gate import TurnSlot
from hermes.api.turn_input import (
    ParsedMessages,
    TurnInput,
    has_own_model,
    read_response_format,
    require_output_format,
    with_output_format,
)
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
from hermes.session.followed_run import RunReader
from hermes.session.turn_request import TurnRequest

ANSWER_RESTARTED = (
    "The model restarted and gave a different answer. Discard this text and ask again; "
    "with an Idempotency-Key you get the new answer."
)


class _CheckedRequest(Struct, frozen=True, kw_only=True):
    """A validated request; nothing is stored yet."""

    app: App
    messages: ParsedMessages
    tool_choice: ToolChoice
    model: ChosenModel
    session_id: str
    session_key: str
    streams: bool
    usage_chunk: bool
    side_call: ChatRequest | None = None
    """The body, if this is a side call."""


def routes(context: ApiContext) -> list[Route]:
    chat = ChatHandlers(context)
    return [
        Route(
            "POST",
            "/v1/chat/completions",
            chat.complete,
            "Run one agent turn as a chat completion.",
            body=ChatRequest,
            answer=ChatCompletion,
            parameters=(*NEW_TURN_PARAMETERS, TASK),
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
        """Check the request; serve it once per idempotency key."""
        app = self._context.app(request)
        body = await self._context.body_of(request)
        checked = self._check(app, request, decode_body(body, self._decoder))
        claim = self._idempotency.claim(app, request, body, checked.session_id, checked.session_key)
        # Free the body: it may be 10 MB, and the turn may take an hour.
        del body
        run, again = partial(self._run, request, checked), partial(self._replay, request, checked)
        return await self._idempotency.serve(app, claim, run, again)

    def _check(self, app: App, request: web.Request, body: ChatRequest) -> _CheckedRequest:
        if body.n not in {None, 1}:
            raise invalid("Only one choice is supported: n must be 1.", param="n")
        tools = read_chat_tools(body.tools)
        choice = read_tool_choice(tools, body.tool_choice, body.parallel_tool_calls)
        choice = with_output_format(choice, read_response_format(body.response_format))
        settings = self._context.settings
        usage_chunk = body.stream_options is not None and bool(body.stream_options.include_usage)
        session_id = id_from_header(request.headers.get(SESSION_ID_HEADER), SESSION_ID_HEADER)
        has_session_or_key = bool(session_id or request.headers.get(KEY_HEADER))
        side_call = is_side_call(
            request, body, has_session_or_key=has_session_or_key
        ) and has_own_model(app)
        return _CheckedRequest(
            app=app,
            messages=ParsedMessages(body.messages),
            tool_choice=choice,
            model=choose_model(settings, app, body.model, provider_name(body.provider)),
            session_id=session_id,
            session_key=id_from_header(request.headers.get(SESSION_KEY_HEADER), SESSION_KEY_HEADER),
            streams=bool(body.stream),
            usage_chunk=usage_chunk,
            side_call=body if side_call else None,
        )

    async def _run(
        self, request: web.Request, checked: _CheckedRequest, claim: KeyClaim | None
    ) -> web.StreamResponse:
        """Take a slot, store the input and resolve the session."""
        prompt: TurnInput | None = None
        while True:
            with self._context.turn_gate.take(request.get(KEY_PROFILE, "")) as slot:
                prompt = prompt or await checked.messages.store(checked.app)
                resolved = await self._resolve(checked, prompt, sure=claim is not None)
                keyed_turn = self._idempotency.keyed_turn(checked.app, claim, resolved.session.id)
                turn = _ChatTurn(checked, prompt, resolved, keyed_turn, self._context.clock)
                try:
                    async with keyed_turn:
                        return await self._answer(request, turn, slot)
                except (StateConflict, SessionBusy):
                    # A session that was found only by its opening messages is in use; try the next
                    # one.
                    if not resolved.unchecked or turn.ended is not None:
                        raise
                finally:
                    self._session_resolver.release(resolved)

    async def _resolve(
        self, checked: _CheckedRequest, prompt: TurnInput, *, sure: bool
    ) -> ResolvedSession:
        if checked.side_call is not None:
            return ResolvedSession(cost_session(checked.app), new=False)
        return await self._session_resolver.find(
            checked.app, prompt, checked.session_id, checked.session_key, checked=sure
        )

    async def _answer(
        self, request: web.Request, turn: "_ChatTurn", slot: TurnSlot
    ) -> web.StreamResponse:
        """Prepare the session, then stream the answer or return it whole."""
        checked = turn.checked
        if checked.tool_choice.calling.format is not None:
            await require_output_format(checked.app, turn.resolved.session, checked.model.route)
        await require_provider(checked.app, checked.model)
        created = turn.resolved
        turn.resolved = await prepare_session(checked.app, created, checked.model.route)
        try:
            if checked.streams:
                response = await self._stream(request, turn, slot)
            else:
                response = await self._whole(turn, slot)
        except CLIENT_ERRORS as error:
            if not checked.session_id and not turn.keyed_turn.acted:
                await discard_unanswered(checked.app, created, turn.ended, error)
            raise
        self._remember(turn)
        return response

    async def _whole(self, turn: "_ChatTurn", slot: TurnSlot) -> web.Response:
        await self._run_turn(turn, turn, slot)
        result = turn.result()
        if failure := completion_error(result, acted=turn.keyed_turn.acted):
            raise failure
        return json_response(
            completion_object(result), headers=turn.headers | completion_headers(result)
        )

    async def _stream(
        self, request: web.Request, turn: "_ChatTurn", slot: TurnSlot
    ) -> web.StreamResponse:
        """Run the turn and write its events as chunks."""
        stream = EventStream(request, self._context.limits, turn.headers, hold_headers=True)
        writer = _ChunkWriter(turn, stream)
        with stream.running():
            await self._run_turn(turn, writer, slot)
        failure = stream.error or writer.failure()
        if failure is not None and not stream.opened:
            raise failure
        writer.end(failure)
        await stream.close()
        return stream.response

    def _run_turn(self, turn: "_ChatTurn", reader: RunReader, slot: TurnSlot) -> Awaitable[None]:
        turn_gate, app = self._context.turn_gate, turn.checked.app
        if (side_call := turn.side_call()) is not None:
            return turn_gate.run_side_call(app, side_call, reader, slot)
        stop = turn.keyed_turn.scope
        return turn_gate.run_turn(app, turn.turn_request(), reader, slot, stop=stop)

    async def _replay(
        self, request: web.Request, checked: _CheckedRequest, stored: Raw
    ) -> web.StreamResponse:
        finished = self._stored_decoder.decode(stored)
        headers = {SESSION_ID_HEADER: finished.label.session, **REPLAYED_HEADERS}
        if not checked.streams:
            return json_response(
                completion_object(finished), headers=headers | completion_headers(finished)
            )
        encoder = ChunkEncoder(finished.label)
        frames = encoder.replay(finished, usage_chunk=checked.usage_chunk)
        return await stream_replay(self._context, request, headers, frames)

    def _remember(self, turn: "_ChatTurn") -> None:
        done = turn.ended is not None and turn.ended.outcome is Outcome.DONE
        if turn.checked.session_id or turn.checked.side_call or not done:
            return
        answer = Assistant("", (Text(turn.result().text),), Stop.END)
        question = [turn.prompt.question] if turn.prompt.question else []
        history = [*turn.prompt.history, *question, answer]
        self._session_resolver.remember(turn.checked.app, history, turn.resolved.session.id)


class _ChatTurn:
    """One turn of a chat completion and the events received so far."""

    def __init__(
        self,
        checked: _CheckedRequest,
        prompt: TurnInput,
        resolved: ResolvedSession,
        keyed_turn: KeyedTurn,
        clock: Clock,
    ) -> None:
        self.checked = checked
        self.prompt = prompt
        self.resolved = resolved
        self.keyed_turn = keyed_turn
        self._messages: list[Message] = []
        self.ended: RunEnded | None = None
        self._result: FinishedCompletion | None = None
        self.run = new_id("run")
        created = int(clock.now().timestamp())
        session = "" if checked.side_call else resolved.session.id
        tools = checked.tool_choice.tools
        self.label = CompletionLabel(
            f"chatcmpl-{self.run[4:]}", created, checked.model.name, session, tools.ignored
        )
        self.headers = {SESSION_ID_HEADER: session} if session else {}
        self.headers |= tools.headers
        self.headers["X-Hermes-Run-Id"] = self.run
        if checked.session_key:
            self.headers[SESSION_KEY_HEADER] = checked.session_key

    def turn_request(self) -> TurnRequest:
        choice = self.checked.tool_choice
        return TurnRequest(
            session=self.resolved.session,
            message=self.prompt.question,
            new=self.resolved.new,
            results=self.prompt.results,
            instructions=self.prompt.instructions,
            client_tools=choice.client_tools,
            no_tools=choice.only_client_tools,
            constraints=choice.calling,
            run=self.run,
            async_delivery=False,
        )

    def side_call(self) -> SideCall | None:
        if (body := self.checked.side_call) is None:
            return None
        request = side_call_request(self.prompt, body, self.checked.tool_choice.calling)
        return SideCall(self.resolved.session, request, self.run)

    def on_event(self, event: Event) -> None:
        if isinstance(event, MessageAdded):
            self._messages.append(event.message)
        elif isinstance(event, RunEnded):
            self.ended = event
        elif isinstance(event, ToolStarted):
            self.keyed_turn.acted = True

    async def flush(self) -> None:
        """Do nothing: the answer is returned as a whole."""

    def result(self) -> FinishedCompletion:
        """Return the result; call it only after the turn has ended."""
        if self._result is None:
            message = "The turn ended without a result."
            ended = self.ended or RunEnded(self.run, Outcome.FAILED, message, "internal")
            self._result = self._finished(ended, self._messages)
        return self._result

    def _finished(self, ended: RunEnded, messages: Sequence[Message]) -> FinishedCompletion:
        tools = self.checked.tool_choice.client_tools
        return finish_completion(self.label, tools, ended, messages)

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        if not self.keyed_turn.has_key:
            return ()
        result = self._finished(ended, messages)
        return self.keyed_turn.final_writes(result) if result.is_replayable else ()


class _ChunkWriter:
    """Writes the events of a turn to its stream as chunks."""

    def __init__(self, turn: _ChatTurn, stream: EventStream) -> None:
        self._turn = turn
        self._stream = stream
        self._chunks = ChunkEncoder(turn.label)
        self._text = AnswerTextStream()
        self._tools: dict[str, str] = {}

    async def flush(self) -> None:
        await self._stream.flush()

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        return self._turn.final_writes(ended, messages)

    def on_event(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._send_text(self._text.delta(event.text))
            return
        self._turn.on_event(event)
        match event:
            case RunStarted():
                self._stream.send(self._chunks.role(), flush=False)
            case ReasoningDelta(text=text):
                self._stream.send(self._chunks.reasoning(text))
            case StreamReset():
                self._text.reset()
            case MessageAdded(message=Assistant() as message):
                self._send_text(self._text.finish(message))
            case MessageAdded(message=Result() as message) if message.call in self._tools:
                self._stream.send(self._chunks.tool_ended(message, self._tools.pop(message.call)))
            case ToolStarted(call=call):
                self._tools[call.id] = call.name
                self._stream.send(self._chunks.tool_started(event))
            case _:
                pass

    def failure(self) -> ApiError | None:
        """Return why the text sent so far is not the answer, after the end of the turn."""
        error = completion_error(self._turn.result(), acted=self._turn.keyed_turn.acted)
        if error is None and self._text.diverged:
            error = ApiError(502, "answer_restarted", ANSWER_RESTARTED)
        return error

    def end(self, failure: ApiError | None) -> None:
        if failure is not None:
            self._stream.send(frame(failure.body))
            self._stream.send(DONE_FRAME)
            return
        for one in self._chunks.end(
            self._turn.result(), usage_chunk=self._turn.checked.usage_chunk
        ):
            self._stream.send(one)

    def _send_text(self, text: str) -> None:
        if text:
            self._stream.send(self._chunks.content(text))
