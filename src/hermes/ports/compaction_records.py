"""Stored compaction: what the model sees of a session, and the notes pinned in it."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from msgspec import Raw, Struct


class CompactionView(Struct, frozen=True):
    """The state of a session's compaction, as JSON; every change has the next version."""

    session: str
    version: int
    state: Raw


class PutCompactionView(Struct, frozen=True):
    """Replace the version before; the commit fails with `StateConflict` if that is not stored."""

    view: CompactionView


class Pin(Struct, frozen=True):
    id: str
    session: str
    text: str


class AddPin(Struct, frozen=True):
    pin: Pin


class RemovePin(Struct, frozen=True):
    id: str


CompactionWrite: TypeAlias = PutCompactionView | AddPin | RemovePin


class CompactionRecords(Protocol):
    async def view(self, session: str) -> CompactionView | None: ...

    async def pins(self, session: str) -> Sequence[Pin]:
        """Oldest first."""
        ...
