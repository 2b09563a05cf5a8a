"""The two files of memory: entries of plain text, joined by a sign of their own."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

BETWEEN = "\n§\n"
FOLDER = "memories"


class Target(StrEnum):
    """Which of the two: the agent's own notes, or what it knows about the person."""

    MEMORY = "memory"
    USER = "user"

    @property
    def file(self) -> str:
        return f"{FOLDER}/{self.upper()}.md"


class Limits(Struct, frozen=True):
    """Characters of each file, signs between entries included."""

    memory: int = 2200
    user: int = 1375

    def of(self, target: Target) -> int:
        return self.memory if target is Target.MEMORY else self.user


def split(text: str) -> list[str]:
    return [entry for part in text.split(BETWEEN) if (entry := part.strip())]


def join(entries: Sequence[str]) -> str:
    return BETWEEN.join(entries)


def usage(entries: Sequence[str], limit: int) -> str:
    """As the model reads it: `1% — 30/2,200 chars`."""
    size = len(join(entries))
    share = 100 * size // limit if limit else 100
    return f"{share}% — {size:,}/{limit:,} chars"
