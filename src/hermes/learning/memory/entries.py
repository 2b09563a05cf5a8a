"""The format of the two memory files: entries of plain text, separated by § lines."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from hermes.kit.injection_scan import injection_reason

SEPARATOR = "\n§\n"
MEMORY_FOLDER = "memories"


class MemoryTarget(StrEnum):
    """The agent's own notes, or what it knows about the user."""

    MEMORY = "memory"
    USER = "user"

    @property
    def file(self) -> str:
        return f"{MEMORY_FOLDER}/{self.upper()}.md"


class MemoryLimits(Struct, frozen=True):
    """Maximum characters per file, including separators."""

    memory: int = 2200
    user: int = 1375

    def of(self, target: MemoryTarget) -> int:
        return self.memory if target is MemoryTarget.MEMORY else self.user


def split_entries(text: str) -> list[str]:
    return [entry for part in text.split(SEPARATOR) if (entry := part.strip())]


def join_entries(entries: Sequence[str]) -> str:
    return SEPARATOR.join(entries)


def usage_label(entries: Sequence[str], limit: int) -> str:
    """As shown to the model: `1% — 30/2,200 chars`."""
    size = len(join_entries(entries))
    share = 100 * size // limit if limit else 100
    return f"{share}% — {size:,}/{limit:,} chars"


MemoryAction = Literal["add", "replace", "remove"]


class MemoryOperation(Struct, frozen=True, kw_only=True):
    """`old_text` is part of exactly one entry: the one to replace or remove."""

    action: MemoryAction
    content: str = ""
    old_text: str = ""


class InvalidOperation(Exception):
    """The operation cannot be done; the message tells the model what to do instead."""


def apply_operations(entries: Sequence[str], operations: Sequence[MemoryOperation]) -> list[str]:
    """Return the resulting entries. Raises `InvalidOperation`."""
    after = list(entries)
    for operation in operations:
        after = _apply_one(after, operation)
    return after


def summarize_operations(operations: Sequence[MemoryOperation]) -> str:
    """One line for people."""
    lines = [_operation_line(operation) for operation in operations]
    return "; ".join(lines) if lines else "nothing"


def _apply_one(entries: list[str], operation: MemoryOperation) -> list[str]:
    match operation.action:
        case "add":
            content = _check_content(operation.content)
            return entries if content in entries else [*entries, content]
        case "replace":
            index = _entry_index(entries, operation.old_text)
            content = _check_content(operation.content)
            return [*entries[:index], content, *entries[index + 1 :]]
        case "remove":
            index = _entry_index(entries, operation.old_text)
            return [*entries[:index], *entries[index + 1 :]]


def _check_content(content: str) -> str:
    content = content.strip()
    if not content:
        raise InvalidOperation("`content` is empty.")
    if "\n§\n" in f"\n{content}\n" or content.startswith("§"):
        raise InvalidOperation("An entry cannot contain a line with only §; add several entries.")
    if why := injection_reason(content):
        raise InvalidOperation(f"This was not remembered: it {why}. Rephrase it or leave it out.")
    return content


def _entry_index(entries: Sequence[str], old_text: str) -> int:
    wanted = old_text.strip()
    if not wanted:
        raise InvalidOperation("`old_text` is empty: give a part of the entry.")
    exact = [index for index, entry in enumerate(entries) if entry == wanted]
    found = exact or [index for index, entry in enumerate(entries) if wanted in entry]
    if not found:
        raise InvalidOperation(f"No entry contains {wanted[:80]!r}.")
    if len(found) > 1:
        raise InvalidOperation(
            f"{len(found)} entries contain {wanted[:80]!r}: give a longer part of the one you mean."
        )
    return found[0]


def _operation_line(operation: MemoryOperation) -> str:
    text = operation.content or operation.old_text
    first = text.strip().splitlines()[0] if text.strip() else ""
    return f"{operation.action} “{first[:60]}{'…' if len(first) > 60 else ''}”"
