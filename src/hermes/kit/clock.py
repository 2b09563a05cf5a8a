"""An injectable clock, so that tests control time."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The current time in UTC."""
        ...

    def monotonic(self) -> float:
        """Monotonic seconds, for measuring."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def sleep_until(self, at: datetime) -> None:
        """Return when the clock shows that time, or earlier if the clock was set."""
        ...


class SystemClock:
    monotonic = staticmethod(time.monotonic)

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        import anyio  # noqa: PLC0415 - not needed to read the clock

        await anyio.sleep(seconds)

    async def sleep_until(self, at: datetime) -> None:
        from hermes.kit.alarm import sleep_until  # noqa: PLC0415 - only schedules need it

        await sleep_until(at)
