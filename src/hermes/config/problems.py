"""What is wrong with a config file, said so that it can be found and put right."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from hermes.config.key_paths import KeyPath, format_path
from hermes.kit.errors import ConfigError


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Problem(Struct, frozen=True, kw_only=True):
    """One finding. `line` and `column` count from one; zero when there is no such place."""

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
            # What cannot be read at all is told with its name by whoever tried.
            return self.message
        return f"{place}: {self.key}: {self.message}" if self.path else f"{place}: {self.message}"


class Finding(Struct, frozen=True, kw_only=True):
    """A problem before it is known where in the file it stands."""

    severity: Severity
    path: KeyPath
    message: str
    hint: str = ""


def as_error(problems: Sequence[Problem], *, hint: str = "") -> ConfigError:
    """All errors in one: a line each, and the advice given or that of the first one."""
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    advice = [hint, *(problem.hint for problem in errors), "Correct it with: hermes config edit"]
    return ConfigError(
        "\n".join(str(problem) for problem in errors), hint=next(filter(None, advice))
    )
