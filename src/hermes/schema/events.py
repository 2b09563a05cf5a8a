"""Events of a run. Slow readers may drop deltas, but not facts."""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from hermes.schema.messages import Assistant, Result, ToolCall, Usage, User
from hermes.schema.questions import Question
from hermes.schema.tools import Effect


class Outcome(StrEnum):
    DONE = "done"
    CANCELLED = "cancelled"
    EXHAUSTED = "exhausted"
    FAILED = "failed"


class RunStarted(Struct, frozen=True, tag="run_started"):
    run: str
    session: str


class TextDelta(Struct, frozen=True, tag="text_delta", gc=False):
    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning_delta", gc=False):
    text: str


class StreamReset(Struct, frozen=True, tag="stream_reset"):
    """The answer restarts: discard the deltas since the last message."""

    reason: str


class Notice(Struct, frozen=True, tag="notice", omit_defaults=True):
    """One line for people: waiting for a provider, changing to a fallback model.

    A `passing` one is transient: it ends with the next event. A `refused` one says that something
    was not done because no one could be asked for approval.
    """

    text: str
    passing: bool = False
    refused: bool = False


class MessageAdded(Struct, frozen=True, tag="said"):
    """A message was added; it is already durable."""

    message: User | Assistant | Result


class ToolStarted(Struct, frozen=True, tag="tool_started"):
    call: ToolCall
    effect: Effect


class ToolProgress(Struct, frozen=True, tag="tool_progress"):
    call: str
    text: str


class QuestionAsked(Struct, frozen=True, tag="asked"):
    """The turn waits for the user; the question is durable."""

    question: Question


class QuestionAnswered(Struct, frozen=True, tag="answered"):
    """`answer` is a choice or text; empty if the question expired."""

    question: str
    answer: str = ""
    by: str = ""


class RunEnded(Struct, frozen=True, tag="run_ended"):
    """The terminal event of a run. `code` is an error code, `reason` a text for the user.

    `retry_after` are the seconds after which a provider accepts requests again, if it said so.
    """

    run: str
    outcome: Outcome
    reason: str = ""
    code: str = ""
    usage: Usage = Usage()
    steps: int = 0
    retry_after: float | None = None


Delta: TypeAlias = TextDelta | ReasoningDelta | StreamReset | Notice | ToolProgress
Fact: TypeAlias = (
    RunStarted | MessageAdded | ToolStarted | QuestionAsked | QuestionAnswered | RunEnded
)
Event: TypeAlias = Delta | Fact
