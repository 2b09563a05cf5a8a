"""Describe the surface a command is typed on: its user, its abilities and its conversation."""

from enum import Enum, auto
from typing import Protocol

from msgspec import Struct

from hermes.kit.text import plural
from hermes.ports.store import SessionArchive
from hermes.schema.errors import UsageError
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session, SessionChange
from hermes.schema.terminal import BusyMode
from hermes.session.conversation import Conversation


class Surface(Enum):
    TERMINAL = auto()
    CHAT = auto()


class ConversationActivity(Struct, frozen=True, kw_only=True):
    """Whether a turn is running, since when, and how many messages are queued."""

    running: bool = False
    seconds: float = 0.0
    queued: int = 0


class StopResult(Struct, frozen=True, kw_only=True):
    """The outcome of `ConversationControl.stop`."""

    running: bool = False  # a turn was stopped
    dropped: int = 0  # queued messages that were dropped
    reports_itself: bool = False  # the turn reports its own end to the user
    is_slow: bool = False  # a child process takes a while to end


class SwitchedSession(Struct, frozen=True):
    """The session in which a conversation continues, and the number of queued messages dropped."""

    session: Session
    dropped: int = 0

    @property
    def dropped_note(self) -> str:
        """A sentence about dropped messages with a leading space, or an empty string."""
        return f" {dropped_text(self.dropped)}." if self.dropped else ""


def dropped_text(messages: int) -> str:
    return f"Dropped {plural(messages, 'queued message')}"


class ConversationControl(Protocol):
    """Control of one conversation's turns and sessions."""

    def activity(self) -> ConversationActivity: ...

    async def stop(self, run: str = "") -> StopResult:
        """Stop the running turn; with `run`, only if it is that run."""
        ...

    async def start_session(self, title: str) -> SwitchedSession:
        """Replace the current session, and its queued messages, with a new one."""
        ...

    async def resume_session(self, session: Session) -> SwitchedSession:
        """Continue another session here. Raises `SessionBusy` if it is in use elsewhere."""
        ...

    def busy_mode(self) -> BusyMode | None:
        """How messages during a turn are handled; None if none can be sent."""
        ...

    def set_busy_mode(self, mode: BusyMode) -> None: ...


class LocalControl:
    """Control of a conversation in this process, one message at a time."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def activity(self) -> ConversationActivity:
        return ConversationActivity(running=self._conversation.running)

    async def stop(self, run: str = "") -> StopResult:
        return StopResult(running=self._conversation.interrupt())

    async def start_session(self, title: str) -> SwitchedSession:
        self._conversation.start_new()
        if title:
            await self._conversation.change(SessionChange(title=title))
        return SwitchedSession(self._conversation.session)

    async def resume_session(self, session: Session) -> SwitchedSession:
        await self._conversation.resume(session.id)
        return SwitchedSession(session)

    def busy_mode(self) -> BusyMode | None:
        return None

    def set_busy_mode(self, mode: BusyMode) -> None:
        raise UsageError("Messages cannot be sent here while a turn is running.")


class TerminalAbility(Enum):
    """What a terminal supports."""

    CLEAR = auto()
    COPY = auto()
    PROGRESS = auto()  # levels of tool progress
    SCREEN = auto()  # the actions in `ScreenAction`


class Person(Struct, frozen=True, kw_only=True):
    """The user as the platform identifies them."""

    id: str = ""
    name: str = ""
    ids: tuple[str, ...] = ()  # all of them


class CommandCaller(Struct, frozen=True, kw_only=True):
    """The user who typed a command, and where."""

    surface: Surface = Surface.TERMINAL
    person: Person = Person()
    address: Address | None = None
    principal: str = OWNER
    platform: str = ""
    account: str = ""  # in a chat: `channel:user`, whatever it is linked with
    direct: bool = False  # whether no one else reads the chat
    permitted: frozenset[str] | None = None  # command names; None: all
    archive: SessionArchive | None = None  # what the user may see, if not the conversation's
    control: ConversationControl | None = None
    abilities: frozenset[TerminalAbility] = frozenset()
    question: str = ""  # id of the approval request this command replies to
