"""What the terminal UI asks of whoever brings it together with an agent."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Media, Text
from hermes.schema.sessions import StoredMessage

CANCELLED = "cancelled"
"""The code of the error for what somebody did not want any more."""

MessageParts: TypeAlias = tuple[Text | Media, ...]


class Greeting(Struct, frozen=True, kw_only=True):
    """What there is to know at the beginning; `commands` have what each is for."""

    model: str
    folder: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    commands: Mapping[str, str] = {}
    trouble: str = ""
    hint: str = ""


class ConversationState(Struct, frozen=True, kw_only=True):
    """The session as it is: its model, that model's room in tokens, what holds commands back.

    `busy` says what words do that are said while a turn runs. With `yolo` nothing is asked for;
    `behind` is how much work goes on in the background.
    """

    session: str
    started: bool = False
    model: str = ""
    window: int = 0
    sandbox: str = ""
    busy: str = ""
    yolo: bool = False
    background_jobs: int = 0


class TextReply(Struct, frozen=True):
    """Something to read; first the screen is emptied, or the clipboard filled, if it says so."""

    text: str
    clear: bool = False
    clip: str = ""
    undone: int = 0
    """How many turns count no more."""


class SubmitReply(Struct, frozen=True):
    """Something to say to the agent in the person's name; `told` is for the person."""

    parts: MessageParts
    told: str = ""
    undone: int = 0


class ResumedReply(Struct, frozen=True):
    """The talk goes on in another session, which has a past; `told` says in which."""

    told: str


class QuitReply(Struct, frozen=True):
    """The person wants to go."""


class NotACommand(Struct, frozen=True):
    """It was no command: it is to be said as it stands."""


class ScreenReply(Struct, frozen=True):
    """Something to do with the screen, in a word: redraw, times, statusbar or compose.

    What is switched becomes `on` or `off`, or else the other; what is composed begins with the
    words.
    """

    what: str
    words: str = ""


CommandReply: TypeAlias = (
    TextReply | SubmitReply | ResumedReply | QuitReply | NotACommand | ScreenReply
)


class RecentHistory(Struct, frozen=True, kw_only=True):
    """The end of a session; `more` messages stand before it.

    A turn that nobody ended has the place of its last message in `cut`; `asked` are the times at
    which somebody had been asked something.
    """

    rows: tuple[StoredMessage, ...] = ()
    cut: frozenset[int] = frozenset()
    asked: tuple[datetime, ...] = ()
    more: int = 0


class SessionOption(Struct, frozen=True, kw_only=True):
    """A session to go back to; `found` is where the words that were looked for stand in it."""

    id: str
    about: str
    messages: int
    last_at: datetime
    found: str = ""


class ModelOption(Struct, frozen=True, kw_only=True):
    """A model to choose; without a name, what is wrong with its provider."""

    provider: str
    model: str = ""
    trouble: str = ""


class TuiClient(Protocol):
    """Every method waits for its end and raises a `HermesError` when it cannot be done.

    `open` comes first; until it is done, `hello` and `now` say nothing yet. One thing at a time,
    except `answer`, `steer`, `interrupt`, `sessions` and `models`, which may be called from
    another thread while a turn goes on.
    """

    @property
    def greeting(self) -> Greeting: ...

    @property
    def state(self) -> ConversationState: ...

    def open(self) -> None:
        """Until there is somebody to talk to."""
        ...

    def submit(self, parts: MessageParts, show: Callable[[Event], None]) -> Outcome:
        """One turn; `show` is called by the thread that waits here."""
        ...

    def answer(self, question: str, words: str) -> None: ...

    def steer(self, word: str, text: str) -> None:
        """Words to the turn, under an id of the caller's own; told as `Said` once it heard them."""
        ...

    def has_news(self) -> bool:
        """Whether something came in by itself; no parts at all ask about it."""
        ...

    def command(self, line: str) -> CommandReply: ...

    def recent_history(self) -> RecentHistory:
        """What was said and done in this session until now, as far as it is worth showing."""
        ...

    def cost(self, ended: RunEnded) -> float | None:
        """What a run cost in dollars; None when nobody knows."""
        ...

    def interrupt(self) -> None: ...

    def compose_text(self, draft: str) -> str:
        """What the person made of it in their editor, which has the terminal meanwhile."""
        ...

    def sessions(self, words: str) -> Sequence[SessionOption]:
        """Those that were active last, or those that fit the words."""
        ...

    def models(self) -> Sequence[ModelOption]: ...
