"""`POST /v1/chat/completions`: one agent turn, as one object or as a stream."""

from collections.abc import Sequence
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
)
from hermes.api.client_tools import (
    ANY_OWN_TOOLS,
    ToolChoice,
    read_chat_tools,
    read_tool_choice,
)
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
from hermes.api.side_calls import (
    TASK_HEADER,
    SideCall,
    cost_session,
    is_side_call,
    side_call_request,
)
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
        if request.headers.get(KEY_HEADER) is None:
            del body
            return await self._run(request, checked, None)
        claim = self._idempotency.claim(app, request, body, checked.session_id, checked.session_key)
        # Free the body: it may be 10 MB, and the turn may take an hour.
        del body
        run, again = partial(self._run, request, checked), partial(self._replay, request, checked)
        return await self._idempotency.serve(app, claim, run, again)

    def _check(self, app: App, request: web.Request, body: ChatRequest) -> _CheckedRequest:
        if body.n not in {None, 1}:
            raise invalid("Only one choice is supported: n must be 1.", param="n")
        choice = ANY_OWN_TOOLS
        if body.tools or body.tool_choice is not None:
            tools = read_chat_tools(body.tools)
            choice = read_tool_choice(tools, body.tool_choice, body.parallel_tool_calls)
        if body.response_format is not None:
            choice = with_output_format(choice, read_response_format(body.response_format))
        headers, provider = request.headers, body.provider
        if session_id := headers.get(SESSION_ID_HEADER, ""):
            session_id = id_from_header(session_id, SESSION_ID_HEADER)
        if session_key := headers.get(SESSION_KEY_HEADER, ""):
            session_key = id_from_header(session_key, SESSION_KEY_HEADER)
        # Without the header, only a request that is not streamed can be a side call.
        side_call = (headers.get(TASK_HEADER) or not body.stream) and is_side_call(
            request, body, has_session_or_key=bool(session_id or headers.get(KEY_HEADER))
        )
        return _CheckedRequest(
            app=app,
            messages=ParsedMessages(body.messages),
            tool_choice=choice,
            model=choose_model(
                self._context.settings,
                app,
                body.model,
                # Some clients send another service's options here.
                provider if isinstance(provider, str) else "",
            ),
            session_id=session_id,
            session_key=session_key,
            streams=bool(body.stream),
            usage_chunk=body.stream_options is not None and bool(body.stream_options.include_usage),
            side_call=body if side_call and has_own_model(app) else None,
        )

    async def _run(
        self, request: web.Request, checked: _CheckedRequest, claim: KeyClaim | None
    ) -> web.StreamResponse:
        """Take a slot, store the input and resolve the session."""
        app, resolver = checked.app, self._session_resolver
        prompt: TurnInput | None = None
        while True:
            slot = self._context.turn_gate.take(request.get(KEY_PROFILE, ""))
            resolved = turn = None
            try:
                prompt = prompt or await checked.messages.store(app)
                if checked.side_call is not None:
                    resolved = ResolvedSession(cost_session(app), new=False)
                else:
                    resolved = await resolver.find(
                        app,
                        prompt,
                        checked.session_id,
                        checked.session_key,
                        checked=claim is not None,
                    )
                turn = _ChatTurn(checked, prompt, resolved, self._context.clock)
                if claim is None:
                    return await self._answer(request, turn, slot)
                turn.keyed = self._idempotency.keyed_turn(app, claim, resolved.session.id)
                async with turn.keyed:
                    return await self._answer(request, turn, slot)
            except (StateConflict, SessionBusy):
                # A session that was found only by its opening messages is in use; try the next
                # one.
                if resolved is None or not resolved.unchecked or turn is None or turn.ended:
                    raise
            finally:
                slot.release()
                if resolved is not None:
                    resolver.release(resolved)

    async def _answer(
        self, request: web.Request, turn: "_ChatTurn", slot: TurnSlot
    ) -> web.StreamResponse:
        """Prepare the session, then stream the answer or return it whole."""
        checked, created, route = turn.checked, turn.resolved, turn.checked.model.route
        if checked.tool_choice.constraints.format is not None:
            await require_output_format(checked.app, created.session, route)
        if checked.model.at_provider:
            await require_provider(checked.app, checked.model)
        if route is not None or created.history:
            turn.resolved = await prepare_session(checked.app, created, route)
        try:
            if checked.streams:
                response = await self._stream(request, turn, slot)
            else:
                response = await self._whole(turn, slot)
        except CLIENT_ERRORS as error:
            if not checked.session_id and not turn.acted:
                await discard_unanswered(checked.app, created, turn.ended, error)
            raise
        done = turn.ended is not None and turn.ended.outcome is Outcome.DONE
        if done and not checked.session_id and checked.side_call is None:
            prompt, answer = turn.prompt, Assistant("", (Text(turn.result().text),), Stop.END)
            question = [prompt.question] if prompt.question else []
            history = [*prompt.history, *question, answer]
            self._session_resolver.remember(checked.app, history, turn.resolved.session.id)
        return response

    async def _whole(self, turn: "_ChatTurn", slot: TurnSlot) -> web.Response:
        await self._run_turn(turn, slot)
        result = turn.result()
        if failure := completion_error(result, acted=turn.acted):
            raise failure
        return json_response(
            completion_object(result), headers=turn.headers | completion_headers(result)
        )

    async def _stream(
        self, request: web.Request, turn: "_ChatTurn", slot: TurnSlot
    ) -> web.StreamResponse:
        """Run the turn and write its events as chunks."""
        stream = EventStream(request, self._context.limits, turn.headers, hold_headers=True)
        turn.stream = stream
        with stream.running():
            await self._run_turn(turn, slot)
        failure = stream.error or completion_error(turn.result(), acted=turn.acted)
        if failure is None and turn.text.diverged:
            # The text sent so far is not the answer.
            failure = ApiError(502, "answer_restarted", ANSWER_RESTARTED)
        if failure is None:
            frames = turn.chunks.end(turn.result(), usage_chunk=turn.checked.usage_chunk)
        elif stream.response.prepared:
            frames = (frame(failure.body), DONE_FRAME)
        else:
            raise failure
        for one in frames:
            stream.send(one)
        await stream.close()
        return stream.response

    async def _run_turn(self, turn: "_ChatTurn", slot: TurnSlot) -> None:
        checked, session, prompt = turn.checked, turn.resolved.session, turn.prompt
        turn_gate, choice = self._context.turn_gate, checked.tool_choice
        if (body := checked.side_call) is not None:
            call = SideCall(session, side_call_request(prompt, body, choice.constraints), turn.run)
            await turn_gate.run_side_call(checked.app, call, turn, slot)
            return
        request = TurnRequest(
            session=session,
            message=prompt.question,
            new=turn.resolved.new,
            results=prompt.results,
            instructions=prompt.instructions,
            client_tools=choice.client_tools,
            no_tools=choice.only_client_tools,
            constraints=choice.constraints,
            run=turn.run,
            async_delivery=False,
        )
        stop = None if turn.keyed is None else turn.keyed.scope
        await turn_gate.run_turn(checked.app, request, turn, slot, stop=stop)

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


