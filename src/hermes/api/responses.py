"""Responses: one turn in the shape of OpenAI's Responses API, kept so that a next one goes on."""

import secrets
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
from aiohttp import web
from msgspec import Raw, Struct, structs

from hermes.api.chat_wire import ChatTool, ToolFunction
from hermes.api.choosing import Offer, offer
from hermes.api.desk import PROFILE, Desk, Route, answer, decode
from hermes.api.entry import Ask, Slot, stopped_early
from hermes.api.errors import ApiError, invalid, missing, retrying
from hermes.api.forms import demand_form, in_form, text_form
from hermes.api.naming import model_names, route_for
from hermes.api.parameters import NEW_TURN
from hermes.api.prompts import handed_tools
from hermes.api.replies import ANSWERS, REPLAYED, Claim, Once, Replies
from hermes.api.responses_items import PAGE, InputList, input_items, resolved
from hermes.api.responses_story import PREFIX, Story, said_something
from hermes.api.responses_wire import (
    NamedConversation,
    ResponseDeleted,
    ResponseObject,
    ResponseRequest,
    ResponseTool,
    TextFormat,
    TextOptions,
)
from hermes.api.runs_talk import Question, Talk, Wanted
from hermes.api.settings import ModelRoute
from hermes.api.sse import EventStream
from hermes.api.streaming import run_quietly, stream_turn
from hermes.api.talks import SESSION_KEY, header_name, settle
from hermes.app.build import App
from hermes.kit.deadline import sleep_unless
from hermes.kit.text import one_line
from hermes.ports.journal import KeepResponse, KeptResponse
from hermes.ports.store import Write
from hermes.schema.errors import NotFound
from hermes.schema.events import Event, Outcome, RunEnded, ToolStarted
from hermes.schema.messages import Message
from hermes.schema.scope import OWNER

_REQUEST = msgspec.json.Decoder(ResponseRequest)
_OBJECT = msgspec.json.Decoder(ResponseObject)


