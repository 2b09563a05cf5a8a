"""Commands to type next, for the profile that they are about."""

import re

from hermes.cli.main import VERBS
from hermes.schema.errors import HermesError

_PROFILE_VERBS = [verb for verb in VERBS if verb != "profile"]
_COMMAND = re.compile(rf"(?<![\w/.-])hermes(?= (?:{'|'.join(_PROFILE_VERBS)}|-z)\b)")


def with_profile_flag(text: str, profile: str | None) -> str:
    """The same with `-p NAME` in its commands, when the profile was chosen by that flag."""
    return text if profile is None else _COMMAND.sub(f"hermes -p {profile}", text)


def add_profile_to_hint(error: Exception, profile: str) -> None:
    """Let what an error says to do next be done for that profile."""
    if isinstance(error, HermesError):
        error.hint = with_profile_flag(error.hint, profile)
