"""Why a turn failed, in words for whoever asked: what only the owner can mend, only they are told.

An error names addresses, settings and commands for a shell. To a member or a guest these are of no
use, and none of their business; the log has them.
"""

import re
from collections.abc import Mapping

from hermes.config.home import DEFAULT_PROFILE
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

INTERNAL_ERROR = "Something broke inside Hermes; the log has it."
OWNER_MUST_FIX = (
    "I could not answer this: something is wrong that only whoever runs me can put right. "
    "The log there says what."
)
MODEL_UNREACHABLE = "My model cannot be reached just now. Ask again in a while."
INTERRUPTED = "This was broken off before I had answered. Ask again."
SPEND_LIMIT_REACHED = (
    "What I may spend on answers is used up for now. Ask again tomorrow, or whoever runs me."
)
STEP_LIMIT_REACHED = "The limit of steps was reached."
UNFINISHED = "The answer ends here: it could not be finished."
SHELL_NOTE = " (That is for a shell on the machine that I run on.)"

STEP_LIMIT_CODE = "steps"
_PUBLIC_CODES = frozenset({UsageError.code, "loop"})
"""What is said about these is about what was asked, and nothing else."""
_PUBLIC_MESSAGES: Mapping[str, str] = {
    RateLimited.code: MODEL_UNREACHABLE,
    Overloaded.code: MODEL_UNREACHABLE,
    Unreachable.code: MODEL_UNREACHABLE,
    **dict.fromkeys((SessionBusy.code, LeaseLost.code, "interrupted", "cancelled"), INTERRUPTED),
    SpendCapReached.code: SPEND_LIMIT_REACHED,
    ContextTooLong.code: "This conversation has become too long for my model. Ask for less.",
    PolicyRefused.code: "My model declined to answer this. Put it in other words.",
}
_SHELL_COMMAND = re.compile(r"(?<![\w/.-])hermes(?= (?!profile\b|-p\b)[a-z-])")


def with_profile_flag(text: str, profile: str) -> str:
    """The same with `-p NAME` in its commands, where they are about another than the first."""
    return text if profile == DEFAULT_PROFILE else _SHELL_COMMAND.sub(f"hermes -p {profile}", text)


def limit_message(code: str, reason: str, role: Role) -> str:
    """What is read below an answer that a limit has cut off."""
    if role is Role.OWNER:
        return reason
    return STEP_LIMIT_REACHED if code == STEP_LIMIT_CODE else UNFINISHED


def failure_message(code: str, reason: str, role: Role) -> str:
    """What a person in a chat reads when a turn has failed for that reason."""
    if not reason:
        return INTERNAL_ERROR
    if role is Role.OWNER:
        return reason + SHELL_NOTE if _SHELL_COMMAND.search(reason) else reason
    return reason if code in _PUBLIC_CODES else _PUBLIC_MESSAGES.get(code, OWNER_MUST_FIX)
