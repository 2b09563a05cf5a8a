"""What a check has found: how bad it is, in one sentence, and the next command."""

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
    """`fix` is what a person types or does; `mend` does it, where that cannot harm anything."""

    check: str
    grade: Grade
    says: str
    fix: str = ""
    mend: Callable[[], None] | None = None


class CheckContext(Struct, frozen=True, kw_only=True):
    """A home whose settings could be read."""

    home: Home
    env: Env
    config: Config
    clock: Clock


def ok_finding(check: str, says: str) -> Finding:
    return Finding(check=check, grade=Grade.OK, says=says)


def warning_finding(
    check: str, says: str, fix: str, mend: Callable[[], None] | None = None
) -> Finding:
    return Finding(check=check, grade=Grade.WARNING, says=says, fix=fix, mend=mend)


def error_finding(
    check: str, says: str, fix: str, mend: Callable[[], None] | None = None
) -> Finding:
    return Finding(check=check, grade=Grade.ERROR, says=says, fix=fix, mend=mend)


def finding_of_error(check: str, error: HermesError, otherwise: str = "") -> Finding:
    """An error of ours already says what happened and what to do next."""
    return error_finding(check, str(error), error.hint or otherwise)
