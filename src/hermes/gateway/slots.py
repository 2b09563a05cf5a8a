"""Who may have a turn now: only so many at once, nobody all of them, and room for the owner."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from msgspec import Struct

from hermes.schema.scope import Role

SHARE = 8
"""Of all turns, the eighth part: what one person may have at once, and what is kept for owners."""


class _Person(Struct):
    turns: anyio.Semaphore
    users: int = 0


class Slots:
    def __init__(self, turns: int) -> None:
        part = max(1, turns // SHARE)
        self._each = part
        self._all = anyio.CapacityLimiter(turns)
        self._others = anyio.CapacityLimiter(max(1, turns - part))
        self._people: dict[str, _Person] = {}

    @asynccontextmanager
    async def one(self, principal: str, role: Role) -> AsyncGenerator[None]:
        """Wait for a turn and have it while the block runs."""
        if role is Role.OWNER:
            async with self._all:
                yield
            return
        person = self._people.setdefault(principal, _Person(anyio.Semaphore(self._each)))
        person.users += 1
        try:
            async with person.turns, self._others, self._all:
                yield
        finally:
            person.users -= 1
            if not person.users:
                self._people.pop(principal, None)
