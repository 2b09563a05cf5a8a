"""Limit how fast users may write, how many turns they get and how many run at the same time."""

import math
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeAlias

import anyio
from msgspec import Struct

from hermes.gateway.messages import InboxMessage
from hermes.gateway.roles import DAY, HOUR, Quota, QuotaExceeded, RolePermissions, TurnCounter
from hermes.kit.clock import Clock
from hermes.ports.chat_records import AddStartedTurn
from hermes.ports.store import Store
from hermes.schema.scope import Role, platform_of

INBOUND_BURST = 120
INBOUND_RATE = 2.0
MAX_USERS = 10_000
NOTICE_INTERVAL = 60.0
"""Seconds between two notices to the same user."""

REJECTED = "rejected"
"""Queue of rejected messages, so that repetitions are rejected, too."""

TOO_FAST_NOTICE = (
    "You are writing too fast. Your last message was not accepted, and messages sent within the "
    "next minute may not be either. Wait a minute, then send it again."
)
TOO_FAST = "Too many messages in a short time."


class UserRate(Struct):
    """How many messages of a user are accepted now, and when the limit was last mentioned."""

    tokens: float
    at: float
    notified_at: float = float("-inf")


class InboundLimit:
    """Accepted messages take a token, neither repetitions nor rejected ones do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._users: OrderedDict[str, UserRate] = OrderedDict()

    def notice(self, rate: UserRate) -> str:
        """Return the notice for a rejected user, or "" if one was sent recently."""
        now = self._clock.monotonic()
        if now - rate.notified_at < NOTICE_INTERVAL:
            return ""
        rate.notified_at = now
        return TOO_FAST_NOTICE

    def rate_of(self, principal: str, role: Role) -> UserRate:
        """Return the user's rate as of now; owners may write as fast as they like."""
        now = self._clock.monotonic()
        if role is Role.OWNER:
            return UserRate(math.inf, now)
        writer = self._users.setdefault(principal, UserRate(float(INBOUND_BURST), now))
        self._users.move_to_end(principal)
        while len(self._users) > MAX_USERS:
            self._users.popitem(last=False)
        writer.tokens = min(INBOUND_BURST, writer.tokens + (now - writer.at) * INBOUND_RATE)
        writer.at = now
        return writer


Rejection: TypeAlias = Callable[[InboxMessage], Awaitable[str]]
"""Returns why a turn may not start, or ""."""


class TurnQuotas:
    """Turn quotas; `permissions` returns the permissions of a role on a platform."""

    def __init__(
        self, store: Store, clock: Clock, permissions: Callable[[str, Role], RolePermissions]
    ) -> None:
        self._store = store
        self._clock = clock
        self._permissions = permissions
        self._counter = TurnCounter(clock)

    async def rejection(self, message: InboxMessage) -> str:
        """Return why the turn may not start, or "" after counting it."""
        quota = self._permissions(platform_of(message.address.channel), message.role).quota
        if quota == Quota():
            return ""
        if not self._counter.knows(message.principal):
            await self._read_usage(message.principal, quota)
        if (exceeded := self._counter.take(message.principal, quota)) is not None:
            return _quota_message(exceeded)
        # Counted by principal, because a shared session may be another user's.
        turn = AddStartedTurn(message.user.id, message.principal, self._clock.now())
        await self._store.commit(turn)
        return ""

    async def _read_usage(self, principal: str, quota: Quota) -> None:
        """Load the start times of the user's turns, including those of an earlier process."""
        now, chats = self._clock.now(), self._store.chats
        await chats.forget_started_turns(now - timedelta(seconds=DAY))
        limit = max(quota.per_hour or 0, quota.per_day or 0)
        turns = await chats.started_turns(principal, limit)
        if self._counter.knows(principal):
            # Another chat of the same user loaded them meanwhile.
            return
        self._counter.recall(principal, [(now - turn).total_seconds() for turn in turns])


def _quota_message(exceeded: QuotaExceeded) -> str:
    window = {HOUR: "per hour", DAY: "per day"}[exceeded.window]
    minutes = max(1, math.ceil(exceeded.wait / 60))
    wait = f"{minutes} minutes" if minutes > 1 else "a minute"
    if minutes > 120:
        wait = f"{math.ceil(minutes / 60)} hours"
    return f"The limit here is {exceeded.limit} turns {window}. Try again in {wait}."


USER_SHARE = 8
"""One eighth of all turns: the limit per user, and the reserve for owners."""


class _UserSlots(Struct):
    turns: anyio.Semaphore
    users: int = 0


class TurnSlots:
    def __init__(self, turns: int) -> None:
        part = max(1, turns // USER_SHARE)
        self._each = part
        self._all = anyio.CapacityLimiter(turns)
        self._others = anyio.CapacityLimiter(max(1, turns - part))
        self._users: dict[str, _UserSlots] = {}

    @asynccontextmanager
    async def acquire(self, principal: str, role: Role) -> AsyncGenerator[None]:
        """Hold a turn slot while the block runs."""
        if role is Role.OWNER:
            async with self._all:
                yield
            return
        person = self._users.setdefault(principal, _UserSlots(anyio.Semaphore(self._each)))
        person.users += 1
        try:
            async with person.turns, self._others, self._all:
                yield
        finally:
            person.users -= 1
            if not person.users:
                self._users.pop(principal, None)
