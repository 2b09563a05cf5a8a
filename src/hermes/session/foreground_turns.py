"""Track turns that people or clients wait for, so that background work can yield to them."""

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio
from msgspec import Struct, field

from hermes.kit.clock import Clock
from hermes.kit.tasks import sleep_unless
from hermes.session.turn_request import TurnRequest


class ForegroundTurns(Struct):
    """Counts foreground turns; a turn that acts for another session is in the background."""

    _clock: Clock
    _count: int = 0
    _none: anyio.Event = field(default_factory=anyio.Event)
    """Set when the last foreground turn ends."""
    _ended_at: float = -math.inf

    @contextmanager
    def running(self, request: TurnRequest) -> Generator[None]:
        if request.inherited_limits is not None:
            yield
            return
        if not self._count:
            self._none = anyio.Event()
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._ended_at = self._clock.monotonic()
            if not self._count:
                self._none.set()

    async def wait_until_quiet(self, quiet: float, longest: float) -> None:
        """Return when none has run for `quiet` seconds, or after `longest` seconds.

        The pause leaves time to deliver an answer, and for the next question.
        """
        end = self._clock.monotonic() + longest
        while (left := end - self._clock.monotonic()) > 0:
            if self._count:
                await sleep_unless(self._clock, left, self._none)
                continue
            rest = self._ended_at + quiet - self._clock.monotonic()
            if rest <= 0:
                return
            await self._clock.sleep(min(rest, left))
