"""The roots of the error tree, for the lowest storeys too; `schema/errors.py` has all of it."""

from typing import ClassVar


class HermesError(Exception):
    """`str(error)` says what happened; `hint` says what to do next."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            # So that a traceback, too, ends with what to do next.
            self.add_note(hint)

    @property
    def sentence(self) -> str:
        """What happened and what to do next, in one line."""
        said = str(self).strip()
        if said and self.hint and said[-1] not in ".!?:;…":
            said += "."
        return f"{said} {self.hint}".strip()


class UsageError(HermesError):
    code = "usage"
    exit_code = 2


class ConfigError(HermesError):
    code = "config"
    exit_code = 78


class TemporaryError(ConfigError):
    """The settings may be right: the machine lacks something now, such as space on the disk.

    Handled like a `ConfigError`, except that its exit code lets a service manager start again.
    """

    code = "temporary"
    exit_code = 75