def routes(desk: Desk) -> list[Route]:
    door = _Door(desk)
    one = "/v1/responses/{response_id}"
    return [
        Route(
            method="POST",
            path="/v1/responses",
            handler=door.create,
            body=ResponseRequest,
            answer=ResponseObject,
            takes=NEW_TURN,
            streams=True,
            answers=ANSWERS,
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
            takes=PAGE,
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


class _Job(Struct, frozen=True, kw_only=True):
    """One request, checked; nothing is written yet."""

    app: App
    body: ResponseRequest
    question: Question
    route: ModelRoute | None
    offer: Offer
    named: str


class _Door:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._replies = Replies(desk)
        self._turns: dict[str, _Turn] = {}
        """Those that go on, by the name of their response."""

    async def create(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        data = await self._desk.bytes_of(request)
        body = decode(data, _REQUEST)
        body = structs.replace(body, input=await resolved(app, body.input))
        job = self._job(app, request, body)
        session = request.headers.get("X-Hermes-Session-Id", "")
        named = request.headers.get(SESSION_KEY, "")
        claim = self._replies.claim(app, request, data, session, named)
        del data
        run, again = partial(self._run, request, job), partial(self._again, request, job)
        return await self._replies.serve(app, claim, run, again)

    async def get(self, request: web.Request) -> web.StreamResponse:
        kept = await self._kept(request)
        return web.Response(body=bytes(kept.body), content_type="application/json")

    async def delete(self, request: web.Request) -> web.StreamResponse:
        kept = await self._kept(request)
        await self._desk.app(request).store.responses.delete(kept.id, OWNER)
        return answer(ResponseDeleted(id=kept.id))

    async def input_items(self, request: web.Request) -> web.StreamResponse:
        kept = await self._kept(request)
        return answer(await input_items(self._desk.app(request), request, kept))

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        app, name = self._desk.app(request), request.match_info["response_id"]
        going, turn = self._desk.entry.going_in(app, name), self._turns.get(name)
        if going is not None and turn is not None:
            going.scope.cancel()
            ended = await sleep_unless(
                self._desk.clock, self._desk.limits.stop_seconds, going.ended
            )
            # One that takes its time to end is told of as going on.
            standing = turn.ended if ended else turn.story.response
            if standing is None:
                raise stopped_early()
            return answer(standing, headers=turn.headers)
        kept = await self._kept(
            request,
            " or it cannot be stopped from here: one without an Idempotency-Key ends with its "
            "connection, and one with `store: false` is not kept when it has ended.",
        )
        told = f"Response {kept.id} has ended: there is nothing to stop."
        raise invalid(told, code="response_not_active")

    async def _kept(self, request: web.Request, more: str = ".") -> KeptResponse:
        name = request.match_info["response_id"]
        try:
            return await self._desk.app(request).store.responses.get(name, OWNER)
        except NotFound as error:
            told = f"There is no response {one_line(name, 100)!r}{more}"
            raise missing(told, "response_not_found") from error

    def _job(self, app: App, request: web.Request, body: ResponseRequest) -> _Job:
        if body.previous_response_id and body.conversation:
            told = "Name a conversation or a response to go on from, not both."
            raise invalid(told, param="conversation")
        if body.background:
            told = "Nothing is answered in the background here. Begin a run: POST /v1/runs."
            raise invalid(told, param="background")
        tools = handed_tools([_tool(tool) for tool in body.tools or ()])
        named = header_name(request.headers.get(SESSION_KEY), SESSION_KEY)
        wanted = _wanted(body, request.headers.get("X-Hermes-Session-Id", ""))
        return _Job(
            app=app,
            body=body,
            question=Question(structs.replace(wanted, key=named)),
            named=named,
            route=route_for(self._desk.settings, app, body.model),
            offer=in_form(
                offer(tools, body.tool_choice, body.parallel_tool_calls),
                text_form(body.text and body.text.format),
            ),
        )

    async def _again(self, request: web.Request, job: _Job, kept: Raw) -> web.StreamResponse:
        known = _OBJECT.decode(kept)
        headers = {"X-Hermes-Session-Id": known.session_id, **REPLAYED}
        if not job.body.stream:
            return answer(known, headers=headers)
        stream = EventStream(request, self._desk.limits, headers)
        await stream.open()
        for one in Story(known).whole():
            stream.send(one)
        await stream.close()
        return stream.response

    async def _run(
        self, request: web.Request, job: _Job, claim: Claim | None
    ) -> web.StreamResponse:
        with self._desk.entry.take(request.get(PROFILE, "")) as slot:
            talk = await job.question.place(job.app)
            if job.offer.calling.form is not None:
                await demand_form(job.app, talk.place.session, job.route)
            talk = structs.replace(talk, place=await settle(job.app, talk.place, job.route))
            once = self._replies.once(job.app, claim, talk.place.session.id)
            turn = _Turn(job, talk, once, model_names(self._desk.settings, job.app)[0])
            self._turns[turn.id] = turn
            try:
                async with once:
                    if job.body.stream:
                        return await self._stream(request, turn, slot)
                    return await self._whole(turn, slot)
            finally:
                del self._turns[turn.id]

    async def _whole(self, turn: "_Turn", slot: Slot) -> web.Response:
        await run_quietly(self._desk.entry, turn.job.app, turn.ask(), slot, turn.hear)
        response = turn.story.response
        if response.error is not None and not said_something(response):
            headers = turn.headers | retrying(response.error.code, acted=turn.once.acted)
            raise ApiError(502, "agent_incomplete", response.error.message, headers=headers)
        return answer(response, headers=turn.headers)

    async def _stream(self, request: web.Request, turn: "_Turn", slot: Slot) -> web.StreamResponse:
        stream = EventStream(request, self._desk.limits, turn.headers)
        entry, app = self._desk.entry, turn.job.app
        return await stream_turn(entry, stream, app, turn.ask(), slot, turn.hear)


class _Turn:
    """One turn of a response, and what is kept of it."""

    def __init__(self, job: _Job, talk: Talk, once: Once, own_name: str) -> None:
        body = job.body
        self.job = job
        self.id = f"{PREFIX}{secrets.token_hex(16)}"
        self.once = once
        self.ended: ResponseObject | None = None
        self._talk = talk
        self._now = job.app.clock.now()
        carried = talk.previous.instructions if talk.previous else ""
        self._instructions = carried if body.instructions is None else body.instructions
        self._conversation = _conversation(body)
        self.headers = {"X-Hermes-Session-Id": talk.place.session.id}
        if job.named:
            self.headers[SESSION_KEY] = job.named
        self.story = Story(
            ResponseObject(
                id=self.id,
                created_at=int(self._now.timestamp()),
                model=body.model or own_name,
                instructions=self._instructions or None,
                previous_response_id=body.previous_response_id,
                conversation=NamedConversation(self._conversation) if self._conversation else None,
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

    def ask(self) -> Ask:
        prompt, place = self._talk.prompt, self._talk.place
        return Ask(
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
        return self.story.hear(event)

    def _closing(self, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        response = self.ended = self.story.ending(ended, said)
        writes: list[Write] = []
        if self.job.body.store is not False:
            kept = KeptResponse(
                id=self.id,
                principal=OWNER,
                session=self._talk.place.session.id,
                created=self._now,
                body=Raw(msgspec.json.encode(response)),
                conversation=self._conversation,
                instructions=self._instructions,
            )
            writes.append(KeepResponse(kept))
        # What failed may be tried again with the same key.
        if ended.outcome in {Outcome.DONE, Outcome.EXHAUSTED}:
            writes += self.once.closing(response)
        return writes


def _conversation(body: ResponseRequest) -> str:
    given = body.conversation
    return given.id if isinstance(given, NamedConversation) else given or ""


def _wanted(body: ResponseRequest, header: str) -> Wanted:
    return Wanted(
        input=body.input,
        history=body.conversation_history or [],
        header=header,
        previous=body.previous_response_id or "",
        conversation=_conversation(body),
        truncate=body.truncation == "auto",
    )


def _tool(tool: ResponseTool) -> ChatTool:
    function = ToolFunction(
        name=tool.name, description=tool.description, parameters=tool.parameters
    )
    return ChatTool(function=function)
