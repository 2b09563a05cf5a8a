"""What a run tells the world. Deltas may be dropped by a slow reader; facts may not."""

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


class TextDelta(Struct, frozen=True, tag="text_delta"):
    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning_delta"):
    text: str


class StreamReset(Struct, frozen=True, tag="stream_reset"):
    """The answer starts over: forget the deltas since the last message."""

    reason: str


class Notice(Struct, frozen=True, tag="notice", omit_defaults=True):
    """One line for people: waiting for a provider, changing to a fallback model.

    A `passing` one is true only until something else comes.
    """

    text: str
    passing: bool = False


class MessageAdded(Struct, frozen=True, tag="said"):
    """A message exists. Whoever reads this may rely on it being durable."""

    message: User | Assistant | Result


class ToolStarted(Struct, frozen=True, tag="tool_started"):
    call: ToolCall
    effect: Effect


class ToolProgress(Struct, frozen=True, tag="tool_progress"):
    call: str
    text: str


class QuestionAsked(Struct, frozen=True, tag="asked"):
    """The turn waits for a person. The question is on disk."""

    question: Question


class QuestionAnswered(Struct, frozen=True, tag="answered"):
    """It goes on: `answer` is a choice or a person's words; empty when the time ran out."""

    question: str
    answer: str = ""
    by: str = ""


class RunEnded(Struct, frozen=True, tag="run_ended"):
    """The one last word of a run. `code` is an error's code, `reason` a sentence for people."""

    run: str
    outcome: Outcome
    reason: str = ""
    code: str = ""
    usage: Usage = Usage()
    steps: int = 0


Delta: TypeAlias = TextDelta | ReasoningDelta | StreamReset | Notice | ToolProgress
Fact: TypeAlias = (
    RunStarted | MessageAdded | ToolStarted | QuestionAsked | QuestionAnswered | RunEnded
)
Event: TypeAlias = Delta | Fact
