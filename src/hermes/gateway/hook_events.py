"""Build the events that hooks receive from the gateway."""

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct, structs

from hermes.gateway.hooks import COMMAND_PREFIX, Hooks
from hermes.gateway.messages import InboxMessage
from hermes.schema.events import (
    Event,
    MessageAdded,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunStarted,
)
from hermes.schema.messages import Assistant, text_of
from hermes.schema.scope import Scope, platform_of
from hermes.session.turn_request import TurnRequest
from hermes.subagents.messages import SUBAGENT

MAX_MESSAGE = 500
MAX_RESPONSE = 4000
"""Maximum characters of message and response passed to hooks."""


class EventSource(Struct, frozen=True, kw_only=True):
    platform: str = ""
    user_id: str = ""
    chat_id: str = ""
    thread_id: str = ""
    chat_type: str = ""
    session_id: str = ""
    message: str = ""

    def context(self, **more: object) -> dict[str, object]:
        return {**structs.asdict(self), **more}


def event_source(message: InboxMessage, key: str, session: str = "") -> EventSource:
    """`key` is the session key of the message."""
    parts = key.split(":")
    return EventSource(
        platform=platform_of(message.address.channel),
        user_id=message.asker.user,
        chat_id=message.address.chat,
        thread_id=message.address.thread or "",
        # agent:<profile>:<platform>:<chat type>:…
        chat_type=parts[3] if len(parts) > 3 else "",
        session_id=session,
        message=text_of(message.user)[:MAX_MESSAGE],
    )


def event_source_of_turn(turn: TurnRequest, scope: Scope) -> EventSource:
    """Build the source of a turn without a channel, from a terminal or the API."""
    message = turn.message or (turn.claimed[-1] if turn.claimed else None)
    return EventSource(
        platform=scope.source,
        user_id=scope.asker.user,
        session_id=scope.session,
        message=text_of(message)[:MAX_MESSAGE] if message else "",
    )


def command_event(name: str) -> str:
    return COMMAND_PREFIX + name


def emit_startup(hooks: Hooks, platforms: Iterable[str]) -> None:
    hooks.emit("gateway:startup", EventSource().context(platforms=sorted(platforms)))


def emit_session_start(hooks: Hooks, source: EventSource) -> None:
    hooks.emit("session:start", source.context())


def emit_session_end(hooks: Hooks, source: EventSource, reason: str) -> None:
    """`source` names the ended session."""
    hooks.emit("session:end", source.context(reason=reason))


def emit_session_reset(hooks: Hooks, source: EventSource, reason: str) -> None:
    """`source` names the new session."""
    hooks.emit("session:reset", source.context(reason=reason))


class TurnObserver:
    """Emits hook events for turns without a channel; actors emit those of `channels`.

    Subagents are part of their caller's turn and emit nothing.
    """

    def __init__(self, hooks: Hooks, channels: Collection[str]) -> None:
        self._hooks = hooks
        self._channels = channels

    def __call__(self, turn: TurnRequest, scope: Scope) -> Callable[[Event], None] | None:
        from_channel = scope.address is not None and scope.address.channel in self._channels
        if from_channel or scope.source == SUBAGENT:
            return None
        source = event_source_of_turn(turn, scope)
        if turn.new:
            emit_session_start(self._hooks, source)
        return RunHookEmitter(self._hooks, source).handle_event


class RunHookEmitter:
    def __init__(self, hooks: Hooks, source: EventSource) -> None:
        self._hooks = hooks
        self._source = source
        self._steps = 0
        self._response = ""

    def handle_event(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._hooks.emit("agent:start", self._source.context())
            case MessageAdded(message=Assistant() as message):
                self._steps += 1
                self._response = text_of(message) or self._response
                tools = [call.name for call in message.calls]
                context = self._source.context(iteration=self._steps, tool_names=tools)
                self._hooks.emit("agent:step", context)
            case QuestionAsked(question=question):
                context = self._source.context(
                    question_id=question.id, command=question.subject, description=question.text
                )
                self._hooks.emit("pre_approval_request", context)
            case QuestionAnswered(question=question, answer=answer):
                context = self._source.context(question_id=question, choice=answer or "timeout")
                self._hooks.emit("post_approval_response", context)
            case RunEnded(outcome=outcome):
                response = self._response[:MAX_RESPONSE]
                context = self._source.context(response=response, outcome=outcome.value)
                self._hooks.emit("agent:end", context)
            case _:
                return
