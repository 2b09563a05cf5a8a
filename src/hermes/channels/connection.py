"""Track a channel's connection: when it was last alive, and how often it failed in a row."""

import logging
from datetime import datetime

from hermes.kit.clock import Clock
from hermes.ports.channel import Throttled

log = logging.getLogger(__name__)

MAX_FAILURES = 3


class LastSeen:
    """When the platform last proved to be alive, for `Channel.last_seen_at`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at: datetime | None = None

    def mark(self) -> None:
        self.at = self._clock.now()


class Retries:
    """Allows some failures in a row, because interrupted polls and lost connections are common."""

    def __init__(self, clock: Clock, *, pause: float, max_failures: int = MAX_FAILURES) -> None:
        self._clock = clock
        self._pause = pause
        self._max_failures = max_failures
        self._failures = 0

    async def failed(self, error: Exception) -> None:
        """Wait before the next attempt, or raise the error if there were too many."""
        self._failures += 1
        if self._failures > self._max_failures:
            self._failures = 0
            raise error
        log.info("connecting again after a failure: %s", error)
        wait = error.wait if isinstance(error, Throttled) else 0.0
        await self._clock.sleep(max(self._pause * self._failures, wait))

    def succeeded(self) -> None:
        self._failures = 0


def first_error(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the other tasks of a group."""
    first = failures.exceptions[0]
    return first_error(first) if isinstance(first, BaseExceptionGroup) else first  # pyright: ignore[reportUnknownArgumentType]
