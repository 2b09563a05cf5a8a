"""The turns that people and clients wait for; work in the background lets them go first."""

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio

from hermes.kit.clock import Clock
from hermes.kit.tasks import sleep_unless
from hermes.session.turn_request import TurnRequest


class ForegroundTurns:
    """Counts them. A turn that acts for another session is in the background."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._none = anyio.Event()
        self._none.set()
        self._ended_at = -math.inf

    @contextmanager
    def running(self, request: TurnRequest) -> Generator[None]:
        if request.inherited_limits is not None:
            yield
            return
        self._count += 1
        if self._none.is_set():
            self._none = anyio.Event()
        try:
            yield
        finally:
            self._count -= 1
            self._ended_at = self._clock.monotonic()
            if not self._count:
                self._none.set()

    async def wait_until_quiet(self, quiet: float, longest: float) -> None:
        """Return when none has run for `quiet` seconds, at the latest after `longest` seconds.

        After an answer, its delivery and perhaps the next question follow.
        """
        end = self._clock.monotonic() + longest
        while (left := end - self._clock.monotonic()) > 0:
            if not self._none.is_set():
                await sleep_unless(self._clock, left, self._none)
                continue
            rest = self._ended_at + quiet - self._clock.monotonic()
            if rest <= 0:
                return
            await self._clock.sleep(min(rest, left))
