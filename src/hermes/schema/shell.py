"""The output of a command that a person ran in their own shell."""

from msgspec import Struct


class ShellResult(Struct, frozen=True):
    """What a command that the user typed after `!` printed."""

    command: str
    output: str
    exit_code: int
