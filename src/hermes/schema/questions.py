"""What a turn may have to ask a person before it goes on."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

TERMINAL_ORIGIN = "you, in the terminal"
"""The `origin` of what the owner asked for at this machine's terminal."""


class QuestionKind(StrEnum):
    """Whether leave is asked for, or an answer that only a person knows."""

    APPROVAL = "approval"
    CLARIFY = "clarify"


class ApprovalChoice(StrEnum):
    """What can be said to a wish: for this time, for the session, from now on, or not at all."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    DENY = "deny"


class Question(Struct, frozen=True, kw_only=True):
    """One question that waits. `subject` is shown exactly as it is: the command, the path.

    `reason` is the model's, `origin` says on whose behalf; `choices` is empty when any words
    will do. `asked` is who may answer, besides the owner; `elsewhere` says that it was put to
    the owner in a chat of theirs. An answer is waited for `seconds`, by a clock that nobody can
    set; `until` is when that ends if the clock of the machine is not set meanwhile.
    """

    id: str
    kind: QuestionKind
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
    seconds: float = 0.0

    def time_left(self, now: datetime) -> float:
        """Seconds for an answer, as far as `now` can be trusted; never more than were given."""
        left = (self.until - now).total_seconds()
        if not self.seconds:
            return max(left, 0.0)
        return left if 0 < left <= self.seconds else self.seconds
