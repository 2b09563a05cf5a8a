"""Responses API: run one agent turn, stored so that a later response can continue it."""

import secrets
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial

import msgspec
from aiohttp import web
from msgspec import Raw, Struct, structs

from hermes.api.catalog import ChosenModel, choose_model, require_provider
from hermes.api.chat_objects import TextFormat, provider_name, served_headers
from hermes.api.client_tools import ToolChoice, read_response_tools, read_tool_choice
from hermes.api.context import (
    KEY_PROFILE,
    NEW_TURN_PARAMETERS,
    SESSION_ID_HEADER,
    SESSION_KEY_HEADER,
    ApiContext,
    Route,
    decode_body,
    json_response,
)
from hermes.api.errors import ApiError, invalid, not_found, turn_error
from hermes.api.event_stream import EventStream, FrameReader, stream_replay
from hermes.api.idempotency import (
    REPLAYED_HEADERS,
    TURN_ERRORS,
    IdempotentRequests,
    KeyClaim,
    KeyedTurn,
)
from hermes.api.response_builder import (
    RESPONSE_ID_PREFIX,
    ResponseBuilder,
    answer_text,
    has_answer,
)
from hermes.api.response_items import PAGE_PARAMETERS, InputList, input_items, resolve_references
from hermes.api.response_objects import (
    ConversationRef,
    ResponseDeleted,
    ResponseObject,
    ResponseRequest,
    ServedResponse,
    TextOptions,
)
from hermes.api.run_input import ParsedInput, ResolvedInput, RunInput, additional_tools
from hermes.api.session_resolver import (
    CLIENT_ERRORS,
    SessionResolver,
    discard_unanswered,
    id_from_header,
    prepare_session,
)
from hermes.api.turn_gate import TurnSlot, stopped_before_start
from hermes.api.turn_input import (
    read_text_format,
    require_output_format,
    with_output_format,
)
from hermes.app.build import App
from hermes.kit.tasks import sleep_unless
from hermes.kit.text import one_line
from hermes.ports.journal import SaveResponse, StoredResponse
from hermes.ports.store import Write
from hermes.schema.errors import NotFound
from hermes.schema.events import Event, Outcome, RunEnded, ToolStarted
from hermes.schema.messages import Assistant, Message, Stop, Text
from hermes.schema.scope import OWNER
from hermes.session.turn_request import TurnRequest

_REQUEST = msgspec.json.Decoder(ResponseRequest)
_OBJECT = msgspec.json.Decoder(ResponseObject)


def routes(context: ApiContext) -> list[Route]:
    handlers = _ResponseHandlers(context)
    path = "/v1/responses/{response_id}"
    return [
        Route(
            "POST",
            "/v1/responses",
            handlers.create,
            "Run one agent turn that later responses can continue.",
            body=ResponseRequest,
            answer=ResponseObject,
            parameters=NEW_TURN_PARAMETERS,
            streams=True,
            answers=TURN_ERRORS,
        ),
        Route("GET", path, handlers.get, "Get a stored response.", answer=ResponseObject),
        Route(
            "DELETE",
            path,
            handlers.delete,
            "Delete a response; its session stays.",
            answer=ResponseDeleted,
        ),
        Route(
            "GET",
            f"{path}/input_items",
            handlers.input_items,
            "List the input items of a response.",
            answer=InputList,
            parameters=PAGE_PARAMETERS,
        ),
        Route(
            "POST",
            f"{path}/cancel",
            handlers.cancel,
            "Stop a response created with an Idempotency-Key; others end with their connection.",
            answer=ResponseObject,
            answers={410: "It was stopped before it started."},
        ),
    ]


class _CheckedRequest(Struct, frozen=True, kw_only=True):
    """A validated request; nothing is stored yet."""

    app: App
    body: ResponseRequest
    parsed: ParsedInput
    model: ChosenModel
    tool_choice: ToolChoice
    session_key: str


