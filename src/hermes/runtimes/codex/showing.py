"""What codex asks leave for, whole, as a person is shown it and as leave for later covers it."""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from hermes.kit.plain import visible
from hermes.runtimes.codex.items import Change

_ROOM, _LINES = 7_000, 350
"""What is shown of changes, in all; somewhat more can be."""
_PASSING = frozenset(
    {"itemId", "threadId", "turnId", "approvalId", "conversationId", "callId", "startedAtMs",
     "reason"}
)  # fmt: skip
"""What is another each time, and says nothing about what would be done."""


def seal_of(params: Raw) -> str:
    """A digest of all that was asked, also of what is not understood here."""
    asked = msgspec.json.decode(params, type=dict[str, object])
    told = {name: value for name, value in asked.items() if name not in _PASSING}
    return hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()


def plainly(data: Raw) -> str:
    """JSON without escapes that hide letters; empty for nothing. Raises a `DecodeError`."""
    raw = bytes(data)
    found: object = msgspec.json.decode(raw) if raw else None
    return "" if found is None else msgspec.json.encode(found).decode()


def shown_of(changes: Sequence[Change]) -> tuple[str, str]:
    """The paths, and what would be written there; of a long text the beginning, which says so."""
    paths = ", ".join(_named(one) for one in changes)
    text = visible("\n".join(f"{_named(one)}\n{one.diff}" for one in changes))
    if len(paths) + len(text) <= _ROOM and text.count("\n") < _LINES:
        return paths, text
    sized = ", ".join(f"{_named(one)} ({len(one.diff):,} characters)" for one in changes)
    room = max(_ROOM - len(visible(sized)) - 100, 0)
    head = "\n".join(text.splitlines()[: _LINES - 1])[:room]
    return sized, f"{head}\n[cut: {len(text) - len(head):,} more characters are not shown]"


def _named(change: Change) -> str:
    name = f"{change.what or 'change'} {change.path}"
    return f"{name} -> {change.moved}" if change.moved else name
