"""The output of a command that a person ran in their own shell."""

from msgspec import Struct


class ShellResult(Struct, frozen=True):
    """The output of a command that the user typed after `!`."""

    command: str
    output: str
    exit_code: int
