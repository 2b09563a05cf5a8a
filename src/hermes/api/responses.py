"""Responses: one turn in the shape of OpenAI's Responses API, kept so that a next one goes on."""

import secrets
from collections.abc import Sequence

import anyio
import msgspec
from aiohttp import web
from msgspec import Raw, Struct, structs

from hermes.api.chat_wire import ChatTool, ToolFunction
from hermes.api.choosing import Offer, offer
from hermes.api.desk import Desk, Route, answer, decode
from hermes.api.entry import Ask, Slot
from hermes.api.errors import ApiError, invalid, missing
from hermes.api.naming import model_names, route_for
from hermes.api.prompts import handed_tools
from hermes.api.replies import in_progress, interrupted
from hermes.api.responses_story import Story, said_something
from hermes.api.responses_wire import (
    NamedConversation,
    ResponseDeleted,
    ResponseObject,
    ResponseRequest,
    ResponseTool,
)
from hermes.api.runs_desk import lost_key
from hermes.api.runs_talk import Question, Talk, Wanted, idempotency, key_reused
from hermes.api.settings import ModelRoute
from hermes.api.sse import EventStream
from hermes.api.streaming import stream_turn
from hermes.api.talks import SESSION_KEY, header_name, settle
from hermes.app.build import App
from hermes.kit.holder import is_surely_dead, new_holder
from hermes.kit.text import one_line
from hermes.ports.journal import KeepResponse, KeptResponse, NoteRun, RunRecord, RunStatus
from hermes.ports.store import Write
from hermes.schema.errors import NotFound
from hermes.schema.events import Event, Outcome, RunEnded
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
            streams=True,
            answers={
                409: "Another turn of this session goes on.",
                410: "The turn of this Idempotency-Key was cut off by the end of the gateway.",
                422: "The Idempotency-Key was used for another request.",
                429: "Too many turns go on.",
                502: "The agent gave no answer.",
                503: "The gateway is about to end, or its settings or its disk are in trouble.",
            },
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
    ]


class _Job(Struct, frozen=True, kw_only=True):
    """One request, checked; nothing is written yet."""

    app: App
    body: ResponseRequest
    question: Question
    route: ModelRoute | None
    offer: Offer
    key: str
    fingerprint: str
    named: str


