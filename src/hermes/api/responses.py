"""Responses: one turn in the shape of OpenAI's Responses API, kept so that a next one goes on."""

import secrets
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
from aiohttp import web
from msgspec import Raw, Struct, structs

from hermes.api.catalog import model_names, model_route_for
from hermes.api.chat_objects import ChatTool, ToolFunction
from hermes.api.context import (
    KEY_PROFILE,
    NEW_TURN_PARAMETERS,
    ApiContext,
    Route,
    decode_body,
    json_response,
)
from hermes.api.errors import ApiError, invalid, not_found, retry_headers
from hermes.api.event_stream import EventStream, run_without_stream, stream_turn
from hermes.api.idempotency import (
    REPLAYED_HEADERS,
    TURN_ERRORS,
    IdempotentRequests,
    KeyClaim,
    KeyedTurn,
)
from hermes.api.request_options import (
    ToolChoice,
    read_text_format,
    read_tool_choice,
    require_output_format,
    with_output_format,
)
from hermes.api.response_builder import RESPONSE_ID_PREFIX, ResponseBuilder, has_answer
from hermes.api.response_items import PAGE_PARAMETERS, InputList, input_items, resolve_references
from hermes.api.response_objects import (
    ConversationRef,
    ResponseDeleted,
    ResponseObject,
    ResponseRequest,
    ResponseTool,
    TextFormat,
    TextOptions,
)
from hermes.api.run_input import ParsedInput, ResolvedInput, RunInput
from hermes.api.session_resolver import SESSION_KEY_HEADER, id_from_header, prepare_session
from hermes.api.settings import ModelRoute
from hermes.api.turn_gate import ApiTurnRequest, TurnSlot, stopped_before_start
from hermes.api.turn_input import client_tools
from hermes.app.build import App
from hermes.kit.deadline import sleep_unless
from hermes.kit.text import one_line
from hermes.ports.journal import SaveResponse, StoredResponse
from hermes.ports.store import Write
from hermes.schema.errors import NotFound
from hermes.schema.events import Event, Outcome, RunEnded, ToolStarted
from hermes.schema.messages import Message
from hermes.schema.scope import OWNER

_REQUEST = msgspec.json.Decoder(ResponseRequest)
_OBJECT = msgspec.json.Decoder(ResponseObject)


def routes(desk: ApiContext) -> list[Route]:
    door = _ResponseHandlers(desk)
    one = "/v1/responses/{response_id}"
    return [
        Route(
            method="POST",
            path="/v1/responses",
            handler=door.create,
            body=ResponseRequest,
            answer=ResponseObject,
            takes=NEW_TURN_PARAMETERS,
            streams=True,
            answers=TURN_ERRORS,
            summary="One turn of the agent, which a later one may go on from.",
        ),
        Route(
            method="GET",
            path=one,
            handler=door.get,
            answer=ResponseObject,
            summary="A response that was kept.",
        ),
        Route(
            method="DELETE",
            path=one,
            handler=door.delete,
            answer=ResponseDeleted,
            summary="Forget a response; its session stays.",
        ),
        Route(
            method="GET",
            path=f"{one}/input_items",
            handler=door.input_items,
            answer=InputList,
            takes=PAGE_PARAMETERS,
            summary="What a response was asked with.",
        ),
        Route(
            method="POST",
            path=f"{one}/cancel",
            handler=door.cancel,
            answer=ResponseObject,
            answers={410: "It was stopped before it had begun."},
            summary="Stop a response that has an Idempotency-Key; another ends with its client.",
        ),
    ]


class _CheckedRequest(Struct, frozen=True, kw_only=True):
    """One request, checked; nothing is written yet."""

    app: App
    body: ResponseRequest
    question: ParsedInput
    route: ModelRoute | None
    offer: ToolChoice
    named: str