class _ChatTurn:
    """One turn of a chat completion: its events so far, and the chunks of its `stream`, if any."""

    def __init__(
        self,
        checked: _CheckedRequest,
        prompt: TurnInput,
        resolved: ResolvedSession,
        clock: Clock,
    ) -> None:
        self.checked = checked
        self.prompt = prompt
        self.resolved = resolved
        self.keyed: KeyedTurn | None = None
        self.stream: EventStream | None = None
        self.ended: RunEnded | None = None
        self.acted = False
        """Whether a tool has started."""
        self.text = AnswerTextStream()
        self.run = new_id("run")
        self._messages: list[Message] = []
        self._result: FinishedCompletion | None = None
        self._tools: dict[str, str] = {}
        created = int(clock.now().timestamp())
        session = "" if checked.side_call else resolved.session.id
        tools = checked.tool_choice.tools
        self._label = CompletionLabel(
            f"chatcmpl-{self.run[4:]}", created, checked.model.name, session, tools.ignored
        )
        self.chunks = ChunkEncoder(self._label)
        self.headers = {SESSION_ID_HEADER: session} if session else {}
        if tools.ignored:
            self.headers |= tools.headers
        self.headers["X-Hermes-Run-Id"] = self.run
        if checked.session_key:
            self.headers[SESSION_KEY_HEADER] = checked.session_key

    def on_event(self, event: Event) -> None:
        """Keep what the result needs, and convert what is shown to chunks."""
        match event:
            case RunEnded():
                self.ended = event
            case ToolStarted():
                self.acted = True
                if self.keyed is not None:
                    self.keyed.acted = True
            case MessageAdded(message=message):
                self._messages.append(message)
            case _:
                pass
        if self.stream is not None:
            self._stream_event(event, self.stream)

    def _stream_event(self, event: Event, stream: EventStream) -> None:
        chunks, text = self.chunks, ""
        match event:
            case TextDelta():
                text = self.text.delta(event.text)
            case MessageAdded(message=Assistant() as message):
                text = self.text.finish(message)
            case MessageAdded(message=Result() as message) if message.call in self._tools:
                stream.send(chunks.tool_ended(message, self._tools.pop(message.call)))
            case RunStarted():
                stream.send(chunks.role(), flush=False)
            case ReasoningDelta():
                stream.send(chunks.reasoning(event.text))
            case StreamReset():
                self.text.reset()
            case ToolStarted(call=call):
                self._tools[call.id] = call.name
                stream.send(chunks.tool_started(event))
            case _:
                pass
        if text:
            stream.send(chunks.content(text))

    async def flush(self) -> None:
        if self.stream is not None:
            await self.stream.flush()

    def result(self) -> FinishedCompletion:
        """Return the result; call it only after the turn has ended."""
        if self._result is None:
            message = "The turn ended without a result."
            ended = self.ended or RunEnded(self.run, Outcome.FAILED, message, "internal")
            client_tools = self.checked.tool_choice.client_tools
            self._result = finish_completion(self._label, client_tools, ended, self._messages)
        return self._result

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        if self.keyed is None:
            return ()
        client_tools = self.checked.tool_choice.client_tools
        result = finish_completion(self._label, client_tools, ended, messages)
        return self.keyed.final_writes(result) if result.is_replayable else ()
