"""One turn in a session that is named by its address: whole, or as it grows."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import partial
from typing import assert_never

import msgspec
from aiohttp import web
from msgspec import Raw, structs

from hermes.api.answer_text import AnswerTextStream
from hermes.api.catalog import model_names
from hermes.api.chat_completion import (
    CompletionLabel,
    FinishedCompletion,
    completion_error,
    finish_completion,
)
from hermes.api.chat_objects import ChatMessage
from hermes.api.context import KEY_PROFILE, ApiContext, decode_body, json_response
from hermes.api.errors import ApiError, invalid
from hermes.api.event_stream import EventStream, run_without_stream, stream_events, stream_turn
from hermes.api.idempotency import REPLAYED_HEADERS, IdempotentRequests, KeyClaim, KeyedTurn
from hermes.api.run_input import get_own_session, get_session
from hermes.api.session_objects import ChatEvent, ChatTurn, SessionCompletion, message_object
from hermes.api.turn_gate import ApiTurnRequest
from hermes.api.turn_input import ParsedMessages
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.store import Write
from hermes.schema.errors import NotFound
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
    Outcome,
    QuestionAnswered,
    QuestionAsked,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StreamReset,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Result
from hermes.schema.scope import OWNER, Role

MAX_PREVIEW = 200
_TURN = msgspec.json.Decoder(ChatTurn)
_STORED = msgspec.json.Decoder(FinishedCompletion)


class SessionChat:
    def __init__(self, desk: ApiContext) -> None:
        self._desk = desk
        self._idempotency = IdempotentRequests(desk)

    async def whole(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, streams=False)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, streams=True)

    async def _answered(self, request: web.Request, *, streams: bool) -> web.StreamResponse:
        app = self._desk.app(request)
        data = await self._desk.body_of(request)
        body = decode_body(data, _TURN)
        claim = self._idempotency.claim(app, request, data)
        del data
        run = partial(self._run, request, app, body, streams)
        return await self._idempotency.serve(
            app, claim, run, partial(self._again, request, streams)
        )

    async def _run(
        self, request: web.Request, app: App, body: ChatTurn, streams: bool, claim: KeyClaim | None
    ) -> web.StreamResponse:
        with self._desk.entry.take(request.get(KEY_PROFILE, "")) as slot:
            ask = await _turn_request(app, request, body)
            once = self._idempotency.once(app, claim, ask.session.id)
            telling = SessionChatEvents(self._label(app, ask), once, app.clock)
            ask = structs.replace(ask, closing=telling.closing, scope=once.scope)
            entry = self._desk.entry
            async with once:
                if streams:
                    stream = EventStream(request, self._desk.limits, telling.headers)
                    return await stream_turn(entry, stream, app, ask, slot, telling.hear)
                await run_without_stream(entry, app, ask, slot, telling.hear)
                done = telling.done()
                if failure := completion_error(done, acted=once.acted):
                    failure.headers |= telling.headers
                    raise failure
                return json_response(SessionCompletion.of(done), headers=telling.headers)

    async def _again(self, request: web.Request, streams: bool, kept: Raw) -> web.StreamResponse:
        known = _STORED.decode(kept)
        telling = SessionChatEvents(known.label, None, self._desk.clock)
        headers = telling.headers | REPLAYED_HEADERS
        if not streams:
            return json_response(SessionCompletion.of(known), headers=headers)
        stream = EventStream(request, self._desk.limits, headers)
        await stream.open()
        for frame in telling.again(known):
            stream.send(frame)
        await stream.close()
        return stream.response

    def _label(self, app: App, ask: ApiTurnRequest) -> CompletionLabel:
        created = int(self._desk.clock.now().timestamp())
        return CompletionLabel(
            ask.run, created, model_names(self._desk.settings, app)[0], ask.session.id
        )


async def _turn_request(app: App, request: web.Request, body: ChatTurn) -> ApiTurnRequest:
    words = body.message if body.message is not None else body.input
    if words is None:
        raise invalid("There is no message.", param="message")
    try:
        draft = ParsedMessages([ChatMessage(role="user", content=words)])
    except ApiError as error:
        param = (error.param or "").replace("messages[0].content", "message")
        raise invalid(str(error), param=param, code=error.code) from error
    session = await get_own_session(app, request.match_info["session_id"], Role.OWNER)
    prompt = await draft.keep(app)
    return ApiTurnRequest(
        session=session,
        asked=prompt.asked,
        run=new_id("run"),
        instructions=body.system_message or body.instructions or "",
    )


class SessionChatEvents:
    """Turns what a turn tells into named events, and into the whole; the label names the turn."""

    def __init__(self, label: CompletionLabel, once: KeyedTurn | None, clock: Clock) -> None:
        self._label = label
        self._once = once
        self._clock = clock
        self._words = AnswerTextStream()
        self._said: list[Message] = []
        self._tools: dict[str, tuple[str, float]] = {}
        self._ended = RunEnded(label.id, Outcome.FAILED, "No end.", "internal")
        self._number = 0
        self.headers = {"X-Hermes-Session-Id": label.session, "X-Hermes-Run-Id": label.id}

    def hear(self, event: Event) -> Iterator[bytes]:
        match event:
            case RunStarted():
                yield self._frame("run.started")
                yield self._frame("message.started")
            case TextDelta(text=text):
                yield from self._delta(self._words.delta(text))
            case StreamReset():
                self._words.reset()
            case MessageAdded(message=message):
                yield from self._heard(message)
            case ToolStarted():
                yield self._started(event)
            case ToolProgress(call=call, text=text):
                tool, _ = self._tools.get(call, ("", 0.0))
                yield self._frame("tool.progress", tool=tool, tool_call_id=call, text=text)
            case RunEnded():
                self._ended = event
                yield from self._end(self.done())
            case ReasoningDelta() | Notice() | QuestionAsked() | QuestionAnswered():
                pass
            case _:
                assert_never(event)

    def done(self) -> FinishedCompletion:
        return finish_completion(self._label, (), self._ended, self._said)

    def closing(self, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        result = finish_completion(self._label, (), ended, said)
        return self._once.closing(result) if self._once and result.is_replayable else ()

    def again(self, known: FinishedCompletion) -> Iterator[bytes]:
        """All events of a turn that was told before."""
        yield self._frame("run.started")
        yield self._frame("message.started")
        yield from self._delta(known.text)
        yield from self._end(known)

    def _delta(self, text: str) -> Iterator[bytes]:
        if text:
            yield self._frame("assistant.delta", delta=text)
        elif self._words.broken and (anew := self._words.renewed()):
            yield self._frame("assistant.restarted", content=anew[0])
            yield from self._delta(anew[1])

    def _started(self, event: ToolStarted) -> bytes:
        call = event.call
        if self._once is not None:
            self._once.acted = True
        self._tools[call.id] = (call.name, self._clock.monotonic())
        preview = one_line(bytes(call.args).decode("utf-8", "replace"), MAX_PREVIEW)
        return self._frame("tool.started", tool=call.name, tool_call_id=call.id, preview=preview)

    def _heard(self, message: Message) -> Iterator[bytes]:
        self._said.append(message)
        if isinstance(message, Assistant):
            yield from self._delta(self._words.said(message))
        elif isinstance(message, Result):
            now = self._clock.monotonic()
            tool, began = self._tools.pop(message.call, ("", now))
            yield self._frame(
                "tool.failed" if message.failed else "tool.completed",
                tool=tool,
                tool_call_id=message.call,
                duration=round(now - began, 3),
            )

    def _end(self, done: FinishedCompletion) -> Iterator[bytes]:
        whole = SessionCompletion.of(done)
        yield self._frame("assistant.completed", content=whole.message.content)
        if done.standing.failed:
            told, code = whole.error or "The turn ended early.", whole.error_code or "internal"
            problem = ApiError(502, code, told).envelope.error
            yield self._frame("error", message=told, code=code, error=problem)
        else:
            yield self._frame(
                "run.completed",
                usage=whole.usage,
                completed=whole.completed,
                partial=whole.partial,
            )
        yield self._frame("done")

    def _frame(self, name: str, /, **fields: object) -> bytes:
        self._number += 1
        plain = ChatEvent(
            session_id=self._label.session,
            run_id=self._label.id,
            seq=self._number,
            ts=self._clock.now().timestamp(),
        )
        body = msgspec.json.encode(structs.replace(plain, **fields))
        return b"event: %b\ndata: %b\n\n" % (name.encode(), body)


POLL_INTERVAL = 0.5
"""Seconds between two looks at a session in which nothing is said."""
MAX_BATCH = 200
SESSION_DELETED = b": the session was deleted\n\n"


class SessionFollower:
    def __init__(self, desk: ApiContext) -> None:
        self._desk = desk

    async def events(self, request: web.Request) -> web.StreamResponse:
        after = _after_seq(request)
        app = self._desk.app(request)
        session = await get_session(app, request.match_info["session_id"])
        return await stream_events(self._desk, request, self._frames(app, session.id, after))

    async def _frames(self, app: App, session: str, after: int) -> AsyncGenerator[bytes]:
        archive, place = app.store.archive_for(OWNER), after
        while True:
            rows = (await archive.messages(session, place))[:MAX_BATCH]
            if rows:
                place = rows[-1].seq
                yield b"".join(
                    b"id: %d\nevent: message\ndata: %b\n\n"
                    % (row.seq, msgspec.json.encode(message_object(row)))
                    for row in rows
                )
                continue
            try:
                await archive.get(session)
            except NotFound:
                yield SESSION_DELETED
                return
            await self._desk.clock.sleep(POLL_INTERVAL)


def _after_seq(request: web.Request) -> int:
    """Beyond which message; what a browser sends by itself when it comes back counts more."""
    given = request.headers.get("Last-Event-ID") or request.query.get("after") or "0"
    if not given.isascii() or not given.isdecimal() or len(given) > 15:
        raise invalid("The number of a message is a whole number from 0 on.", param="after")
    return int(given)