class _ResponseHandlers:
    def __init__(self, desk: ApiContext) -> None:
        self._desk = desk
        self._idempotency = IdempotentRequests(desk)
        self._turns: dict[str, _ResponseTurn] = {}
        """Those that go on, by the name of their response."""

    async def create(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        data = await self._desk.body_of(request)
        body = decode_body(data, _REQUEST)
        body = structs.replace(body, input=await resolve_references(app, body.input))
        job = self._job(app, request, body)
        session = request.headers.get("X-Hermes-Session-Id", "")
        named = request.headers.get(SESSION_KEY_HEADER, "")
        claim = self._idempotency.claim(app, request, data, session, named)
        del data
        run, again = partial(self._run, request, job), partial(self._again, request, job)
        return await self._idempotency.serve(app, claim, run, again)

    async def get(self, request: web.Request) -> web.StreamResponse:
        kept = await self._kept(request)
        return web.Response(body=bytes(kept.body), content_type="application/json")

    async def delete(self, request: web.Request) -> web.StreamResponse:
        kept = await self._kept(request)
        await self._desk.app(request).store.responses.delete(kept.id, OWNER)
        return json_response(ResponseDeleted(id=kept.id))

    async def input_items(self, request: web.Request) -> web.StreamResponse:
        kept = await self._kept(request)
        return json_response(await input_items(self._desk.app(request), request, kept))

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        app, name = self._desk.app(request), request.match_info["response_id"]
        going, turn = self._desk.entry.running_turn(app, name), self._turns.get(name)
        if going is not None and turn is not None:
            going.scope.cancel()
            ended = await sleep_unless(
                self._desk.clock, self._desk.limits.stop_seconds, going.ended
            )
            # One that takes its time to end is told of as going on.
            standing = turn.ended if ended else turn.builder.response
            if standing is None:
                raise stopped_before_start()
            return json_response(standing, headers=turn.headers)
        kept = await self._kept(
            request,
            " or it cannot be stopped from here: one without an Idempotency-Key ends with its "
            "connection, and one with `store: false` is not kept when it has ended.",
        )
        told = f"Response {kept.id} has ended: there is nothing to stop."
        raise invalid(told, code="response_not_active")

    async def _kept(self, request: web.Request, more: str = ".") -> StoredResponse:
        name = request.match_info["response_id"]
        try:
            return await self._desk.app(request).store.responses.get(name, OWNER)
        except NotFound as error:
            told = f"There is no response {one_line(name, 100)!r}{more}"
            raise not_found(told, "response_not_found") from error

    def _job(self, app: App, request: web.Request, body: ResponseRequest) -> _CheckedRequest:
        if body.previous_response_id and body.conversation:
            told = "Name a conversation or a response to go on from, not both."
            raise invalid(told, param="conversation")
        if body.background:
            told = "Nothing is answered in the background here. Begin a run: POST /v1/runs."
            raise invalid(told, param="background")
        tools = client_tools([_as_chat_tool(tool) for tool in body.tools or ()])
        named = id_from_header(request.headers.get(SESSION_KEY_HEADER), SESSION_KEY_HEADER)
        wanted = _run_input(body, request.headers.get("X-Hermes-Session-Id", ""))
        return _CheckedRequest(
            app=app,
            body=body,
            question=ParsedInput(structs.replace(wanted, key=named)),
            named=named,
            route=model_route_for(self._desk.settings, app, body.model),
            offer=with_output_format(
                read_tool_choice(tools, body.tool_choice, body.parallel_tool_calls),
                read_text_format(body.text and body.text.format),
            ),
        )

    async def _again(
        self, request: web.Request, job: _CheckedRequest, kept: Raw
    ) -> web.StreamResponse:
        known = _OBJECT.decode(kept)
        headers = {"X-Hermes-Session-Id": known.session_id, **REPLAYED_HEADERS}
        if not job.body.stream:
            return json_response(known, headers=headers)
        stream = EventStream(request, self._desk.limits, headers)
        await stream.open()
        for one in ResponseBuilder(known).whole():
            stream.send(one)
        await stream.close()
        return stream.response

    async def _run(
        self, request: web.Request, job: _CheckedRequest, claim: KeyClaim | None
    ) -> web.StreamResponse:
        with self._desk.entry.take(request.get(KEY_PROFILE, "")) as slot:
            talk = await job.question.place(job.app)
            if job.offer.calling.form is not None:
                await require_output_format(job.app, talk.place.session, job.route)
            talk = structs.replace(
                talk, place=await prepare_session(job.app, talk.place, job.route)
            )
            once = self._idempotency.once(job.app, claim, talk.place.session.id)
            turn = _ResponseTurn(job, talk, once, model_names(self._desk.settings, job.app)[0])
            self._turns[turn.id] = turn
            try:
                async with once:
                    if job.body.stream:
                        return await self._stream(request, turn, slot)
                    return await self._whole(turn, slot)
            finally:
                del self._turns[turn.id]

    async def _whole(self, turn: "_ResponseTurn", slot: TurnSlot) -> web.Response:
        await run_without_stream(self._desk.entry, turn.job.app, turn.ask(), slot, turn.hear)
        response = turn.builder.response
        if response.error is not None and not has_answer(response):
            headers = turn.headers | retry_headers(response.error.code, acted=turn.once.acted)
            raise ApiError(502, "agent_incomplete", response.error.message, headers=headers)
        return json_response(response, headers=turn.headers)

    async def _stream(
        self, request: web.Request, turn: "_ResponseTurn", slot: TurnSlot
    ) -> web.StreamResponse:
        stream = EventStream(request, self._desk.limits, turn.headers)
        entry, app = self._desk.entry, turn.job.app
        return await stream_turn(entry, stream, app, turn.ask(), slot, turn.hear)


class _ResponseTurn:
    """One turn of a response, and what is kept of it."""

    def __init__(
        self, job: _CheckedRequest, talk: ResolvedInput, once: KeyedTurn, own_name: str
    ) -> None:
        body = job.body
        self.job = job
        self.id = f"{RESPONSE_ID_PREFIX}{secrets.token_hex(16)}"
        self.once = once
        self.ended: ResponseObject | None = None
        self._talk = talk
        self._now = job.app.clock.now()
        carried = talk.previous.instructions if talk.previous else ""
        self._instructions = carried if body.instructions is None else body.instructions
        self._conversation = _conversation_name(body)
        self.headers = {"X-Hermes-Session-Id": talk.place.session.id}
        if job.named:
            self.headers[SESSION_KEY_HEADER] = job.named
        self.builder = ResponseBuilder(
            ResponseObject(
                id=self.id,
                created_at=int(self._now.timestamp()),
                model=body.model or own_name,
                instructions=self._instructions or None,
                previous_response_id=body.previous_response_id,
                conversation=ConversationRef(self._conversation) if self._conversation else None,
                session_id=talk.place.session.id,
                store=body.store is not False,
                truncation=body.truncation or "disabled",
                metadata=body.metadata or {},
                tools=body.tools or [],
                text=body.text or TextOptions(format=TextFormat()),
                tool_choice=body.tool_choice or "auto",
                parallel_tool_calls=body.parallel_tool_calls is not False,
            ),
            {spec.name for spec in job.offer.handed},
            streams=bool(body.stream),
        )

    def ask(self) -> ApiTurnRequest:
        prompt, place = self._talk.prompt, self._talk.place
        return ApiTurnRequest(
            session=place.session,
            run=self.id,
            asked=prompt.asked,
            new=place.new,
            results=prompt.results,
            instructions="\n\n".join(filter(None, [self._instructions, prompt.instructions])),
            handed=self.job.offer.handed,
            bare=self.job.offer.bare,
            calling=self.job.offer.calling,
            closing=self._closing,
            scope=self.once.scope,
        )

    def hear(self, event: Event) -> Iterator[bytes]:
        if isinstance(event, ToolStarted):
            self.once.acted = True
        return self.builder.hear(event)

    def _closing(self, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        response = self.ended = self.builder.ending(ended, said)
        writes: list[Write] = []
        if self.job.body.store is not False:
            kept = StoredResponse(
                id=self.id,
                principal=OWNER,
                session=self._talk.place.session.id,
                created=self._now,
                body=Raw(msgspec.json.encode(response)),
                conversation=self._conversation,
                instructions=self._instructions,
            )
            writes.append(SaveResponse(kept))
        # What failed may be tried again with the same key.
        if ended.outcome in {Outcome.DONE, Outcome.EXHAUSTED}:
            writes += self.once.closing(response)
        return writes


def _conversation_name(body: ResponseRequest) -> str:
    given = body.conversation
    return given.id if isinstance(given, ConversationRef) else given or ""


def _run_input(body: ResponseRequest, header: str) -> RunInput:
    return RunInput(
        input=body.input,
        history=body.conversation_history or [],
        header=header,
        previous=body.previous_response_id or "",
        conversation=_conversation_name(body),
        truncate=body.truncation == "auto",
    )


def _as_chat_tool(tool: ResponseTool) -> ChatTool:
    function = ToolFunction(
        name=tool.name, description=tool.description, parameters=tool.parameters
    )
    return ChatTool(function=function)
