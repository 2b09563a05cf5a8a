"""What to do with an answer that is no end: empty, cut off, or refused."""

from enum import Enum, auto

from msgspec.structs import replace

from hermes.agent.prompts import prompt_text
from hermes.kit.ids import new_id
from hermes.ports.events import Emit
from hermes.ports.model import Model, ModelRequest
from hermes.schema.errors import ModelError
from hermes.schema.events import StreamReset, TextDelta
from hermes.schema.messages import Assistant, Stop, Text, ToolCall, Trust, Usage, User, final_text

__all__ = [
    "MAX_BAD_ANSWERS",
    "TRUNCATED_ARGUMENTS",
    "AnswerKind",
    "classify_answer",
    "final_text",
    "nudge",
    "runnable_calls",
]

MAX_BAD_ANSWERS = 3
"""How many bad answers in a row one turn bears."""

TRUNCATED_ARGUMENTS = "(cut off)"
"""What stands for the arguments of a call that the output limit cut in two."""


class AnswerKind(Enum):
    FINAL = auto()
    CALLS = auto()
    EMPTY = auto()
    CUT_OFF = auto()
    REFUSED = auto()


def classify_answer(answer: Assistant) -> AnswerKind:
    if answer.stop is Stop.REFUSED:
        return AnswerKind.REFUSED
    if answer.calls:
        return AnswerKind.CALLS
    if answer.stop is Stop.LENGTH:
        return AnswerKind.CUT_OFF
    return AnswerKind.FINAL if answer.text.strip() else AnswerKind.EMPTY


def runnable_calls(answer: Assistant) -> list[ToolCall]:
    """The calls to run; the last one of an answer that was cut off may be only half of itself."""
    calls = answer.calls
    if calls and answer.stop is Stop.LENGTH:
        calls[-1] = replace(calls[-1], broken=TRUNCATED_ARGUMENTS)
    return calls


def nudge(name: str) -> User:
    """A word from the house that makes the model go on."""
    return User(new_id("msg"), (Text(prompt_text(name)),), Trust.PROGRAM)


class AnswerStream:
    """One request. Whatever ends it, `heard` has what there is of the answer."""

    def __init__(self, model: Model, emit: Emit) -> None:
        self._model = model
        self._emit = emit
        self._words: list[str] = []
        self._whole: Assistant | None = None

    async def listen(self, request: ModelRequest) -> Assistant:
        """Pass the deltas on; returns the whole. Raises `ModelError` when there is none."""
        async with self._model.stream(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Assistant):
                    self._whole = chunk
                    break
                if isinstance(chunk, TextDelta):
                    self._words.append(chunk.text)
                elif isinstance(chunk, StreamReset):
                    self._words.clear()
                await self._emit(chunk)
        if self._whole is None:
            what = f"{self._model.name} ended its stream without an answer."
            raise ModelError(what, hint="Try again.")
        return self._whole

    def heard(self) -> Assistant | None:
        """The answer if it came whole, else the words that people may have read already."""
        words = "".join(self._words)
        if self._whole is not None or not words.strip():
            return self._whole
        model = self._model
        parts = (Text(words),)
        return Assistant(new_id("msg"), parts, Stop.CANCELLED, Usage(), model.name, model.provider)
