"""What hooks are told: the events of the gateway, with who, where and what was said."""

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct, structs

from hermes.gateway.hooks import COMMAND, Hooks
from hermes.gateway.letters import Letter, platform_of
from hermes.schema.events import Answered, Asked, Event, RunEnded, RunStarted, Said
from hermes.schema.messages import Assistant, text_of
from hermes.schema.scope import Scope
from hermes.session.accepting import Turn
from hermes.subagents.words import SUBAGENT

MESSAGE = 500
RESPONSE = 4000
"""How much of what was said hooks are shown."""


class Occasion(Struct, frozen=True, kw_only=True):
    """Where something happened, and on whose account."""

    platform: str = ""
    user_id: str = ""
    chat_id: str = ""
    thread_id: str = ""
    chat_type: str = ""
    session_id: str = ""
    message: str = ""

    def context(self, **more: object) -> dict[str, object]:
        return {**structs.asdict(self), **more}


def occasion_of(letter: Letter, key: str, session: str = "") -> Occasion:
    """`key` is the session key that the letter came in under."""
    parts = key.split(":")
    return Occasion(
        platform=platform_of(letter.address.channel),
        user_id=letter.asker.user,
        chat_id=letter.address.chat,
        thread_id=letter.address.thread or "",
        # agent:<profile>:<platform>:<chat type>:…
        chat_type=parts[3] if len(parts) > 3 else "",
        session_id=session,
        message=text_of(letter.user)[:MESSAGE],
    )


def occasion_elsewhere(turn: Turn, scope: Scope) -> Occasion:
    """Of a turn that came through no channel: from a terminal, or through the API."""
    asked = turn.asked or (turn.taken[-1] if turn.taken else None)
    return Occasion(
        platform=scope.source,
        user_id=scope.asker.user,
        session_id=scope.session,
        message=text_of(asked)[:MESSAGE] if asked else "",
    )


def command_event(name: str) -> str:
    return COMMAND + name


def tell_startup(hooks: Hooks, platforms: Iterable[str]) -> None:
    names = sorted(platforms)
    hooks.emit("gateway:startup", Occasion().context(platforms=names))


def tell_session_start(hooks: Hooks, occasion: Occasion) -> None:
    hooks.emit("session:start", occasion.context())


def tell_session_end(hooks: Hooks, occasion: Occasion, reason: str) -> None:
    """`occasion` names the session that is over."""
    hooks.emit("session:end", occasion.context(reason=reason))


def tell_session_reset(hooks: Hooks, occasion: Occasion, reason: str) -> None:
    """`occasion` names the session that takes the place of the one before it."""
    hooks.emit("session:reset", occasion.context(reason=reason))


class Onlooking:
    """Tells hooks of turns that no channel brought; those of `channels` are told by their actors.

    What a subagent does is part of the turn that it works for.
    """

    def __init__(self, hooks: Hooks, channels: Collection[str]) -> None:
        self._hooks = hooks
        self._channels = channels

    def __call__(self, turn: Turn, scope: Scope) -> Callable[[Event], None] | None:
        brought = scope.address is not None and scope.address.channel in self._channels
        if brought or scope.source == SUBAGENT:
            return None
        occasion = occasion_elsewhere(turn, scope)
        if turn.new:
            tell_session_start(self._hooks, occasion)
        return RunTeller(self._hooks, occasion).hear


class RunTeller:
    """Tells hooks how one run goes, from the events of the run itself."""

    def __init__(self, hooks: Hooks, occasion: Occasion) -> None:
        self._hooks = hooks
        self._occasion = occasion
        self._steps = 0
        self._response = ""

    def hear(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._hooks.emit("agent:start", self._occasion.context())
            case Said(message=Assistant() as message):
                self._step(message)
            case Asked(question=question):
                more = {"command": question.subject, "description": question.text}
                context = self._occasion.context(question_id=question.id, **more)
                self._hooks.emit("pre_approval_request", context)
            case Answered(question=question, answer=answer):
                context = self._occasion.context(question_id=question, choice=answer or "timeout")
                self._hooks.emit("post_approval_response", context)
            case RunEnded(outcome=outcome):
                more = {"response": self._response[:RESPONSE], "outcome": outcome.value}
                self._hooks.emit("agent:end", self._occasion.context(**more))
            case _:
                return

    def _step(self, message: Assistant) -> None:
        self._steps += 1
        self._response = text_of(message) or self._response
        tools = [call.name for call in message.calls]
        more = {"iteration": self._steps, "tool_names": tools}
        self._hooks.emit("agent:step", self._occasion.context(**more))
