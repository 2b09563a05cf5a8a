"""The result of a check: a grade, a sentence and the command that fixes it."""

from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from typing import Self

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


class CheckContext(Struct, frozen=True, kw_only=True):
    """A home with valid settings, passed to every check."""

    home: Home
    env: Env
    config: Config
    clock: Clock


class Finding(Struct, frozen=True, kw_only=True):
    """`fix` is what the user can do; `repair` does it automatically where that is safe."""

    check: str
    grade: Grade
    says: str
    fix: str = ""
    repair: Callable[[], None] | None = None

    @property
    def id(self) -> str:
        """The same for the same problem, so that one of several can be fixed."""
        return sha256(f"{self.check} {self.says}".encode()).hexdigest()[:12]

    @property
    def is_fixable(self) -> bool:
        """Whether `--fix` would fix it."""
        return self.repair is not None and self.grade in {Grade.WARNING, Grade.ERROR}

    @classmethod
    def ok(cls, check: str, says: str) -> Self:
        return cls(check=check, grade=Grade.OK, says=says)

    @classmethod
    def warning(
        cls, check: str, says: str, fix: str, repair: Callable[[], None] | None = None
    ) -> Self:
        return cls(check=check, grade=Grade.WARNING, says=says, fix=fix, repair=repair)

    @classmethod
    def error(cls, check: str, says: str, fix: str) -> Self:
        return cls(check=check, grade=Grade.ERROR, says=says, fix=fix)

    @classmethod
    def from_error(cls, check: str, error: HermesError, default_fix: str = "") -> Self:
        """Use the error's own message and hint."""
        return cls.error(check, str(error), error.hint or default_fix)
