"""The result of a check: a grade, a sentence and the command that fixes it."""

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.schema.errors import HermesError


class Grade(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    FIXED = "fixed"
    SKIPPED = "skipped"


class Finding(Struct, frozen=True, kw_only=True):
    """`fix` is what the user can do; `repair` does it automatically where that is safe."""

    check: str
    grade: Grade
    says: str
    fix: str = ""
    repair: Callable[[], None] | None = None


class CheckContext(Struct, frozen=True, kw_only=True):
    """A home with valid settings, passed to every check."""

    home: Home
    env: Env
    config: Config
    clock: Clock


def ok_finding(check: str, says: str) -> Finding:
    return Finding(check=check, grade=Grade.OK, says=says)


def warning_finding(
    check: str, says: str, fix: str, repair: Callable[[], None] | None = None
) -> Finding:
    return Finding(check=check, grade=Grade.WARNING, says=says, fix=fix, repair=repair)


def error_finding(
    check: str, says: str, fix: str, repair: Callable[[], None] | None = None
) -> Finding:
    return Finding(check=check, grade=Grade.ERROR, says=says, fix=fix, repair=repair)


def finding_of_error(check: str, error: HermesError, otherwise: str = "") -> Finding:
    """Use the error's own message and hint."""
    return error_finding(check, str(error), error.hint or otherwise)
