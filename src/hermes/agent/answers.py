"""What to do with an answer that is no end: empty, cut off, or refused."""

from enum import Enum, auto

from msgspec.structs import replace

from hermes.agent.prompts import prompt_text
from hermes.agent.spoken import final_text
from hermes.kit.ids import new_id
from hermes.schema.messages import Assistant, Stop, Text, ToolCall, Trust, User

__all__ = ["CUT_OFF", "PATIENCE", "Verdict", "final_text", "judge", "nudge", "runnable_calls"]

PATIENCE = 3
"""How many bad answers in a row one turn bears."""

CUT_OFF = "(cut off)"
"""What stands for the arguments of a call that the output limit cut in two."""


class Verdict(Enum):
    FINAL = auto()
    CALLS = auto()
    EMPTY = auto()
    CUT_OFF = auto()
    REFUSED = auto()


def judge(answer: Assistant) -> Verdict:
    if answer.stop is Stop.REFUSED:
        return Verdict.REFUSED
    if answer.calls:
        return Verdict.CALLS
    if answer.stop is Stop.LENGTH:
        return Verdict.CUT_OFF
    return Verdict.FINAL if answer.text.strip() else Verdict.EMPTY


def runnable_calls(answer: Assistant) -> list[ToolCall]:
    """The calls to run; the last one of an answer that was cut off may be only half of itself."""
    calls = answer.calls
    if calls and answer.stop is Stop.LENGTH:
        calls[-1] = replace(calls[-1], broken=CUT_OFF)
    return calls


def nudge(name: str) -> User:
    """A word from the house that makes the model go on."""
    return User(new_id("msg"), (Text(prompt_text(name)),), Trust.HOUSE)
