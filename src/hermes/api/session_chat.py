"""Run one turn in a given session, and follow a session's messages."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import assert_never

import msgspec
from aiohttp import web
from msgspec import UNSET, Raw, structs

from hermes.api.answer_text import AnswerTextStream
from hermes.api.catalog import ChosenModel, choose_model, require_provider
from hermes.api.chat_objects import (
    ChatMessage,
    CompletionLabel,
    FinishedCompletion,
    completion_error,
    finish_completion,
    provider_name,
)
from hermes.api.context import (
    KEY_PROFILE,
    SESSION_ID_HEADER,
    ApiContext,
    decode_body,
    json_response,
)
from hermes.api.errors import ApiError, invalid, public_code, turn_error
from hermes.api.event_stream import (
    EventStream,
    FrameReader,
    read_after,
    stream_events,
    stream_replay,
)
from hermes.api.idempotency import REPLAYED_HEADERS, IdempotentRequests, KeyClaim, KeyedTurn
from hermes.api.session_objects import (
    ChatEvent,
    ChatTurn,
    MessageHead,
    SessionCompletion,
    called_tools,
    message_object,
)
from hermes.api.session_resolver import (
    find_session,
    get_own_session,
    get_session,
    with_route,
)
from hermes.api.turn_input import ParsedMessages
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.kit.text import one_line
from hermes.ports.store import Write
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
from hermes.schema.messages import Assistant, Message, Result, text_of
from hermes.schema.scope import OWNER, Role
from hermes.session.turn_request import TurnRequest

MAX_PREVIEW = 200
MAX_BATCH = 200
POLL_INTERVAL = 0.5
"""Seconds between polls of an idle session."""
SESSION_DELETED = b": the session was deleted\n\n"
_TURN = msgspec.json.Decoder(ChatTurn)
_STORED = msgspec.json.Decoder(FinishedCompletion)


class SessionChat:
    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._idempotency = IdempotentRequests(context)

    async def whole(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, streams=False)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, streams=True)

    async def _answer(self, request: web.Request, *, streams: bool) -> web.StreamResponse:
        app = self._context.app(request)
        data = await self._context.body_of(request)
        body = decode_body(data, _TURN)
        claim = self._idempotency.claim(app, request, data)
        del data
        run = partial(self._run, request, app, body, streams)
        return await self._idempotency.serve(
            app, claim, run, partial(self._replay, request, streams)
        )

    async def _run(
        self, request: web.Request, app: App, body: ChatTurn, streams: bool, claim: KeyClaim | None
    ) -> web.StreamResponse:
        with self._context.turn_gate.take(request.get(KEY_PROFILE, "")) as slot:
            chosen = choose_model(
                self._context.settings, app, body.model, provider_name(body.provider)
            )
            await require_provider(app, chosen)
            turn = await _turn_request(app, request, body, chosen)
            keyed_turn = self._idempotency.keyed_turn(app, claim, turn.session.id)
            created = int(self._context.clock.now().timestamp())
            label = CompletionLabel(turn.run, created, chosen.name, turn.session.id)
            question = text_of(turn.message) if turn.message else ""
            events = SessionChatEvents(label, keyed_turn, app.clock, question)
            limits = self._context.limits
            stream = EventStream(request, limits, events.headers) if streams else None
            reader = FrameReader(turn.run, events.on_event, events.final_writes, stream)
            async with keyed_turn:
                with stream.running() if stream is not None else nullcontext():
                    await self._context.turn_gate.run_turn(
                        app, turn, reader, slot, stop=keyed_turn.scope
                    )
                reader.end(stream and stream.error)
                if stream is not None:
                    await stream.close()
                    return stream.response
                done = events.result()
                if failure := completion_error(done, acted=keyed_turn.acted):
                    failure.headers |= events.headers
                    raise failure
                return json_response(SessionCompletion.from_finished(done), headers=events.headers)

    async def _replay(self, request: web.Request, streams: bool, stored: Raw) -> web.StreamResponse:
        finished = _STORED.decode(stored)
        events = SessionChatEvents(finished.label, None, self._context.clock)
        headers = events.headers | REPLAYED_HEADERS
        if not streams:
            return json_response(SessionCompletion.from_finished(finished), headers=headers)
        return await stream_replay(self._context, request, headers, events.replay(finished))


async def _turn_request(
    app: App, request: web.Request, body: ChatTurn, chosen: ChosenModel
) -> TurnRequest:
    content = body.message if body.message is not None else body.input
    if content is None:
        raise invalid("The message is missing.", param="message")
    try:
        draft = ParsedMessages([ChatMessage(role="user", content=content)])
    except ApiError as error:
        param = (error.param or "").replace("messages[0].content", "message")
        raise invalid(str(error), param=param, code=error.code) from error
    session = await get_own_session(app, request.match_info["session_id"], Role.OWNER)
    prompt = await draft.store(app)
    return TurnRequest(
        session=with_route(session, chosen.route),
        message=prompt.question,
        async_delivery=False,
        instructions=body.system_message or body.instructions or "",
    )


class SessionChatEvents:
    """Converts the events of a turn to named stream events and to the complete answer."""

    def __init__(
        self,
        label: CompletionLabel,
        keyed_turn: KeyedTurn | None,
        clock: Clock,
        question: str = "",
    ) -> None:
        self._label = label
        self._question = question
        # One id for the whole answer: it is needed before the turn's messages exist.
        self._message_id = f"msg_{label.id}"
        self._keyed_turn = keyed_turn
        self._clock = clock
        self._text = AnswerTextStream()
        self._messages: list[Message] = []
        self._tools: dict[str, tuple[str, float]] = {}
        message = "The turn ended without a result."
        self._ended = RunEnded(label.id, Outcome.FAILED, message, "internal")
        self._number = 0
        self.headers = {SESSION_ID_HEADER: label.session, "X-Hermes-Run-Id": label.id}

    def on_event(self, event: Event) -> Iterator[bytes]:
        match event:
            case RunStarted():
                yield from self._begin()
            case TextDelta(text=text):
                yield from self._delta(self._text.delta(text))
            case StreamReset():
                self._text.reset()
            case MessageAdded(message=message):
                yield from self._on_message(message)
            case ToolStarted():
                yield self._started(event)
            case ToolProgress(call=call, text=text):
                tool, _ = self._tools.get(call, ("", 0.0))
                yield self._frame(
                    "tool.progress",
                    tool=tool,
                    tool_name=tool,
                    tool_call_id=call,
                    text=text,
                    delta=text,
                )
            case RunEnded():
                self._ended = event
                yield from self._end(self.result())
            case ReasoningDelta() | Notice() | QuestionAsked() | QuestionAnswered():
                pass
            case _:
                assert_never(event)

    def result(self) -> FinishedCompletion:
        return finish_completion(self._label, (), self._ended, self._messages)

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        result = finish_completion(self._label, (), ended, messages)
        keyed = self._keyed_turn if result.is_replayable else None
        return keyed.final_writes(result) if keyed else ()

    def replay(self, finished: FinishedCompletion) -> Iterator[bytes]:
        """Yield all events of a stored turn."""
        yield from self._begin()
        yield from self._delta(finished.text)
        yield from self._end(finished)

    def _begin(self) -> Iterator[bytes]:
        question = MessageHead(role="user", content=self._question) if self._question else UNSET
        yield self._frame("run.started", user_message=question)
        head = MessageHead(id=self._message_id, role="assistant")
        yield self._frame("message.started", message=head)

    def _delta(self, text: str) -> Iterator[bytes]:
        if text:
            yield self._frame("assistant.delta", delta=text)
        elif self._text.diverged and (diverged := self._text.take_divergence()):
            yield self._frame("assistant.restarted", content=diverged[0])
            yield from self._delta(diverged[1])

    def _started(self, event: ToolStarted) -> bytes:
        call = event.call
        if self._keyed_turn is not None:
            self._keyed_turn.acted = True
        self._tools[call.id] = (call.name, self._clock.monotonic())
        preview = one_line(bytes(call.args).decode("utf-8", "replace"), MAX_PREVIEW)
        return self._frame(
            "tool.started",
            tool=call.name,
            tool_name=call.name,
            tool_call_id=call.id,
            preview=preview,
            args=UNSET if call.broken else call.args,
        )

    def _on_message(self, message: Message) -> Iterator[bytes]:
        self._messages.append(message)
        if isinstance(message, Assistant):
            yield from self._delta(self._text.finish(message))
        elif isinstance(message, Result):
            now = self._clock.monotonic()
            tool, began = self._tools.pop(message.call, ("", now))
            yield self._frame(
                "tool.failed" if message.failed else "tool.completed",
                tool=tool,
                tool_name=tool,
                tool_call_id=message.call,
                duration=round(now - began, 3),
            )

    def _end(self, done: FinishedCompletion) -> Iterator[bytes]:
        completion = SessionCompletion.from_finished(done)
        yield self._frame(
            "assistant.completed",
            content=completion.message.content,
            completed=completion.completed,
            partial=completion.partial,
            interrupted=completion.error_code == "cancelled",
        )
        if done.standing.failed:
            message = completion.error or "The turn ended early."
            failure = turn_error(completion.error_code or "internal", message)
            code = public_code(completion.error_code or "internal")
            problem = structs.replace(failure.envelope.error, code=code)
            yield self._frame("error", message=message, code=code, error=problem)
        else:
            yield self._frame(
                "run.completed",
                usage=completion.usage,
                completed=completion.completed,
                partial=completion.partial,
                model=completion.model,
                provider=completion.provider,
            )
        yield self._frame("done")

    def _frame(self, name: str, /, **fields: object) -> bytes:
        self._number += 1
        event = ChatEvent(
            session_id=self._label.session,
            run_id=self._label.id,
            seq=self._number,
            ts=self._clock.now().timestamp(),
            message_id=self._message_id,
        )
        body = msgspec.json.encode(structs.replace(event, **fields))
        return b"event: %b\ndata: %b\n\n" % (name.encode(), body)


class SessionFollower:
    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def events(self, request: web.Request) -> web.StreamResponse:
        after = read_after(request, "A message number")
        app = self._context.app(request)
        session = await get_session(app, request.match_info["session_id"])
        return await stream_events(self._context, request, self._frames(app, session.id, after))

    async def _frames(self, app: App, session: str, after: int) -> AsyncGenerator[bytes]:
        archive, position = app.store.archive_for(OWNER), after
        tools = called_tools(await archive.messages(session)) if after else {}
        while True:
            rows = (await archive.messages(session, position))[:MAX_BATCH]
            if rows:
                position = rows[-1].seq
                tools |= called_tools(rows)
                yield b"".join(
                    b"id: %d\nevent: message\ndata: %b\n\n"
                    % (row.seq, msgspec.json.encode(message_object(session, row, tools)))
                    for row in rows
                )
            elif await find_session(app, session) is None:
                yield SESSION_DELETED
                return
            else:
                await self._context.clock.sleep(POLL_INTERVAL)
