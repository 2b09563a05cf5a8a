"""One turn on the screen, from its first event to its last, and what all of them cost."""

from collections.abc import Callable

from hermes.tui.companion import Parts
from hermes.tui.screens.house import House
from hermes.tui.screens.incoming import Incoming
from hermes.tui.scribe import Scribe


class Turning:
    def __init__(self, house: House, scribe: Scribe, incoming: Incoming) -> None:
        self._house = house
        self._scribe = scribe
        self._incoming = incoming
        self._began: float | None = None
        self.cost: float | None = None
        """Dollars, as far as anybody knows."""
        self.over = False
        """Nothing more is written: the screen is about to go."""

    @property
    def on(self) -> bool:
        return self._began is not None

    @property
    def seconds(self) -> float | None:
        """For how long it has been going on, if it is."""
        return None if self._began is None else self._house.clock.monotonic() - self._began

    async def run(self, parts: Parts, changed: Callable[[], None]) -> None:
        """Raises what went wrong; what was told until then stands on the screen."""
        companion = self._house.companion
        self._scribe.begin()
        self._began = self._house.clock.monotonic()
        changed()
        try:
            await self._house.backroom.do(lambda: companion.say(parts, self._incoming.put))
        finally:
            self._began = None
            if not self.over:
                await self._incoming.write()
                await self._scribe.end()

    async def count(self) -> None:
        """Add what the last one cost."""
        if (ended := self._scribe.ended) is not None:
            spent = await self._house.backroom.do(lambda: self._house.companion.cost(ended))
            if spent is not None:
                self.cost = (self.cost or 0.0) + spent