class _ResponseHandlers:
    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._idempotency = IdempotentRequests(context)
        self._session_resolver = SessionResolver(context.settings.key)
        self._turns: dict[str, _ResponseTurn] = {}
        """Running turns by response id."""

    async def create(self, request: web.Request) -> web.StreamResponse:
        app = self._context.app(request)
        data = await self._context.body_of(request)
        body = decode_body(data, _REQUEST)
        body = structs.replace(body, input=await resolve_references(app, body.input))
        checked = self._check(app, request, body)
        session = request.headers.get(SESSION_ID_HEADER, "")
        session_key = request.headers.get(SESSION_KEY_HEADER, "")
        claim = self._idempotency.claim(app, request, data, session, session_key)
        del data
        run, again = partial(self._run, request, checked), partial(self._replay, request, checked)
        return await self._idempotency.serve(app, claim, run, again)

    async def get(self, request: web.Request) -> web.StreamResponse:
        stored = await self._load(request)
        return web.Response(body=bytes(stored.body), content_type="application/json")

    async def delete(self, request: web.Request) -> web.StreamResponse:
        stored = await self._load(request)
        await self._context.app(request).store.responses.delete(stored.id, OWNER)
        return json_response(ResponseDeleted(id=stored.id))

    async def input_items(self, request: web.Request) -> web.StreamResponse:
        stored = await self._load(request)
        return json_response(await input_items(self._context.app(request), request, stored))

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        app, name = self._context.app(request), request.match_info["response_id"]
        running, turn = self._context.turn_gate.running_turn(app, name), self._turns.get(name)
        if running is not None and turn is not None:
            running.scope.cancel()
            ended = await sleep_unless(
                self._context.clock, self._context.limits.stop_seconds, running.ended
            )
            # A turn that takes longer to end is reported as running.
            response = turn.ended if ended else turn.builder.response
            if response is None:
                raise stopped_before_start()
            return json_response(response, headers=turn.headers)
        stored = await self._load(
            request,
            ", or it cannot be stopped here: without an Idempotency-Key it ends with its "
            "connection, and with `store: false` it is not stored.",
        )
        raise invalid(f"Response {stored.id} has already ended.", code="response_not_active")

    async def _load(self, request: web.Request, more: str = ".") -> StoredResponse:
        name = request.match_info["response_id"]
        try:
            return await self._context.app(request).store.responses.get(name, OWNER)
        except NotFound as error:
            message = f"Response {one_line(name, 100)!r} not found{more}"
            raise not_found(message, "response_not_found") from error

    def _check(self, app: App, request: web.Request, body: ResponseRequest) -> _CheckedRequest:
        if body.previous_response_id and body.conversation:
            message = "Give either conversation or previous_response_id, not both."
            raise invalid(message, param="conversation")
        if body.background:
            message = "Background responses are not supported. Start a run instead: POST /v1/runs."
            raise invalid(message, param="background")
        tools = read_response_tools([*(body.tools or ()), *additional_tools(body.input)])
        session_key = id_from_header(request.headers.get(SESSION_KEY_HEADER), SESSION_KEY_HEADER)
        run_input = RunInput(
            input=body.input,
            history=body.conversation_history or [],
            header=request.headers.get(SESSION_ID_HEADER, ""),
            key=session_key,
            previous=body.previous_response_id or "",
            conversation=_conversation_name(body),
            truncate=body.truncation == "auto",
        )
        return _CheckedRequest(
            app=app,
            body=body,
            parsed=ParsedInput(run_input),
            session_key=session_key,
            model=choose_model(
                self._context.settings, app, body.model, provider_name(body.provider)
            ),
            tool_choice=with_output_format(
                read_tool_choice(tools, body.tool_choice, body.parallel_tool_calls),
                read_text_format(body.text and body.text.format),
            ),
        )

    async def _replay(
        self, request: web.Request, checked: _CheckedRequest, stored: Raw
    ) -> web.StreamResponse:
        response = _OBJECT.decode(stored)
        headers = {SESSION_ID_HEADER: response.session_id, **REPLAYED_HEADERS}
        if not checked.body.stream:
            return json_response(response, headers=headers)
        frames = ResponseBuilder(response).replay()
        return await stream_replay(self._context, request, headers, frames)

    async def _run(
        self, request: web.Request, checked: _CheckedRequest, claim: KeyClaim | None
    ) -> web.StreamResponse:
        with self._context.turn_gate.take(request.get(KEY_PROFILE, "")) as slot:
            resolved = await checked.parsed.resolve(checked.app, self._session_resolver)
            route, created = checked.model.route, resolved.target
            if checked.tool_choice.constraints.format is not None:
                await require_output_format(checked.app, created.session, route)
            await require_provider(checked.app, checked.model)
            resolved = structs.replace(
                resolved, target=await prepare_session(checked.app, created, route)
            )
            keyed_turn = self._idempotency.keyed_turn(
                checked.app, claim, resolved.target.session.id
            )
            turn = _ResponseTurn(checked, resolved, keyed_turn)
            self._turns[turn.id] = turn
            try:
                async with keyed_turn:
                    if checked.body.stream:
                        response = await self._stream(request, turn, slot)
                    else:
                        response = await self._whole(turn, slot)
            except CLIENT_ERRORS as error:
                if not request.headers.get(SESSION_ID_HEADER) and not keyed_turn.acted:
                    await discard_unanswered(checked.app, created, turn.builder.ended, error)
                raise
            else:
                turn.remember(self._session_resolver)
                return response
            finally:
                del self._turns[turn.id]

    async def _whole(self, turn: "_ResponseTurn", slot: TurnSlot) -> web.Response:
        reader = turn.reader()
        await self._run_turn(turn, reader, slot)
        reader.end()
        if failure := turn.failure():
            raise failure
        response = turn.builder.response
        served = served_headers(response.hermes.model, response.hermes.provider)
        return json_response(response, headers=turn.headers | served)

    async def _stream(
        self, request: web.Request, turn: "_ResponseTurn", slot: TurnSlot
    ) -> web.StreamResponse:
        stream = EventStream(request, self._context.limits, turn.headers, hold_headers=True)
        reader = turn.reader(stream)
        with stream.running():
            await self._run_turn(turn, reader, slot)
        reader.end(stream.error)
        failure = turn.failure()
        if failure is not None and not stream.response.prepared:
            raise failure
        await stream.close()
        return stream.response

    def _run_turn(
        self, turn: "_ResponseTurn", reader: FrameReader, slot: TurnSlot
    ) -> Awaitable[None]:
        return self._context.turn_gate.run_turn(
            turn.checked.app, turn.turn_request(), reader, slot, stop=turn.keyed_turn.scope
        )


