"""Explain a failed turn to the user in a chat.

Only the owner sees the error itself: it may name addresses, settings and shell commands. Others
get a general message, and the details are in the log.
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
    TimedOut,
    Unreachable,
    UsageError,
)
from hermes.schema.scope import Role

INTERNAL_ERROR = "Hermes had an internal error. See the log for details."
OWNER_MUST_FIX = (
    "I could not answer because of a problem that only my owner can fix. Details are in the log."
)
MODEL_UNREACHABLE = "My model is not reachable right now. Try again later."
INTERRUPTED = "I was interrupted before I could answer. Ask again."
SPEND_LIMIT_REACHED = "My spending limit has been reached. Try again later, or ask my owner."
STEP_LIMIT_REACHED = "The step limit was reached."
UNFINISHED = "The answer is incomplete: it could not be finished."
SHELL_NOTE = " (Run that in a shell on my machine.)"

STEP_LIMIT_CODE = "steps"
_PUBLIC_CODES = frozenset({UsageError.code, "loop"})
"""Codes whose message is about the request itself and can be shown to anyone."""
_PUBLIC_MESSAGES: Mapping[str, str] = {
    RateLimited.code: MODEL_UNREACHABLE,
    Overloaded.code: MODEL_UNREACHABLE,
    Unreachable.code: MODEL_UNREACHABLE,
    TimedOut.code: MODEL_UNREACHABLE,
    **dict.fromkeys((SessionBusy.code, LeaseLost.code, "interrupted", "cancelled"), INTERRUPTED),
    SpendCapReached.code: SPEND_LIMIT_REACHED,
    ContextTooLong.code: "This conversation is too long for my model. Use /new or ask for less.",
    PolicyRefused.code: "My model declined to answer this. Try rephrasing it.",
}
_SHELL_COMMAND = re.compile(r"(?<![\w/.-])hermes(?= (?!profile\b|-p\b)[a-z-])")


def with_profile_flag(text: str, profile: str) -> str:
    """Add `-p NAME` to shell commands in the text, unless the profile is the default one."""
    return text if profile == DEFAULT_PROFILE else _SHELL_COMMAND.sub(f"hermes -p {profile}", text)


def limit_message(code: str, reason: str, role: Role) -> str:
    """Return the note below an answer that was cut by a limit."""
    if role is Role.OWNER:
        return reason
    return STEP_LIMIT_REACHED if code == STEP_LIMIT_CODE else UNFINISHED


def failure_message(code: str, reason: str, role: Role) -> str:
    if not reason:
        return INTERNAL_ERROR
    if role is Role.OWNER:
        return reason + SHELL_NOTE if _SHELL_COMMAND.search(reason) else reason
    return reason if code in _PUBLIC_CODES else _PUBLIC_MESSAGES.get(code, OWNER_MUST_FIX)
