"""The interface between the terminal UI and the agent."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Media, Text
from hermes.schema.sessions import StoredMessage

CANCELLED = "cancelled"
"""Error code of a cancelled request."""

MessageParts: TypeAlias = tuple[Text | Media, ...]


class Greeting(Struct, frozen=True, kw_only=True):
    """What to show at the start."""

    model: str
    folder: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    commands: Mapping[str, str] = {}  # summary by name
    error: str = ""
    hint: str = ""


class ConversationState(Struct, frozen=True, kw_only=True):
    """The current state of the session."""

    session: str
    started: bool = False
    model: str = ""
    window: int = 0  # of the model, in tokens
    sandbox: str = ""  # the sandbox
    busy_mode: str = ""  # a `BusyMode`
    yolo: bool = False  # approvals are off
    background_jobs: int = 0  # background jobs


class TextReply(Struct, frozen=True):
    """Text to show."""

    text: str
    clear: bool = False  # clear the screen first
    clip: str = ""  # text for the clipboard
    undone: int = 0  # number of turns removed from the transcript


class SubmitReply(Struct, frozen=True):
    """A message to submit in the user's name; `told` is shown to the user."""

    parts: MessageParts
    told: str = ""
    undone: int = 0


class ResumedReply(Struct, frozen=True):
    """The conversation continues in another session; `told` names it."""

    told: str


class QuitReply(Struct, frozen=True):
    """Quit."""


class NotACommand(Struct, frozen=True):
    """The line is not a command and should be submitted as a message."""


class ScreenReply(Struct, frozen=True):
    """An action on the screen."""

    what: str  # redraw, times, statusbar or compose
    words: str = ""  # `on`, `off` or empty to toggle; for compose the initial text


CommandReply: TypeAlias = (
    TextReply | SubmitReply | ResumedReply | QuitReply | NotACommand | ScreenReply
)


class RecentHistory(Struct, frozen=True, kw_only=True):
    """The last messages of a session."""

    rows: tuple[StoredMessage, ...] = ()
    cut: frozenset[int] = frozenset()  # last messages of interrupted turns, by seq
    asked: tuple[datetime, ...] = ()  # times at which the user was asked a question
    more: int = 0  # number of earlier messages


class SessionOption(Struct, frozen=True, kw_only=True):
    """A session to resume; `found` is an excerpt with the search text."""

    id: str
    title: str
    messages: int
    last_at: datetime
    snippet: str = ""


class ModelOption(Struct, frozen=True, kw_only=True):
    """A model to choose; without a model, `trouble` says what is wrong with the provider."""

    provider: str
    model: str = ""
    error: str = ""


class TuiClient(Protocol):
    """A blocking connection to the agent; methods raise `HermesError`.

    `open` comes first; `greeting` and `state` are empty until it returns. One call at a time,
    except `answer`, `steer`, `interrupt`, `sessions` and `models`, which may be called from another
    thread while a turn is running.
    """

    @property
    def greeting(self) -> Greeting: ...

    @property
    def state(self) -> ConversationState: ...

    def open(self) -> None:
        """Wait until the agent is ready."""
        ...

    def submit(self, parts: MessageParts, show: Callable[[Event], None]) -> Outcome:
        """Run one turn; `show` is called in the calling thread."""
        ...

    def answer(self, question: str, text: str) -> None: ...

    def steer(self, message_id: str, text: str) -> None:
        """Send a message to the turn under the caller's id; the turn echoes it once received."""
        ...

    def has_news(self) -> bool:
        """Whether a report is waiting; submit no parts to have it processed."""
        ...

    def command(self, line: str) -> CommandReply: ...

    def recent_history(self) -> RecentHistory:
        """The messages of the session that are worth showing."""
        ...

    def cost(self, ended: RunEnded) -> float | None:
        """The cost of a run in dollars; None if unknown."""
        ...

    def interrupt(self) -> None: ...

    def compose_text(self, draft: str) -> str:
        """Edit the draft in the user's editor, which takes over the terminal."""
        ...

    def sessions(self, query: str) -> Sequence[SessionOption]:
        """The most recent sessions, or those that match the text."""
        ...

    def models(self) -> Sequence[ModelOption]: ...