class _ResponseTurn:
    """One turn of a response, and what is stored of it."""

    def __init__(
        self, checked: _CheckedRequest, resolved: ResolvedInput, keyed_turn: KeyedTurn
    ) -> None:
        body, tools = checked.body, checked.tool_choice.tools
        self.checked = checked
        self.id = f"{RESPONSE_ID_PREFIX}{secrets.token_hex(16)}"
        self.keyed_turn = keyed_turn
        self.ended: ResponseObject | None = None
        self._resolved = resolved
        self._now = checked.app.clock.now()
        self._instructions = resolved.instructions(body.instructions)
        self._conversation = _conversation_name(body)
        self.headers = {SESSION_ID_HEADER: resolved.target.session.id} | tools.headers
        if checked.session_key:
            self.headers[SESSION_KEY_HEADER] = checked.session_key
        self.builder = ResponseBuilder(
            ResponseObject(
                id=self.id,
                created_at=int(self._now.timestamp()),
                model=checked.model.name,
                instructions=self._instructions or None,
                previous_response_id=body.previous_response_id,
                conversation=ConversationRef(self._conversation) if self._conversation else None,
                session_id=resolved.target.session.id,
                store=body.store is not False,
                truncation=body.truncation or "disabled",
                metadata=body.metadata or {},
                tools=tools.sent,
                hermes=ServedResponse(ignored_tools=tools.ignored),
                text=body.text or TextOptions(format=TextFormat()),
                tool_choice=body.tool_choice or "auto",
                parallel_tool_calls=body.parallel_tool_calls is not False,
            ),
            tools.tools,
            streams=bool(body.stream),
        )

    def failure(self) -> ApiError | None:
        """Return the error to answer with if the turn has ended without any text."""
        response, ended = self.builder.response, self.builder.ended
        if ended is None or response.error is None or has_answer(response):
            return None
        return turn_error(
            ended.code,
            ended.reason,
            retry_after=ended.retry_after,
            acted=self.keyed_turn.acted,
            headers=self.headers,
        )

    def remember(self, resolver: SessionResolver) -> None:
        """Let a request that repeats this conversation continue its session."""
        repeated, response = self._resolved.repeated, self.builder.response
        if repeated is None or response.status != "completed":
            return
        question = self._resolved.turn_input.question
        answer = Assistant("", (Text(answer_text(response)),), Stop.END)
        history = [*repeated, *([question] if question else []), answer]
        resolver.remember(self.checked.app, history, response.session_id)

    def reader(self, stream: EventStream | None = None) -> FrameReader:
        return FrameReader(self.id, self._on_event, self._final_writes, stream)

    def turn_request(self) -> TurnRequest:
        prompt, resolved = self._resolved.turn_input, self._resolved.target
        return TurnRequest(
            session=resolved.session,
            run=self.id,
            message=prompt.question,
            new=resolved.new,
            results=prompt.results,
            instructions="\n\n".join(filter(None, [self._instructions, prompt.instructions])),
            client_tools=self.checked.tool_choice.client_tools,
            no_tools=self.checked.tool_choice.only_client_tools,
            constraints=self.checked.tool_choice.constraints,
            async_delivery=False,
        )

    def _on_event(self, event: Event) -> Iterator[bytes]:
        if isinstance(event, ToolStarted):
            self.keyed_turn.acted = True
        return self.builder.on_event(event)

    def _final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        response = self.ended = self.builder.response_if_ended(ended, messages)
        writes: list[Write] = []
        if self.checked.body.store is not False:
            stored = StoredResponse(
                id=self.id,
                principal=OWNER,
                session=self._resolved.target.session.id,
                created=self._now,
                body=Raw(msgspec.json.encode(response)),
                conversation=self._conversation,
                instructions=self._instructions,
            )
            writes.append(SaveResponse(stored))
        # A failed request may be retried with the same key.
        if ended.outcome in {Outcome.DONE, Outcome.EXHAUSTED}:
            writes += self.keyed_turn.final_writes(response)
        return writes


def _conversation_name(body: ResponseRequest) -> str:
    conversation = body.conversation
    return conversation.id if isinstance(conversation, ConversationRef) else conversation or ""
