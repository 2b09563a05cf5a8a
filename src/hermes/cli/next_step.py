"""Commands to type next, for the profile that they are about."""

import re

from hermes.cli.main import VERBS

_COMMAND = re.compile(rf"(?<![\w/.-])hermes(?= (?:{'|'.join(VERBS)}|-z)\b)")


def as_typed(text: str, profile: str | None) -> str:
    """The same with `-p NAME` in its commands, when the profile was chosen by that flag."""
    return text if profile is None else _COMMAND.sub(f"hermes -p {profile}", text)
