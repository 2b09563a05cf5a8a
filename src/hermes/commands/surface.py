"""What a command needs of the surface it is typed on: who types, where, and what goes on there."""

from enum import Enum, StrEnum, auto
from typing import Protocol

from msgspec import Struct

from hermes.kit.text import plural
from hermes.ports.store import SessionArchive
from hermes.schema.errors import UsageError
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session, SessionChange
from hermes.session.conversation import Conversation


class Surface(Enum):
    TERMINAL = auto()
    CHAT = auto()


class BusyMode(StrEnum):
    """What something that is said does while a turn is running."""

    INTERRUPT = "interrupt"
    QUEUE = "queue"
    STEER = "steer"
    COLLECT = "collect"


class ConversationActivity(Struct, frozen=True, kw_only=True):
    """What the session is doing; `seconds` since its turn began."""

    running: bool = False
    seconds: float = 0.0
    waiting: int = 0


class StopResult(Struct, frozen=True, kw_only=True):
    """A turn that was ended, and messages that were set aside.

    `says_so` when the turn itself tells the person about its end; `lingers` when that takes a
    while, because something it started does not end at once.
    """

    running: bool = False
    waiting: int = 0
    says_so: bool = False
    lingers: bool = False


class SwitchedSession(Struct, frozen=True):
    """The session in which a talk goes on, and how many messages were set aside for that."""

    session: Session
    waiting: int = 0

    @property
    def aside(self) -> str:
        """A sentence for whoever wrote them, with a space before it; empty when nobody did."""
        return f" {set_aside_text(self.waiting)}." if self.waiting else ""


def set_aside_text(messages: int) -> str:
    return f"Set aside {plural(messages, 'waiting message')}"


class ConversationControl(Protocol):
    """The turns and sessions of one talk, as its surface runs them."""

    def activity(self) -> ConversationActivity: ...

    async def stop(self, run: str = "") -> StopResult:
        """End what is running, or the run of that name and no other."""
        ...

    async def begin(self, title: str) -> SwitchedSession:
        """A new session takes the place of the present one, and of what waits there."""
        ...

    async def enter(self, session: Session) -> SwitchedSession:
        """Go on with another session here. Raises `SessionBusy` while it is at work elsewhere."""
        ...

    def manner(self) -> BusyMode | None:
        """What is done with words while a turn runs; None when nothing can be said meanwhile."""
        ...

    def change_manner(self, manner: BusyMode) -> None: ...


class LocalControl:
    """A talk that one process holds with one person, a message at a time."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def activity(self) -> ConversationActivity:
        return ConversationActivity(running=self._conversation.running)

    async def stop(self, run: str = "") -> StopResult:
        return StopResult(running=self._conversation.interrupt())

    async def begin(self, title: str) -> SwitchedSession:
        self._conversation.start_new()
        if title:
            await self._conversation.change(SessionChange(title=title))
        return SwitchedSession(self._conversation.session)

    async def enter(self, session: Session) -> SwitchedSession:
        await self._conversation.resume(session.id)
        return SwitchedSession(session)

    def manner(self) -> BusyMode | None:
        return None

    def change_manner(self, manner: BusyMode) -> None:
        raise UsageError("Nothing can be said here while a turn is running.")


class TerminalAbility(Enum):
    """What a terminal can do for whoever sits at it."""

    CLEAR = auto()
    COPY = auto()
    PROGRESS = auto()
    """Showing more or less of the tools' work."""
    LOOKS = auto()
    """What `Looks` names."""


class ScreenAction(StrEnum):
    """What a terminal does with its own screen; only it knows how things stand there."""

    REDRAW = "redraw"
    TIMES = "times"
    STATUSBAR = "statusbar"
    COMPOSE = "compose"
    """Have something written in the person's editor, then to be said."""


class Person(Struct, frozen=True, kw_only=True):
    """Who types, as the platform knows them."""

    id: str = ""
    name: str = ""


class CommandCaller(Struct, frozen=True, kw_only=True):
    """Where a command is typed and by whom.

    `permitted` are the commands that the person may use there, by their own names (None: all);
    `archive` holds the sessions that this person may see, which in a shared chat are not
    those of the talk itself. `question` is the id of what the post asks that is replied to.
    """

    surface: Surface = Surface.TERMINAL
    person: Person = Person()
    address: Address | None = None
    principal: str = OWNER
    platform: str = ""
    permitted: frozenset[str] | None = None
    archive: SessionArchive | None = None
    work: ConversationControl | None = None
    abilities: frozenset[TerminalAbility] = frozenset()
    question: str = ""
