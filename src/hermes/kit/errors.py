"""Base errors for the lowest layers; `schema/errors.py` has the whole tree."""

from typing import ClassVar


class HermesError(Exception):
    """`str(error)` says what happened; `hint` says what to do next."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            # So that a traceback also ends with the hint.
            self.add_note(hint)

    @property
    def sentence(self) -> str:
        """What happened and what to do next, in one line."""
        text = str(self).strip()
        if text and self.hint and text[-1] not in ".!?:;…":
            text += "."
        return f"{text} {self.hint}".strip()


class UsageError(HermesError):
    code = "usage"
    exit_code = 2


class ConfigError(HermesError):
    code = "config"
    exit_code = 78


class TemporaryError(ConfigError):
    """A temporary lack of resources, such as a full disk.

    Handled like a `ConfigError`, but its exit code lets a service manager restart the program.
    """

    code = "temporary"
    exit_code = 75
