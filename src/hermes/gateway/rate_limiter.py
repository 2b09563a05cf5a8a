"""Limit the rate of platform calls: answers wait for capacity, progress and reactions do not."""

from collections import OrderedDict

from hermes.kit.clock import Clock
from hermes.ports.channel import ChannelCapabilities, Throttled
from hermes.schema.scope import Address

MAX_CHATS = 10_000
MAX_PAUSE = 3600.0
"""Longest pause in seconds that is honored before trying again."""

RESERVED_SHARE = 0.5
"""Share of the capacity reserved for answers."""

REACTION_BURST = 2
"""Reactions in a chat that may follow each other at once: seen, and done."""

GROUP_BURST = 4
"""Calls to a group that may follow each other at once."""


class _Bucket:
    """Token bucket: a burst, then one call every `1 / rate` seconds."""

    def __init__(self, rate: float, burst: float = 1.0) -> None:
        self._each = 1 / rate
        self._burst = max(burst, rate)
        self._next = float("-inf")

    def wait(self, now: float, reserved: float = 0.0) -> float:
        """Seconds until a call is possible while `reserved` (a share) stays free."""
        ahead = (self._burst - 1) * (1 - reserved) * self._each
        return max(0.0, self._next - ahead - now)

    def leaves_room(self, now: float) -> bool:
        """Whether another call could follow a call now without waiting."""
        return max(self._next, now) + self._each - (self._burst - 1) * self._each <= now

    def take(self, now: float) -> None:
        self._next = max(self._next, now) + self._each


class RateLimiter:
    """One per platform account, shared by everything that sends through it."""

    def __init__(self, clock: Clock, caps: ChannelCapabilities) -> None:
        self._clock = clock
        self._caps = caps
        self._all = _Bucket(caps.rate) if caps.rate else None
        self._chats: OrderedDict[str, _Bucket] = OrderedDict()
        self._reactions: OrderedDict[str, _Bucket] = OrderedDict()
        self._quiet_until = float("-inf")
        self._quiet_chats: OrderedDict[str, float] = OrderedDict()

    async def acquire(self, to: Address) -> None:
        """Wait until an answer may be sent to the address, and count it."""
        while True:
            now = self._clock.monotonic()
            buckets = self._buckets(to)
            wait = max([self._quiet(to) - now, *(bucket.wait(now) for bucket in buckets)])
            if wait <= 0:
                break
            await self._clock.sleep(wait)
        for bucket in buckets:
            bucket.take(now)

    def try_acquire(self, to: Address) -> bool:
        """Count an optional call if there is capacity; return whether there was."""
        now = self._clock.monotonic()
        buckets = self._buckets(to)
        if self._quiet(to) > now or any(bucket.wait(now, RESERVED_SHARE) > 0 for bucket in buckets):
            return False
        for bucket in buckets:
            bucket.take(now)
        return True

    def try_react(self, to: Address) -> bool:
        """Count a reaction if no answer could have to wait for it; return whether it may be sent.

        Platforms limit messages to a chat, not reactions; these have a limit of their own.
        """
        now = self._clock.monotonic()
        if self._quiet(to) > now or (self._all is not None and not self._all.leaves_room(now)):
            return False
        buckets = [self._all] if self._all is not None else []
        if self._caps.chat_rate:
            own = self._reactions.pop(to.chat, None)
            own = own or _Bucket(self._caps.chat_rate, REACTION_BURST)
            self._reactions[to.chat] = own
            if len(self._reactions) > MAX_CHATS:
                self._reactions.popitem(last=False)
            if own.wait(now) > 0:
                return False
            buckets.append(own)
        for bucket in buckets:
            bucket.take(now)
        return True

    def pause(self, error: Throttled, to: Address) -> None:
        """Pause for the time the platform asked for, in that chat or everywhere."""
        until = self._clock.monotonic() + min(error.wait, MAX_PAUSE)
        if error.all_chats:
            self._quiet_until = max(self._quiet_until, until)
            return
        self._quiet_chats[to.chat] = max(self._quiet_chats.pop(to.chat, until), until)
        while len(self._quiet_chats) > MAX_CHATS:
            self._quiet_chats.popitem(last=False)

    def _quiet(self, to: Address) -> float:
        return max(self._quiet_until, self._quiet_chats.get(to.chat, float("-inf")))

    def _buckets(self, to: Address) -> list[_Bucket]:
        buckets = [self._all] if self._all else []
        if self._caps.chat_rate:
            bucket = self._chats.pop(to.chat, None) or self._chat_bucket(to.chat)
            self._chats[to.chat] = bucket
            if len(self._chats) > MAX_CHATS:
                self._chats.popitem(last=False)
            buckets.append(bucket)
        return buckets

    def _chat_bucket(self, chat: str) -> _Bucket:
        caps = self._caps
        if not caps.group_rate or not chat.startswith(caps.group_prefix):
            return _Bucket(caps.chat_rate)
        # Platforms limit groups per minute: the burst counts against that.
        return _Bucket(caps.group_rate - GROUP_BURST / 60, GROUP_BURST)
