"""Add `-p NAME` to the commands that hints suggest."""

import re

from hermes.cli.main import VERBS
from hermes.schema.errors import HermesError

_PROFILE_VERBS = [verb for verb in VERBS if verb != "profile"]
_COMMAND = re.compile(rf"(?<![\w/.-])hermes(?= (?:{'|'.join(_PROFILE_VERBS)}|-z)\b)")


def with_profile_flag(text: str, profile: str | None) -> str:
    """The text with `-p NAME` in its commands, if the profile was chosen with that flag."""
    return text if profile is None else _COMMAND.sub(f"hermes -p {profile}", text)


def add_profile_to_hint(error: Exception, profile: str) -> None:
    """Make the commands in the error's hint apply to the profile."""
    if isinstance(error, HermesError):
        error.hint = with_profile_flag(error.hint, profile)
