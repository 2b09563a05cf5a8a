"""Questions and approval requests of a turn."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field

TERMINAL_ORIGIN = "you, in the terminal"
"""The `origin` of requests from the owner's terminal."""
WEB_ORIGIN = "you, in the dashboard"
"""The `origin` of requests from the owner's web page."""


class QuestionKind(StrEnum):
    """An approval request, or a question to clarify."""

    APPROVAL = "approval"
    CLARIFY = "clarify"


class ApprovalChoice(StrEnum):
    """The answer to an approval request."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    DENY = "deny"


class Question(Struct, frozen=True, kw_only=True):
    """A pending question. `subject` is shown unchanged: the command, the path.

    `reason` is the model's, `origin` says who asked; `choices` is empty if any text is an answer.
    `answerable_by` may answer besides the owner; `elsewhere` means that it was forwarded to the
    owner's chat. The answer has to come within `seconds` of monotonic time; `until` is the same
    deadline by the wall clock, which may be changed meanwhile.
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
    answerable_by: str = field(default="", name="asked")
    elsewhere: bool = False
    until: datetime
    seconds: float = 0.0

    def time_left(self, now: datetime) -> float:
        """Seconds left to answer, never more than the total."""
        left = (self.until - now).total_seconds()
        if not self.seconds:
            return max(left, 0.0)
        return left if 0 < left <= self.seconds else self.seconds
