"""Limit the rate of platform calls: answers come first, progress waits for capacity to spare.

Reactions and typing indicators do not wait: without capacity they are left out.
"""

from collections import OrderedDict

import anyio

from hermes.kit.clock import Clock
from hermes.ports.channel import ChannelCapabilities, Throttled
from hermes.schema.scope import Address

MAX_CHATS = 10_000
MAX_PAUSE = 3600.0
"""Longest pause in seconds that is honored before trying again."""

LEAST_WAIT = 1e-6
"""Seconds; shorter waits are rounding errors."""

RESERVED_SHARE = 0.5
"""Share of the capacity that progress leaves to answers."""

TYPING_RESERVED_SHARE = 0.6
"""Share of the capacity that typing indicators leave to answers and progress."""

TYPING_RATE = 0.5
"""Typing indicators per second in a chat; platforms show one for several seconds."""

REACTION_BURST = 2
"""Burst of reactions in a chat: seen, and done."""

CHAT_SHARE = 0.9
"""Share of a chat's rate that is used, because network delays can bring calls closer together."""

CHAT_BURST = 2
"""Burst of calls to one chat: progress, and the answer after it."""

GROUP_BURST = 4
"""Burst of calls to one group."""


class _Bucket:
    """Token bucket: a burst, then one call every `1 / rate` seconds."""

    def __init__(self, rate: float, burst: float) -> None:
        self._each = 1 / rate
        self._more = max(burst, 1.0) - 1
        """Calls that may immediately follow the first one."""
        self._next = float("-inf")

    def wait(self, now: float, reserved: float = 0.0) -> float:
        """Seconds until a call is possible while a share of the burst stays free.

        Whatever the share, one call stays free if the burst has more than one.
        """
        kept = min(max(self._more * reserved, 1.0), self._more) if reserved else 0.0
        wait = self._next - (self._more - kept) * self._each - now
        return wait if wait > LEAST_WAIT else 0.0

    def leaves_room(self, now: float) -> bool:
        """Whether another call could follow a call now without waiting."""
        return max(self._next, now) + self._each - self._more * self._each <= now

    def take(self, now: float) -> None:
        self._next = max(self._next, now) + self._each


class _Buckets:
    """Buckets of the chats used last."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str | Address, _Bucket] = OrderedDict()

    def get(self, key: str | Address, rate: float, burst: float) -> _Bucket:
        bucket = self._buckets.pop(key, None) or _Bucket(rate, max(burst, rate))
        self._buckets[key] = bucket
        if len(self._buckets) > MAX_CHATS:
            self._buckets.popitem(last=False)
        return bucket


class RateLimiter:
    """One per platform account, shared by everything that sends through it."""

    def __init__(self, clock: Clock, caps: ChannelCapabilities) -> None:
        self._clock = clock
        self._caps = caps
        self._all = _Bucket(caps.rate, caps.burst or caps.rate) if caps.rate else None
        self._chats, self._reactions, self._typing = _Buckets(), _Buckets(), _Buckets()
        self._is_limited = bool(caps.rate or caps.chat_rate)
        self._progress_line = anyio.Lock()
        self._quiet_until = float("-inf")
        self._quiet_chats: OrderedDict[str, float] = OrderedDict()

    async def acquire(self, to: Address) -> None:
        """Wait until an answer may be sent to the address, and count it."""
        while (wait := self.try_answer(to)) > 0:
            await self._clock.sleep(wait)

    def try_answer(self, to: Address, reserved: float = 0.0) -> float:
        """Count an answer if it may be sent now; otherwise return the seconds to wait.

        A share of the capacity stays `reserved` for others.
        """
        now = self._clock.monotonic()
        buckets = self._buckets(to) if self._is_limited else []
        waits = [bucket.wait(now, reserved) for bucket in buckets]
        if (wait := max([self._quiet(to) - now, *waits])) > 0:
            return wait
        for bucket in buckets:
            bucket.take(now)
        return 0.0

    async def acquire_spare(self, to: Address) -> None:
        """Wait until progress may be shown in the chat, and count it.

        Chats take turns: the one that has waited longest is next.
        """
        while True:
            await self._chat_spare(to)
            async with self._progress_line:
                while self._all is not None:
                    now = self._clock.monotonic()
                    wait = max(self._quiet_until - now, self._all.wait(now, RESERVED_SHARE))
                    if wait <= 0:
                        break
                    await self._clock.sleep(wait)
                # An answer may have been sent there meanwhile.
                if self.try_acquire(to):
                    return

    async def _chat_spare(self, to: Address) -> None:
        """Wait until the chat itself has spare capacity."""
        while True:
            now = self._clock.monotonic()
            own = self._buckets(to)[1:] if self._all else self._buckets(to)
            spare = [bucket.wait(now, RESERVED_SHARE) for bucket in own]
            wait = max([self._quiet(to) - now, *spare])
            if wait <= 0:
                return
            await self._clock.sleep(wait)

    def try_acquire(self, to: Address) -> bool:
        """Count an optional call if there is capacity; return whether there was."""
        return not self.try_answer(to, RESERVED_SHARE)

    def try_react(self, to: Address) -> bool:
        """Count a reaction if it cannot delay an answer; return whether it may be sent.

        A platform's limit per chat is for messages; reactions have a limit of their own here.
        """
        now = self._clock.monotonic()
        if self._quiet(to) > now or (self._all is not None and not self._all.leaves_room(now)):
            return False
        buckets = [self._all] if self._all is not None else []
        if self._caps.chat_rate:
            own = self._reactions.get(to.chat, self._caps.chat_rate, REACTION_BURST)
            if own.wait(now) > 0:
                return False
            buckets.append(own)
        for bucket in buckets:
            bucket.take(now)
        return True

    def try_type(self, to: Address, *, on: bool = True) -> bool:
        """Count a typing indicator if there is ample capacity and the chat has had none just now.

        Indicators do not count towards the limit of messages to a chat.
        """
        now = self._clock.monotonic()
        own = self._typing.get(to, TYPING_RATE, 1.0)
        if self._quiet(to) > now or (on and own.wait(now) > 0):
            return False
        if self._all is not None:
            if self._all.wait(now, TYPING_RESERVED_SHARE) > 0:
                return False
            self._all.take(now)
        if on:
            own.take(now)
        return True

    def pause(self, error: Throttled, to: Address) -> None:
        """Pause for the time the platform asked for, in that chat or everywhere."""
        if error.one_kind:
            return
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
            buckets.append(self._chats.get(to.chat, *self._chat_limit(to.chat)))
        return buckets

    def _chat_limit(self, chat: str) -> tuple[float, float]:
        """The rate and the burst of a chat."""
        caps = self._caps
        if not caps.group_rate or not chat.startswith(caps.group_prefix):
            return caps.chat_rate * CHAT_SHARE, CHAT_BURST
        # Platforms limit groups per minute: the burst counts against that.
        return caps.group_rate - GROUP_BURST / 60, GROUP_BURST
