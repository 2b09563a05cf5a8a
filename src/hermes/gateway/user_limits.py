"""How fast somebody may write: far more than a person does, and far less than a broken bot."""

import math
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
from msgspec import Raw, Struct

from hermes.gateway.messages import InboxMessage, platform_of
from hermes.gateway.roles import DAY, HOUR, Quota, QuotaExceeded, RolePermissions, TurnCounter
from hermes.kit.clock import Clock
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Store
from hermes.schema.scope import Role

INBOUND_BURST = 120
INBOUND_RATE = 2.0
MAX_USERS = 10_000
NOTICE_INTERVAL = 60.0
"""Seconds between two notices that somebody writes too fast."""

REFUSED = "refused"
"""The lane of what was not taken, so that it is not taken either when it comes again."""

TOO_FAST_NOTICE = (
    "You write faster than I can read. What you wrote just now was not taken, and what you write "
    "within the next minute may not be either. Wait that long, then send it again."
)
TOO_FAST = "Too much came in too short a time."


class _UserRate(Struct):
    room: float
    at: float
    told: float = float("-inf")


class InboundLimit:
    """What is taken counts, and nothing else: no repetition, and nothing that was refused."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._writers: OrderedDict[str, _UserRate] = OrderedDict()

    def wait(self, principal: str, role: Role) -> float:
        """Seconds until something new of theirs may be taken; zero when it may be now."""
        if role is Role.OWNER:
            return 0.0
        return max(0.0, 1.0 - self._writer(principal).room) / INBOUND_RATE

    def count(self, principal: str, role: Role) -> None:
        """Something new was taken."""
        if role is not Role.OWNER:
            self._writer(principal).room -= 1

    def notice(self, principal: str) -> str:
        """What to tell somebody who is refused: nothing, when they were told a short while ago."""
        writer, now = self._writer(principal), self._clock.monotonic()
        if now - writer.told < NOTICE_INTERVAL:
            return ""
        writer.told = now
        return TOO_FAST_NOTICE

    def _writer(self, principal: str) -> _UserRate:
        now = self._clock.monotonic()
        writer = self._writers.setdefault(principal, _UserRate(float(INBOUND_BURST), now))
        self._writers.move_to_end(principal)
        while len(self._writers) > MAX_USERS:
            self._writers.popitem(last=False)
        writer.room = min(INBOUND_BURST, writer.room + (now - writer.at) * INBOUND_RATE)
        writer.at = now
        return writer


TURN_KIND = "turn_taken"


class TurnQuotas:
    """`powers` says what a role may do on a platform."""

    def __init__(
        self, store: Store, clock: Clock, powers: Callable[[str, Role], RolePermissions]
    ) -> None:
        self._store = store
        self._clock = clock
        self._powers = powers
        self._meter = TurnCounter(clock)

    async def refusal(self, letter: InboxMessage) -> str:
        """Why this turn may not begin now; empty when it may, and it is then counted."""
        quota = self._powers(platform_of(letter.address.channel), letter.role).quota
        if quota == Quota():
            return ""
        if not self._meter.knows(letter.principal):
            await self._recall(letter.principal, quota)
        refused = self._meter.take(letter.principal, quota)
        if refused is not None:
            return _quota_message(refused)
        await self._store.commit(self._taken(letter))
        return ""

    def _taken(self, letter: InboxMessage) -> PutRecord:
        """Under who asked, for in a shared chat the session may be somebody else's."""
        matter = StateRecord(
            kind=TURN_KIND,
            id=letter.user.id,
            session=letter.principal,
            state="taken",
            at=self._clock.now(),
            body=Raw(b"null"),
            open=False,
        )
        return PutRecord(matter)

    async def _recall(self, principal: str, quota: Quota) -> None:
        """When somebody's turns began, also those of an earlier process."""
        now, records = self._clock.now(), self._store.records
        await records.forget(TURN_KIND, now - timedelta(seconds=DAY))
        most = max(quota.per_hour or 0, quota.per_day or 0)
        turns = [one.at for one in await records.find(TURN_KIND, session=principal, limit=most)]
        if self._meter.knows(principal):
            # Meanwhile another chat of the same person was counted.
            return
        self._meter.recall(principal, [(now - at).total_seconds() for at in turns])


def _quota_message(refused: QuotaExceeded) -> str:
    window = {HOUR: "an hour", DAY: "a day"}[refused.window]
    minutes = max(1, math.ceil(refused.wait / 60))
    wait = f"{minutes} minutes" if minutes > 1 else "a minute"
    if minutes > 120:
        wait = f"{math.ceil(minutes / 60)} hours"
    return f"You may ask {refused.limit} times in {window} here. Try again in {wait}."


USER_SHARE = 8
"""Of all turns, the eighth part: what one person may have at once, and what is kept for owners."""


class _UserSlots(Struct):
    turns: anyio.Semaphore
    users: int = 0


class TurnSlots:
    def __init__(self, turns: int) -> None:
        part = max(1, turns // USER_SHARE)
        self._each = part
        self._all = anyio.CapacityLimiter(turns)
        self._others = anyio.CapacityLimiter(max(1, turns - part))
        self._people: dict[str, _UserSlots] = {}

    @asynccontextmanager
    async def one(self, principal: str, role: Role) -> AsyncGenerator[None]:
        """Wait for a turn and have it while the block runs."""
        if role is Role.OWNER:
            async with self._all:
                yield
            return
        person = self._people.setdefault(principal, _UserSlots(anyio.Semaphore(self._each)))
        person.users += 1
        try:
            async with person.turns, self._others, self._all:
                yield
        finally:
            person.users -= 1
            if not person.users:
                self._people.pop(principal, None)
