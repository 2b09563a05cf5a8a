"""One turn in a session that is named by its address: whole, or as it grows."""

from collections.abc import Iterator
from typing import assert_never

import msgspec
from aiohttp import web
from msgspec import structs

from hermes.api.chat_wire import ChatMessage
from hermes.api.desk import Desk, answer
from hermes.api.entry import Ask, Slot
from hermes.api.errors import ApiError, invalid
from hermes.api.prompts import Draft
from hermes.api.runs_talk import known_session
from hermes.api.sessions_wire import (
    ChatEvent,
    ChatTurn,
    SessionCompletion,
    SpokenMessage,
    TurnUsage,
)
from hermes.api.sse import EventStream
from hermes.api.streaming import stream_turn
from hermes.api.words import Stream
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
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
from hermes.schema.messages import Assistant, Message, Result, Usage

PREVIEW = 200
_TURN = msgspec.json.Decoder(ChatTurn)


class SessionChat:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def whole(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        body = await self._desk.read(request, _TURN)
        with self._desk.entry.take() as slot:
            ask = await _ask(app, request, body)
            telling = Telling(ask, app.clock)

            async def listen(event: Event) -> None:
                for _ in telling.hear(event):
                    pass

            await self._desk.entry.enter(app, ask, listen, slot)
        done = telling.completion()
        headers = {"X-Hermes-Session-Id": ask.session.id, "X-Hermes-Run-Id": ask.run}
        if done.error and not done.message.content:
            raise ApiError(502, "agent_incomplete", done.error, headers=headers)
        return answer(done, headers=headers)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        app = self._desk.app(request)
        body = await self._desk.read(request, _TURN)
        with self._desk.entry.take() as slot:
            ask = await _ask(app, request, body)
            return await self._streamed(app, request, ask, slot)

    async def _streamed(
        self, app: App, request: web.Request, ask: Ask, slot: Slot
    ) -> web.StreamResponse:
        headers = {"X-Hermes-Session-Id": ask.session.id, "X-Hermes-Run-Id": ask.run}
        stream = EventStream(request, self._desk.limits, headers)
        telling = Telling(ask, app.clock)
        return await stream_turn(self._desk.entry, stream, app, ask, slot, telling.hear)


async def _ask(app: App, request: web.Request, body: ChatTurn) -> Ask:
    words = body.message if body.message is not None else body.input
    if words is None:
        raise invalid("There is no message.", param="message")
    try:
        draft = Draft([ChatMessage(role="user", content=words)])
    except ApiError as error:
        param = (error.param or "").replace("messages[0].content", "message")
        raise invalid(str(error), param=param, code=error.code) from error
    session = await known_session(app, request.match_info["session_id"])
    prompt = await draft.keep(app)
    return Ask(
        session=session,
        asked=prompt.asked,
        run=new_id("run"),
        instructions=body.system_message or body.instructions or "",
    )


class Telling:
    """Turns what a turn tells into named events, and into the whole."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._words = Stream()
        self._tools: dict[str, tuple[str, float]] = {}
        self._ended: RunEnded | None = None
        self._number = 0

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
                yield from self._said(message)
            case ToolStarted(call=call):
                self._tools[call.id] = (call.name, self._clock.monotonic())
                preview = one_line(bytes(call.args).decode("utf-8", "replace"), PREVIEW)
                named = {"tool": call.name, "tool_call_id": call.id}
                yield self._frame("tool.started", **named, preview=preview)
            case ToolProgress(call=call, text=text):
                tool, _ = self._tools.get(call, ("", 0.0))
                yield self._frame("tool.progress", tool=tool, tool_call_id=call, text=text)
            case RunEnded():
                self._ended = event
                yield from self._end(event)
            case ReasoningDelta() | Notice() | Asked() | Answered():
                pass
            case _:
                assert_never(event)

    def completion(self) -> SessionCompletion:
        ended = self._ended or RunEnded(self._ask.run, Outcome.FAILED, "No end.", "internal")
        done = ended.outcome is Outcome.DONE
        return SessionCompletion(
            session_id=self._ask.session.id,
            run_id=self._ask.run,
            message=SpokenMessage(content=self._words.text),
            usage=_usage(ended.usage),
            completed=done,
            partial=not done and bool(self._words.text),
            error=None if done else ended.reason,
            error_code=None if done else ended.code,
        )

    def _delta(self, text: str) -> Iterator[bytes]:
        if text:
            yield self._frame("assistant.delta", delta=text)

    def _said(self, message: Message) -> Iterator[bytes]:
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

    def _end(self, ended: RunEnded) -> Iterator[bytes]:
        whole = self.completion()
        yield self._frame("assistant.completed", content=whole.message.content)
        if ended.outcome in {Outcome.DONE, Outcome.EXHAUSTED}:
            yield self._frame(
                "run.completed",
                usage=whole.usage,
                completed=whole.completed,
                partial=whole.partial,
            )
        else:
            told = whole.error or "The turn ended early."
            yield self._frame("error", message=told, code=whole.error_code or "internal")
        yield self._frame("done")

    def _frame(self, name: str, /, **fields: object) -> bytes:
        self._number += 1
        plain = ChatEvent(
            session_id=self._ask.session.id,
            run_id=self._ask.run,
            seq=self._number,
            ts=self._clock.now().timestamp(),
        )
        body = msgspec.json.encode(structs.replace(plain, **fields))
        return b"event: %b\ndata: %b\n\n" % (name.encode(), body)


def _usage(usage: Usage) -> TurnUsage:
    return TurnUsage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        total_tokens=usage.input + usage.output,
    )
