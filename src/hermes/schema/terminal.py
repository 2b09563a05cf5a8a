"""What a terminal shows of a conversation: its state, its history, replies to slash commands."""

from datetime import datetime
from typing import TypeAlias

from msgspec import Struct, field

from hermes.schema.messages import Media, Text
from hermes.schema.sessions import StoredMessage


class ConversationState(Struct, frozen=True, omit_defaults=True):
    """The session, and whether it has any messages; the other fields are for a person."""

    session: str
    started: bool = False
    model: str = ""
    window: int = 0  # of the model, in tokens
    sandbox: str = field(default="", name="wall")
    busy_mode: str = field(default="", name="busy")
    yolo: bool = False  # approvals are off
    background_jobs: int = field(default=0, name="behind")


class RecentHistory(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last turns of a session as stored."""

    rows: tuple[StoredMessage, ...] = ()
    cut: frozenset[int] = frozenset()  # last messages of interrupted turns, by seq
    asked: tuple[datetime, ...] = ()  # when a person was asked something: explains long pauses
    more: int = 0  # number of earlier messages


class TextReply(Struct, frozen=True, tag="told"):
    """Text to show."""

    text: str
    clear: bool = False  # clear the screen first
    clip: str = ""  # text for the clipboard
    undone: int = 0  # number of turns removed from the transcript


class ResumedReply(Struct, frozen=True, tag="back"):
    """The conversation continues in another session; `told` names it."""

    told: str
    recap: str = ""  # its last messages

    @property
    def text(self) -> str:
        return "\n".join(filter(None, (self.told, self.recap)))


class SubmitReply(Struct, frozen=True, tag="ask"):
    """A message to submit in the user's name; `told` is shown to the user."""

    parts: tuple[Text | Media, ...]
    told: str = ""
    undone: int = 0  # number of turns removed from the transcript


class QuitReply(Struct, frozen=True, tag="leave"):
    """Quit."""


class NotACommand(Struct, frozen=True, tag="plain"):
    """The line is not a command and should be submitted as a message."""


class ScreenReply(Struct, frozen=True, tag="screen"):
    """An action on the screen, see `commands.surface`."""

    what: str  # redraw, times, statusbar or compose
    words: str = ""  # `on`, `off` or empty to toggle; for compose the initial text


CommandReply: TypeAlias = (
    TextReply | ResumedReply | SubmitReply | QuitReply | ScreenReply | NotACommand
)
