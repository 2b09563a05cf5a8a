"""Why a turn failed, in words for whoever asked: what only the owner can mend, only they are told.

An error names addresses, settings and commands for a shell. To a member or a guest these are of no
use, and none of their business; the log has them.
"""

import re
from collections.abc import Mapping

from hermes.config.home import DEFAULT
from hermes.schema.errors import (
    ContextTooLong,
    LeaseLost,
    Overloaded,
    PolicyRefused,
    RateLimited,
    SessionBusy,
    SpendCapReached,
    Unreachable,
    UsageError,
)
from hermes.schema.scope import Role

BROKEN = "Something broke inside Hermes; the log has it."
NOT_YOURS = (
    "I could not answer this: something is wrong that only whoever runs me can put right. "
    "The log there says what."
)
BUSY = "My model cannot be reached just now. Ask again in a while."
BROKEN_OFF = "This was broken off before I had answered. Ask again."
SPENT = "What I may spend on answers is used up for now. Ask again tomorrow, or whoever runs me."
STEPS = "The limit of steps was reached."
UNFINISHED = "The answer ends here: it could not be finished."
THERE = " (That is for a shell on the machine that I run on.)"

OF_STEPS = "steps"
_FOR_EVERYBODY = frozenset({UsageError.code, "loop"})
"""What is said about these is about what was asked, and nothing else."""
_PLAIN: Mapping[str, str] = {
    RateLimited.code: BUSY,
    Overloaded.code: BUSY,
    Unreachable.code: BUSY,
    **dict.fromkeys((SessionBusy.code, LeaseLost.code, "interrupted", "cancelled"), BROKEN_OFF),
    SpendCapReached.code: SPENT,
    ContextTooLong.code: "This conversation has become too long for my model. Ask for less.",
    PolicyRefused.code: "My model declined to answer this. Put it in other words.",
}
_SHELL = re.compile(r"(?<![\w/.-])hermes(?= (?!profile\b|-p\b)[a-z-])")


def for_profile(text: str, profile: str) -> str:
    """The same with `-p NAME` in its commands, where they are about another than the first."""
    return text if profile == DEFAULT else _SHELL.sub(f"hermes -p {profile}", text)


def limit_told_of(code: str, reason: str, role: Role) -> str:
    """What is read below an answer that a limit has cut off."""
    if role is Role.OWNER:
        return reason
    return STEPS if code == OF_STEPS else UNFINISHED


def told_of(code: str, reason: str, role: Role) -> str:
    """What a person in a chat reads when a turn has failed for that reason."""
    if not reason:
        return BROKEN
    if role is Role.OWNER:
        return reason + THERE if _SHELL.search(reason) else reason
    return reason if code in _FOR_EVERYBODY else _PLAIN.get(code, NOT_YOURS)
