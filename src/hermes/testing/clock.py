"""A fake clock that only moves when a test advances it."""

from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

import anyio
import anyio.lowlevel

from hermes.testing.idle_loop import IdleWaiter

_START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


class FakeClock:
    """`sleep` waits until `advance` has moved time far enough.

    With `auto=True`, a sleep advances the time itself and returns, which suits tests that only
    check the total waiting time. `slept` records every sleep that was started.
    """

    def __init__(self, start: datetime = _START, *, auto: bool = False) -> None:
        self._start = start
        self._elapsed = 0.0
        self._auto = auto
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._turn = 0
        self._idle_waiter = IdleWaiter()
        self._moving = anyio.Lock()
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def step(self, seconds: float) -> None:
        """Step the wall clock, as NTP does, without affecting sleeps."""
        self._start += timedelta(seconds=seconds)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self._auto:
            self._elapsed += max(seconds, 0.0)
            await anyio.lowlevel.checkpoint()
            return
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        self._turn += 1
        entry = (self._elapsed + seconds, self._turn, anyio.Event())
        heappush(self._sleepers, entry)
        try:
            await entry[2].wait()
        finally:
            self._sleepers = [other for other in self._sleepers if other is not entry]

    async def advance(self, seconds: float) -> None:
        """Advance the time and wake sleepers in order; each may sleep again before the next wakes.

        Concurrent calls run one after the other.
        """
        async with self._moving:
            target = self._elapsed + seconds
            await self._idle_waiter.comes()
            while self._sleepers and min(self._sleepers)[0] <= target:
                self._sleepers.sort()
                due, _, event = heappop(self._sleepers)
                self._elapsed = max(self._elapsed, due)
                event.set()
                await self._idle_waiter.comes()
            self._elapsed = target

    def skip(self, seconds: float) -> None:
        """Let time pass without waking sleepers, as in a process that hangs."""
        self._elapsed += seconds

    @property
    def sleepers(self) -> int:
        """The number of sleeping tasks."""
        return len(self._sleepers)
