"""One turn in a session that is named by its address: whole, or as it grows."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import assert_never

import msgspec
from aiohttp import web
from msgspec import Raw, structs

from hermes.api.chat_wire import ChatMessage
from hermes.api.completion import Finished, Label, failure_of, finished
from hermes.api.desk import PROFILE, Desk, answer, decode
from hermes.api.entry import Ask
from hermes.api.errors import ApiError, invalid
from hermes.api.naming import model_names
from hermes.api.prompts import Draft
from hermes.api.replies import REPLAYED, Claim, Once, Replies
from hermes.api.runs_talk import own_session
from hermes.api.sessions_wire import ChatEvent, ChatTurn, SessionCompletion
from hermes.api.sse import EventStream
from hermes.api.streaming import run_quietly, stream_turn
from hermes.api.words import Stream
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.store import Write
from hermes.schema.events import (
    Answered,
    Asked,
    Event,
    Notice,
    Outcome,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    Said,
    StreamReset,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Result
from hermes.schema.scope import Role

PREVIEW = 200
_TURN = msgspec.json.Decoder(ChatTurn)
_KEPT = msgspec.json.Decoder(Finished)


class SessionChat:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._replies = Replies(desk)

    async def whole(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, streams=False)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, streams=True)

    async def _answered(self, request: web.Request, *, streams: bool) -> web.StreamResponse:
        app = self._desk.app(request)
        data = await self._desk.bytes_of(request)
        body = decode(data, _TURN)
        claim = self._replies.claim(app, request, data)
        del data
        run = partial(self._run, request, app, body, streams)
        return await self._replies.serve(app, claim, run, partial(self._again, request, streams))

    async def _run(
        self, request: web.Request, app: App, body: ChatTurn, streams: bool, claim: Claim | None
    ) -> web.StreamResponse:
        with self._desk.entry.take(request.get(PROFILE, "")) as slot:
            ask = await _ask(app, request, body)
            once = self._replies.once(app, claim, ask.session.id)
            telling = Telling(self._label(app, ask), once, app.clock)
            ask = structs.replace(ask, closing=telling.closing, scope=once.scope)
            entry = self._desk.entry
            async with once:
                if streams:
                    stream = EventStream(request, self._desk.limits, telling.headers)
                    return await stream_turn(entry, stream, app, ask, slot, telling.hear)
                await run_quietly(entry, app, ask, slot, telling.hear)
                done = telling.done()
                if failure := failure_of(done, acted=once.acted):
                    failure.headers |= telling.headers
                    raise failure
                return answer(SessionCompletion.of(done), headers=telling.headers)

    async def _again(self, request: web.Request, streams: bool, kept: Raw) -> web.StreamResponse:
        known = _KEPT.decode(kept)
        telling = Telling(known.label, None, self._desk.clock)
        headers = telling.headers | REPLAYED
        if not streams:
            return answer(SessionCompletion.of(known), headers=headers)
        stream = EventStream(request, self._desk.limits, headers)
        await stream.open()
        for frame in telling.again(known):
            stream.send(frame)
        await stream.close()
        return stream.response

    def _label(self, app: App, ask: Ask) -> Label:
        created = int(self._desk.clock.now().timestamp())
        return Label(ask.run, created, model_names(self._desk.settings, app)[0], ask.session.id)


async def _ask(app: App, request: web.Request, body: ChatTurn) -> Ask:
    words = body.message if body.message is not None else body.input
    if words is None:
        raise invalid("There is no message.", param="message")
    try:
        draft = Draft([ChatMessage(role="user", content=words)])
    except ApiError as error:
        param = (error.param or "").replace("messages[0].content", "message")
        raise invalid(str(error), param=param, code=error.code) from error
    session = await own_session(app, request.match_info["session_id"], Role.OWNER)
    prompt = await draft.keep(app)
    return Ask(
        session=session,
        asked=prompt.asked,
        run=new_id("run"),
        instructions=body.system_message or body.instructions or "",
    )


class Telling:
    """Turns what a turn tells into named events, and into the whole; the label names the turn."""

    def __init__(self, label: Label, once: Once | None, clock: Clock) -> None:
        self._label = label
        self._once = once
        self._clock = clock
        self._words = Stream()
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
            case Said(message=message):
                yield from self._heard(message)
            case ToolStarted():
                yield self._started(event)
            case ToolProgress(call=call, text=text):
                tool, _ = self._tools.get(call, ("", 0.0))
                yield self._frame("tool.progress", tool=tool, tool_call_id=call, text=text)
            case RunEnded():
                self._ended = event
                yield from self._end(self.done())
            case ReasoningDelta() | Notice() | Asked() | Answered():
                pass
            case _:
                assert_never(event)

    def done(self) -> Finished:
        return finished(self._label, (), self._ended, self._said)

    def closing(self, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        result = finished(self._label, (), ended, said)
        return self._once.closing(result) if self._once and result.is_kept else ()

    def again(self, known: Finished) -> Iterator[bytes]:
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
        preview = one_line(bytes(call.args).decode("utf-8", "replace"), PREVIEW)
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

    def _end(self, done: Finished) -> Iterator[bytes]:
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
