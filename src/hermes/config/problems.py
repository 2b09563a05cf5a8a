"""Problems in a config file, with position and hint."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from hermes.config.values import KeyPath, format_path
from hermes.kit.errors import ConfigError


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Problem(Struct, frozen=True, kw_only=True):
    """A problem; `line` and `column` start at one, zero if unknown."""

    severity: Severity
    file: Path
    message: str
    path: KeyPath = ()
    line: int = 0
    column: int = 0
    hint: str = ""

    @property
    def key(self) -> str:
        return format_path(self.path)

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}, column {self.column}" if self.line else self.file
        if not self.line and self.message.startswith(tuple(f"{self.file}{end}" for end in " ,:")):
            # The message already begins with the file name.
            return self.message
        return f"{place}: {self.key}: {self.message}" if self.path else f"{place}: {self.message}"


class Finding(Struct, frozen=True, kw_only=True):
    """A problem whose position in the file is not known yet."""

    severity: Severity
    path: KeyPath
    message: str
    hint: str = ""


def as_error(problems: Sequence[Problem], *, hint: str = "") -> ConfigError:
    """Combine all errors, one per line, with the given hint or the first one's."""
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    hints = [hint, *(problem.hint for problem in errors), "Correct it with: hermes config edit"]
    return ConfigError(
        "\n".join(str(problem) for problem in errors), hint=next(filter(None, hints))
    )
