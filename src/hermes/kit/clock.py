"""Time as a thing that is passed in, so that tests own it."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, always in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward, for measuring."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        import anyio  # noqa: PLC0415 - whoever only reads a clock does not wait for that

        await anyio.sleep(seconds)
