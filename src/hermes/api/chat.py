"""`POST /v1/chat/completions`: one turn of the agent, whole or as it grows."""

from collections.abc import Sequence
from functools import partial

import msgspec
from aiohttp import web
from msgspec import Raw, Struct

from hermes.api.chat_wire import ChatCompletion, ChatRequest
from hermes.api.choosing import Offer, offer
from hermes.api.completion import (
    Chunks,
    Finished,
    Label,
    as_object,
    failure_of,
    finished,
    headers_of,
)
from hermes.api.desk import PROFILE, Desk, Route, answer, decode
from hermes.api.entry import Ask, Slot
from hermes.api.errors import ApiError, invalid
from hermes.api.forms import demand_form, form_of, in_form
from hermes.api.naming import model_names, route_for
from hermes.api.parameters import NEW_TURN, TASK
from hermes.api.prompts import Draft, Prompt, handed_tools
from hermes.api.replies import ANSWERS, HEADER, REPLAYED, Claim, Once, Replies
from hermes.api.settings import ModelRoute
from hermes.api.side_calls import alone, has_own_model, is_side_call, ledger
from hermes.api.sse import EventStream
from hermes.api.streaming import tell_turn
from hermes.api.talks import SESSION_KEY, Place, Talks, header_name, settle
from hermes.api.words import Stream
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.sse import frame
from hermes.ports.store import Write
from hermes.schema.errors import Overtaken, SessionBusy
from hermes.schema.events import (
    Event,
    Outcome,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    Said,
    StreamReset,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Result, Stop, Text

SESSION_ID = "X-Hermes-Session-Id"
RESTARTED = (
    "The model broke off and gave another answer than the one that was begun here. "
    "Discard this text and ask again; with an Idempotency-Key you then get the other answer."
)


class _Job(Struct, frozen=True, kw_only=True):
    """One request, checked; nothing is written yet."""

    app: App
    draft: Draft
    offer: Offer
    route: ModelRoute | None
    model: str
    named: str
    key: str
    streams: bool
    usage_apart: bool
    aside: ChatRequest | None = None
    """The body again, of a side call."""


def routes(desk: Desk) -> list[Route]:
    chat = Chat(desk)
    return [
        Route(
            method="POST",
            path="/v1/chat/completions",
            handler=chat.complete,
            summary="One turn of the agent, as a chat completion.",
            body=ChatRequest,
            answer=ChatCompletion,
            takes=(*NEW_TURN, TASK),
            streams=True,
            answers=ANSWERS,
        )
    ]


class Chat:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._talks = Talks(desk.settings.key)
        self._replies = Replies(desk)
        self._decoder = msgspec.json.Decoder(ChatRequest)
        self._kept = msgspec.json.Decoder(Finished)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        body = await self._desk.bytes_of(request)
        job = self._job(app, request, decode(body, self._decoder))
        claim = self._replies.claim(app, request, body, job.named, job.key)
        # It may be ten megabytes, and the turn an hour.
        del body
        run, again = partial(self._run, request, job), partial(self._again, request, job)
        return await self._replies.serve(app, claim, run, again)

    def _job(self, app: App, request: web.Request, body: ChatRequest) -> _Job:
        if body.n not in {None, 1}:
            raise invalid("Only one answer is given: n must be 1.", param="n")
        offered = offer(handed_tools(body.tools), body.tool_choice, body.parallel_tool_calls)
        offered = in_form(offered, form_of(body.response_format))
        settings = self._desk.settings
        apart = body.stream_options is not None and bool(body.stream_options.include_usage)
        named = header_name(request.headers.get(SESSION_ID), SESSION_ID)
        bound = bool(named or request.headers.get(HEADER))
        aside = is_side_call(request, body, bound=bound) and has_own_model(app)
        return _Job(
            app=app,
            draft=Draft(body.messages),
            offer=offered,
            route=route_for(settings, app, body.model),
            model=body.model or model_names(settings, app)[0],
            named=named,
            key=header_name(request.headers.get(SESSION_KEY), SESSION_KEY),
            streams=bool(body.stream),
            usage_apart=apart,
            aside=body if aside else None,
        )

    async def _run(
        self, request: web.Request, job: _Job, claim: Claim | None
    ) -> web.StreamResponse:
        prompt: Prompt | None = None
        while True:
            with self._desk.entry.take(request.get(PROFILE, "")) as slot:
                prompt = prompt or await job.draft.keep(job.app)
                place = await self._place(job, prompt, sure=claim is not None)
                once = self._replies.once(job.app, claim, place.session.id)
                turn = _Turn(job, prompt, place, once, self._desk.clock)
                try:
                    async with once:
                        return await self._answered(request, turn, slot)
                except (Overtaken, SessionBusy):
                    # A place that was only supposed to be free is not; the next one may be.
                    if not place.supposed or turn.ended is not None:
                        raise
                finally:
                    self._talks.leave(place)

    async def _place(self, job: _Job, prompt: Prompt, *, sure: bool) -> Place:
        if job.aside is not None:
            return Place(ledger(job.app), new=False)
        return await self._talks.find(job.app, prompt, job.named, job.key, sure=sure)

    async def _answered(
        self, request: web.Request, turn: "_Turn", slot: Slot
    ) -> web.StreamResponse:
        job = turn.job
        if job.offer.calling.form is not None:
            await demand_form(job.app, turn.place.session, job.route)
        turn.place = await settle(job.app, turn.place, job.route)
        if job.streams:
            response = await self._stream(request, turn, slot)
        else:
            response = await self._whole(turn, slot)
        self._remember(turn)
        return response

    async def _whole(self, turn: "_Turn", slot: Slot) -> web.Response:
        await self._desk.entry.enter(turn.job.app, turn.ask(), turn.hear, slot)
        result = turn.result()
        if failure := failure_of(result, acted=turn.once.acted):
            raise failure
        return answer(as_object(result), headers=turn.headers | headers_of(result))

    async def _stream(self, request: web.Request, turn: "_Turn", slot: Slot) -> web.StreamResponse:
        stream = EventStream(request, self._desk.limits, turn.headers)
        telling = _Telling(turn, stream)
        entry, job = self._desk.entry, turn.job
        failure = await tell_turn(entry, stream, job.app, turn.ask(), slot, telling.hear)
        telling.end(failure)
        await stream.close()
        return stream.response

    async def _again(self, request: web.Request, job: _Job, kept: Raw) -> web.StreamResponse:
        known = self._kept.decode(kept)
        headers = {SESSION_ID: known.label.session, **REPLAYED}
        if not job.streams:
            return answer(as_object(known), headers=headers | headers_of(known))
        stream = EventStream(request, self._desk.limits, headers)
        await stream.open()
        for one in Chunks(known.label).whole(known, usage_apart=job.usage_apart):
            stream.send(one)
        await stream.close()
        return stream.response

    def _remember(self, turn: "_Turn") -> None:
        ended = turn.ended
        if turn.job.named or turn.job.aside or ended is None or ended.outcome is not Outcome.DONE:
            return
        prompt = turn.prompt
        spoken = Assistant("", (Text(turn.result().text),), Stop.END)
        asked = [prompt.asked] if prompt.asked else []
        past = [*prompt.past, *asked, spoken]
        self._talks.remember(turn.job.app, past, turn.place.session.id)


class _Turn:
    """One turn of a chat completion, and what was heard of it."""

    def __init__(self, job: _Job, prompt: Prompt, place: Place, once: Once, clock: Clock) -> None:
        self.job = job
        self.prompt = prompt
        self.place = place
        self.once = once
        self._said: list[Message] = []
        self.ended: RunEnded | None = None
        self._result: Finished | None = None
        self.run = new_id("run")
        created = int(clock.now().timestamp())
        session = "" if job.aside else place.session.id
        self.label = Label(f"chatcmpl-{self.run[4:]}", created, job.model, session)
        self.headers = {SESSION_ID: session} if session else {}
        self.headers["X-Hermes-Run-Id"] = self.run
        if job.key:
            self.headers[SESSION_KEY] = job.key

    def ask(self) -> Ask:
        return Ask(
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
            alone=alone(self.prompt, self.job.aside, self.job.offer.calling)
            if self.job.aside
            else None,
        )

    async def hear(self, event: Event) -> None:
        if isinstance(event, Said):
            self._said.append(event.message)
        elif isinstance(event, RunEnded):
            self.ended = event
        elif isinstance(event, ToolStarted):
            self.once.acted = True

    def result(self) -> Finished:
        """To be asked for when the turn is over."""
        if self._result is None:
            self._result = self._finished()
        return self._result

    def _finished(self) -> Finished:
        ended = self.ended or RunEnded(self.run, Outcome.FAILED, "The turn had no end.", "internal")
        return finished(self.label, self.job.offer.handed, ended, self._said)

    def _closing(self, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        if not self.once.has_key:
            return ()
        result = finished(self.label, self.job.offer.handed, ended, said)
        return self.once.closing(result) if result.is_kept else ()


class _Telling:
    """Brings the events of a turn to its stream."""

    def __init__(self, turn: _Turn, stream: EventStream) -> None:
        self._turn = turn
        self._stream = stream
        self._chunks = Chunks(turn.label)
        self._words = Stream()
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
            case Said(message=Assistant() as message):
                self._tell(self._words.said(message))
            case Said(message=Result() as message) if message.call in self._tools:
                self._stream.send(self._chunks.ended(message, self._tools.pop(message.call)))
            case ToolStarted(call=call):
                self._tools[call.id] = call.name
                self._stream.send(self._chunks.started(event))
            case _:
                pass

    def end(self, failure: ApiError | None) -> None:
        result = self._turn.result()
        trouble = failure or failure_of(result, acted=self._turn.once.acted)
        if trouble is None and self._words.broken:
            trouble = ApiError(502, "answer_restarted", RESTARTED)
        if trouble is not None:
            self._stream.send(frame(trouble.body))
            self._stream.send(frame(b"[DONE]"))
            return
        for one in self._chunks.end(result, usage_apart=self._turn.job.usage_apart):
            self._stream.send(one)

    def _tell(self, text: str) -> None:
        if text:
            self._stream.send(self._chunks.content(text))
