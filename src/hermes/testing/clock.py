"""A clock that tests own: time stands still until somebody moves it."""

from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

import anyio
import anyio.lowlevel

from hermes.testing.idle_loop import IdleWaiter

_START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


class FakeClock:
    """`sleep` waits until `advance` has moved time far enough.

    With `auto=True` a sleep jumps time forward at once instead, which suits tests that
    only ask how long was waited in all. `slept` remembers every sleep that was begun.
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
        """Set the wall clock, as a person or a time server does; nobody's sleep gets shorter."""
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
        """Move time on, waking sleepers in their order; each may sleep again before the next.

        Of several who move it one comes after the other.
        """
        async with self._moving:
            goal = self._elapsed + seconds
            await self._idle_waiter.comes()
            while self._sleepers and min(self._sleepers)[0] <= goal:
                self._sleepers.sort()
                due, _, event = heappop(self._sleepers)
                self._elapsed = max(self._elapsed, due)
                event.set()
                await self._idle_waiter.comes()
            self._elapsed = goal

    def skip(self, seconds: float) -> None:
        """Time passes and wakes nobody, as for somebody who sleeps in a process that hangs."""
        self._elapsed += seconds

    @property
    def sleepers(self) -> int:
        """How many tasks are asleep now."""
        return len(self._sleepers)
