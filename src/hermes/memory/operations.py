"""Changes to a list of entries, several at once, all or none."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from hermes.changes.scan import suspicion

Action = Literal["add", "replace", "remove"]


class Operation(Struct, frozen=True, kw_only=True):
    """`old_text` is a part of exactly one entry: the one to replace or remove."""

    action: Action
    content: str = ""
    old_text: str = ""


class Unfit(Exception):
    """The operation cannot be done; the sentence says what the model should do instead."""


def applied(entries: Sequence[str], operations: Sequence[Operation]) -> list[str]:
    """The entries afterwards. Raises `Unfit`."""
    after = list(entries)
    for operation in operations:
        after = _one(after, operation)
    return after


def summary(operations: Sequence[Operation]) -> str:
    """One line for people."""
    words = [_said(operation) for operation in operations]
    return "; ".join(words) if words else "nothing"


def _one(entries: list[str], operation: Operation) -> list[str]:
    match operation.action:
        case "add":
            content = _checked(operation.content)
            return entries if content in entries else [*entries, content]
        case "replace":
            place = _place(entries, operation.old_text)
            content = _checked(operation.content)
            return [*entries[:place], content, *entries[place + 1 :]]
        case "remove":
            place = _place(entries, operation.old_text)
            return [*entries[:place], *entries[place + 1 :]]


def _checked(content: str) -> str:
    content = content.strip()
    if not content:
        raise Unfit("`content` is empty.")
    if "\n§\n" in f"\n{content}\n" or content.startswith("§"):
        raise Unfit("An entry cannot contain a line with nothing but §; add several entries.")
    if why := suspicion(content):
        raise Unfit(f"This was not remembered: it {why}. Say it in other words, or leave it out.")
    return content


def _place(entries: Sequence[str], old_text: str) -> int:
    wanted = old_text.strip()
    if not wanted:
        raise Unfit("`old_text` is empty: give a part of the entry that is meant.")
    exact = [place for place, entry in enumerate(entries) if entry == wanted]
    found = exact or [place for place, entry in enumerate(entries) if wanted in entry]
    if not found:
        raise Unfit(f"No entry contains {wanted[:80]!r}.")
    if len(found) > 1:
        raise Unfit(f"{len(found)} entries contain {wanted[:80]!r}: give more of the one meant.")
    return found[0]


def _said(operation: Operation) -> str:
    text = operation.content or operation.old_text
    first = text.strip().splitlines()[0] if text.strip() else ""
    return f"{operation.action} “{first[:60]}{'…' if len(first) > 60 else ''}”"