class _Door:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._holder = new_holder()
        self._going_on: dict[tuple[str, str], anyio.Event] = {}

    async def create(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        data = await self._desk.bytes_of(request)
        job = self._job(app, request, decode(data, _REQUEST), data)
        if not job.key:
            return await self._run(request, job)
        mark = (app.home.profile, job.key)
        while going_on := self._going_on.get(mark):
            await going_on.wait()
        self._going_on[mark] = anyio.Event()
        try:
            known = await self._known(job)
            if known is not None:
                return await self._again(request, job, known)
            return await self._run(request, job)
        finally:
            self._going_on.pop(mark).set()

    async def get(self, request: web.Request) -> web.StreamResponse:
        kept = await self._kept(request)
        return web.Response(body=bytes(kept.body), content_type="application/json")

    async def delete(self, request: web.Request) -> web.StreamResponse:
        kept = await self._kept(request)
        await self._desk.app(request).store.responses.delete(kept.id, OWNER)
        return answer(ResponseDeleted(id=kept.id))

    async def _kept(self, request: web.Request) -> KeptResponse:
        name = request.match_info["response_id"]
        try:
            return await self._desk.app(request).store.responses.get(name, OWNER)
        except NotFound as error:
            told = f"There is no response {one_line(name, 100)!r}."
            raise missing(told, "response_not_found") from error

    def _job(self, app: App, request: web.Request, body: ResponseRequest, data: bytes) -> _Job:
        if body.previous_response_id and body.conversation:
            told = "Name a conversation or a response to go on from, not both."
            raise invalid(told, param="conversation")
        tools = handed_tools([_tool(tool) for tool in body.tools or ()])
        key, fingerprint = idempotency(request.headers.get("Idempotency-Key"), data, "responses")
        named = header_name(request.headers.get(SESSION_KEY), SESSION_KEY)
        wanted = _wanted(body, request.headers.get("X-Hermes-Session-Id", ""))
        return _Job(
            app=app,
            body=body,
            question=Question(structs.replace(wanted, key=named)),
            named=named,
            route=route_for(self._desk.settings, app, body.model),
            offer=offer(tools, body.tool_choice, body.parallel_tool_calls),
            key=key,
            fingerprint=fingerprint,
        )

    async def _known(self, job: _Job) -> ResponseObject | None:
        """What an earlier request with this key came to; None when this one must run."""
        record = await job.app.store.journal.by_key(job.key, OWNER)
        if record is None:
            return None
        if record.fingerprint != job.fingerprint:
            raise key_reused()
        if record.result is not None:
            return _OBJECT.decode(record.result)
        if not record.status.ended:
            if record.holder != self._holder and not is_surely_dead(record.holder):
                raise in_progress()
            await job.app.store.commit(lost_key(record, job.app.clock))
        raise interrupted(record.session)

    async def _again(
        self, request: web.Request, job: _Job, known: ResponseObject
    ) -> web.StreamResponse:
        headers = {"X-Hermes-Session-Id": known.session_id, "X-Hermes-Replayed": "true"}
        if not job.body.stream:
            return answer(known, headers=headers)
        stream = EventStream(request, self._desk.limits, headers)
        await stream.open()
        for one in Story(known).whole():
            stream.send(one)
        await stream.close()
        return stream.response

    async def _run(self, request: web.Request, job: _Job) -> web.StreamResponse:
        with self._desk.entry.take() as slot:
            talk = await job.question.place(job.app)
            talk = structs.replace(talk, place=await settle(job.app, talk.place, job.route))
            turn = _Turn(job, talk, model_names(self._desk.settings, job.app)[0])
            if job.key:
                await job.app.store.journal.open(turn.record(self._holder))
            try:
                if job.body.stream:
                    return await self._stream(request, turn, slot)
                return await self._whole(turn, slot)
            finally:
                if job.key and not turn.is_kept:
                    with anyio.CancelScope(shield=True):
                        await job.app.store.journal.withdraw(turn.id)

    async def _whole(self, turn: "_Turn", slot: Slot) -> web.Response:
        async def listen(event: Event) -> None:
            for _ in turn.story.hear(event):
                pass

        await self._desk.entry.enter(turn.job.app, turn.ask(), listen, slot)
        response = turn.story.response
        if response.error is not None and not said_something(response):
            raise ApiError(502, "agent_incomplete", response.error.message, headers=turn.headers)
        return answer(response, headers=turn.headers)

    async def _stream(self, request: web.Request, turn: "_Turn", slot: Slot) -> web.StreamResponse:
        stream = EventStream(request, self._desk.limits, turn.headers)
        entry, app = self._desk.entry, turn.job.app
        return await stream_turn(entry, stream, app, turn.ask(), slot, turn.story.hear)


class _Turn:
    """One turn of a response, and what is kept of it."""

    def __init__(self, job: _Job, talk: Talk, own_name: str) -> None:
        body = job.body
        self.job = job
        self.id = f"resp_{secrets.token_hex(16)}"
        self.is_kept = False
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
                tool_choice=body.tool_choice or "auto",
                parallel_tool_calls=body.parallel_tool_calls is not False,
            )
        )

    def ask(self) -> Ask:
        prompt, place = self._talk.prompt, self._talk.place
        return Ask(
            session=place.session,
            asked=prompt.asked,
            new=place.new,
            results=prompt.results,
            instructions="\n\n".join(filter(None, [self._instructions, prompt.instructions])),
            handed=self.job.offer.handed,
            bare=self.job.offer.bare,
            calling=self.job.offer.calling,
            closing=self._closing,
        )

    def record(self, holder: str) -> RunRecord:
        """Holds the key, so that asking twice is the same as asking once."""
        return RunRecord(
            run=self.id,
            session=self._talk.place.session.id,
            principal=OWNER,
            created=self._now,
            updated=self._now,
            holder=holder,
            key=self.job.key,
            fingerprint=self.job.fingerprint,
        )

    def _closing(self, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        body = Raw(msgspec.json.encode(self.story.finish(ended, said)))
        writes: list[Write] = []
        if self.job.body.store is not False:
            kept = KeptResponse(
                id=self.id,
                principal=OWNER,
                session=self._talk.place.session.id,
                created=self._now,
                body=body,
                conversation=self._conversation,
                instructions=self._instructions,
            )
            writes.append(KeepResponse(kept))
        # What failed may be tried again with the same key.
        if self.job.key and ended.outcome in {Outcome.DONE, Outcome.EXHAUSTED}:
            self.is_kept = True
            now = self.job.app.clock.now()
            writes.append(NoteRun(run=self.id, at=now, status=RunStatus.COMPLETED, result=body))
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
