"""What hooks are told: the events of the gateway, with who, where and what was said."""

from collections.abc import Iterable

from msgspec import Struct, structs

from hermes.gateway.hooks import COMMAND, Hooks
from hermes.gateway.letters import Letter, platform_of
from hermes.schema.events import Answered, Asked, Event, RunEnded, RunStarted, Said
from hermes.schema.messages import Assistant, text_of

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
