"""Maintenance of a store: statistics, integrity, backup, pruning, indexes and imports."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

ReportProgress: TypeAlias = Callable[[int, int], None]
"""Called with the amount done and the total."""


class SourceCounts(Struct, array_like=True, frozen=True):
    name: str
    sessions: int
    messages: int


class StoreStats(Struct, frozen=True, kw_only=True):
    """`messages` counts every row, including those taken back; sizes are in bytes."""

    sessions: int
    messages: int
    sources: Sequence[SourceCounts]
    waiting: int
    parked: int
    size: int
    free: int


class IndexState(Struct, frozen=True):
    """How far the search index lags behind; ids of deleted messages count as well."""

    newest: int  # id of the newest message
    indexed: int  # messages up to this id are in the index

    @property
    def missing(self) -> int:
        return max(self.newest - self.indexed, 0)


class ImportCounts(Struct, frozen=True):
    sessions: int = 0
    messages: int = 0


class Maintenance(Protocol):
    @property
    def location(self) -> str:
        """Where the store is: a path or an address without its password."""
        ...

    @property
    def driver(self) -> str:
        """Name and version of the database software."""
        ...

    async def stats(self) -> StoreStats: ...

    async def integrity(self) -> Sequence[str]:
        """Problems of the database; empty when there are none."""
        ...

    async def backup(self, to: Path) -> None:
        """Copy the current database while others keep writing."""
        ...

    async def prune_queues(self, before: datetime) -> int:
        """Delete items that were done before then; their keys may be accepted again."""
        ...

    async def optimize(self) -> None:
        """Forget old settled items, complete and merge the search index, shrink the journal."""
        ...

    async def vacuum(self) -> None:
        """Give the space of deleted sessions back to the disk."""
        ...

    async def index_state(self) -> IndexState: ...

    async def build_vectors(self) -> bool:
        """Compute the vectors of all messages; False if that is not (yet) possible."""
        ...

    async def import_legacy(self, path: Path, report: ReportProgress) -> ImportCounts:
        """Import what is new in the public system's database, which is only read.

        Raises `StoreError` if the file cannot be read or is of another program.
        """
        ...
