"""What a turn may have to ask a person before it goes on."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

HERE = "you, in the terminal"
"""The `origin` of what the owner asked for at this machine's terminal."""


class Asking(StrEnum):
    """Whether leave is asked for, or an answer that only a person knows."""

    APPROVAL = "approval"
    CLARIFY = "clarify"


class Choice(StrEnum):
    """What can be said to a wish: for this time, for the session, from now on, or not at all."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    DENY = "deny"


class Question(Struct, frozen=True, kw_only=True):
    """One question that waits. `subject` is shown exactly as it is: the command, the path.

    `reason` is the model's, `origin` says on whose behalf; `choices` is empty when any words
    will do. `asked` is who may answer, besides the owner; `elsewhere` says that it was put to
    the owner in a chat of theirs.
    """

    id: str
    kind: Asking
    session: str
    run: str
    text: str
    subject: str = ""
    reason: str = ""
    origin: str = ""
    choices: tuple[str, ...] = ()
    asked: str = ""
    elsewhere: bool = False
    until: datetime
