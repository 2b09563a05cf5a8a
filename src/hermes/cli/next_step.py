"""Commands to type next, for the profile that they are about."""

import re

from hermes.cli.main import VERBS
from hermes.schema.errors import HermesError

_OF_A_PROFILE = [verb for verb in VERBS if verb != "profile"]
_COMMAND = re.compile(rf"(?<![\w/.-])hermes(?= (?:{'|'.join(_OF_A_PROFILE)}|-z)\b)")


def as_typed(text: str, profile: str | None) -> str:
    """The same with `-p NAME` in its commands, when the profile was chosen by that flag."""
    return text if profile is None else _COMMAND.sub(f"hermes -p {profile}", text)


def aim(error: Exception, profile: str) -> None:
    """Let what an error says to do next be done for that profile."""
    if isinstance(error, HermesError):
        error.hint = as_typed(error.hint, profile)
