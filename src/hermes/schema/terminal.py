"""Data that surfaces show about a conversation: state, history, replies to slash commands."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, field

from hermes.schema.messages import Media, Text
from hermes.schema.sessions import StoredMessage


class ErrorInfo(Struct, frozen=True):
    """An error as shown to people: kind, what happened, and what to do next."""

    code: str
    message: str
    hint: str = ""


class Greeting(Struct, frozen=True, kw_only=True):
    """Shown when a conversation opens; model, commands, trouble and recap only to a person."""

    model: str
    folder: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    commands: Mapping[str, str] = {}  # summary by name
    trouble: ErrorInfo | None = None
    recap: tuple[tuple[str, str], ...] = ()


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
    failed: Mapping[int, str] = {}  # why turns have no answer, by the seq of their last message
    # When a person was asked something, which explains long pauses.
    questions_at: tuple[datetime, ...] = field(default=(), name="asked")
    more: int = 0  # number of earlier messages


class BusyMode(StrEnum):
    """What happens to a message that arrives while a turn is running."""

    INTERRUPT = "interrupt"
    """Stop the turn and submit the message."""
    QUEUE = "queue"
    """Queue the message as a separate turn."""
    STEER = "steer"
    """Pass the message to the turn at its next step."""
    COLLECT = "collect"
    """Queue the message; all queued messages share one turn."""


class ScreenAction(StrEnum):
    """An action that a terminal performs on its own screen."""

    REDRAW = "redraw"
    TIMESTAMPS = "times"
    STATUSBAR = "statusbar"
    COMPOSE = "compose"
    """Write a message in the user's editor and submit it."""
    THEME = "theme"
    PASTE = "paste"
    """Attach the image in the clipboard to the next message."""
    OUTPUT = "output"
    """Show a long output in a pager."""


class TextReply(Struct, frozen=True, tag="told", omit_defaults=True):
    """Text to show; the other fields are for terminals that support them."""

    text: str
    clear: bool = False  # clear the screen first
    clipboard: str = field(default="", name="clip")
    progress: str = ""  # new level of tool progress
    undone: int = 0  # number of turns removed from the transcript
    is_diff: bool = field(default=False, name="diff")


class ResumedReply(Struct, frozen=True, tag="back", omit_defaults=True):
    """The conversation continues in another session."""

    message: str = field(name="told")
    recap: str = ""  # its last messages

    @property
    def text(self) -> str:
        return "\n".join(filter(None, (self.message, self.recap)))


class SubmitReply(Struct, frozen=True, tag="ask", omit_defaults=True):
    """A message to submit to the agent in the user's name."""

    parts: tuple[Text | Media, ...]
    busy_mode: BusyMode | None = None  # overrides the default while a turn is running
    notice: str = field(default="", name="told")  # shown to the user
    undone: int = 0  # number of turns removed from the transcript


class QuitReply(Struct, frozen=True, tag="leave"):
    """Leave the program."""


class ScreenReply(Struct, frozen=True, tag="screen", omit_defaults=True):
    """An action on the terminal's screen."""

    action: ScreenAction = field(name="what")
    argument: str = field(default="", name="words")
    """`on`, `off` or empty to toggle; for COMPOSE the initial text; for THEME its name.

    For OUTPUT a number: 1 is the last one.
    """


class NotACommand(Struct, frozen=True, tag="plain"):
    """The line is not a command and should be submitted as a message."""


CommandReply: TypeAlias = TextReply | ResumedReply | SubmitReply | QuitReply | ScreenReply
"""What a slash command returns, on every surface."""
LineReply: TypeAlias = CommandReply | NotACommand
"""The result of a line typed at a terminal."""
