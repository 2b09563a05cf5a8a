"""What outlives a turn and has a state: a question to a person, a process beside us, a task."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Raw, Struct


class StateRecord(Struct, frozen=True, kw_only=True):
    """`state` is a word of its kind; `open` says that somebody still has to attend to it.

    `holder` is the process that does; `body` is the kind's own, as JSON.
    """

    kind: str
    id: str
    session: str
    state: str
    at: datetime
    body: Raw
    open: bool = True
    holder: str = ""


class PutRecord(Struct, frozen=True):
    """Write it down. With `was`, only over one in that state; with an empty one, only if new.

    Where that is not so, the whole commit is refused with `Overtaken`.
    """

    matter: StateRecord
    was: str | None = None


class Records(Protocol):
    async def get(self, kind: str, id: str) -> StateRecord | None: ...  # noqa: A002 the field's name

    async def find(
        self, kind: str, *, session: str | None = None, only_open: bool = False, limit: int = 1000
    ) -> Sequence[StateRecord]:
        """The newest, oldest of them first."""
        ...

    async def matching(
        self, kind: str, fields: Mapping[str, str], *, state: str | None = None, limit: int = 1000
    ) -> Sequence[StateRecord]:
        """Those whose body has these values, in that order, too; only in a state, if one is named.

        The others are not read.
        """
        ...

    async def abandoned(self, kind: str) -> Sequence[StateRecord]:
        """Open ones whose holder is surely gone, oldest first."""
        ...

    async def forget(self, kind: str, before: datetime) -> int:
        """Drop those that are not open and were written before."""
        ...
