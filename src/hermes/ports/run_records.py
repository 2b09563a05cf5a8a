"""Stored facts about runs: why they failed, and what was spent before a day."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Struct


class FailedRun(Struct, frozen=True, kw_only=True):
    run: str
    session: str
    outcome: str
    reason: str
    at: datetime


class PutFailedRun(Struct, frozen=True):
    failed: FailedRun


class AddSpendBefore(Struct, frozen=True):
    """What was spent in total before a day (`2026-01-31`), by everyone or by one person.

    The commit fails with `StateConflict` if it is stored already.
    """

    day: str
    spender: str
    dollars: float


class PartialText(Struct, frozen=True, kw_only=True):
    """The part of an unfinished answer that people were shown; `holder` is writing it."""

    run: str
    session: str
    text: str
    holder: str


class PutPartialText(Struct, frozen=True):
    partial: PartialText


class RemovePartialText(Struct, frozen=True):
    run: str


RunWrite: TypeAlias = PutFailedRun | AddSpendBefore | PutPartialText | RemovePartialText


class RunRecords(Protocol):
    async def failures(self, session: str) -> Sequence[FailedRun]:
        """Oldest first."""
        ...

    async def partial_text(self, run: str) -> PartialText | None: ...

    async def partial_texts(self, session: str) -> Sequence[PartialText]: ...

    async def abandoned_partial_texts(self) -> Sequence[PartialText]:
        """Those of dead workers."""
        ...

    async def forget_failures(self, before: datetime) -> int: ...

    async def spend_before(self, day: str, spender: str) -> float | None: ...

    async def forget_spend(self, before_day: str) -> int: ...
