"""Follow a post until the server has confirmed or refused its lines, and limit their rate."""

from collections.abc import Sequence

import anyio

from hermes.channels.irc.irc_line import IrcLine
from hermes.kit.clock import Clock
from hermes.ports.channel import NotSent, TargetGone, Throttled, UnknownOutcome

RETRY_SECONDS = 15.0
"""Seconds to wait if the server says that messages arrive too fast."""
_GONE = frozenset({"401", "403", "406"})
_TOO_FAST = frozenset({"263", "439", "707"})
REFUSALS = frozenset({
    *_GONE, *_TOO_FAST, "404", "407", "408", "411", "412", "417", "442", "477", "482", "486",
    "489", "492", "494", "500", "531", "716", "936", "974",
})  # fmt: skip
"""Numerics with which servers refuse a message."""


class FloodLimit:
    """Lets a burst of lines through at once, then one every `interval` seconds."""

    def __init__(self, clock: Clock, burst: int, interval: float) -> None:
        self._clock = clock
        self._ahead = (max(burst, 1) - 1) * interval
        self._interval = interval
        self._next = float("-inf")

    async def wait(self) -> None:
        wait = self._next - self._ahead - self._clock.monotonic()
        if wait > 0:
            await self._clock.sleep(wait)
        self._next = max(self._next, self._clock.monotonic()) + self._interval


class PendingPost:
    """The lines of one post that were sent to `target`, and the server's replies."""

    def __init__(self, target: str, label: str) -> None:
        self.target = target
        self.label = label
        self.count = 0
        """Number of expected confirmations: one per line, or one if they form a single message."""
        self.echoes: list[IrcLine] = []
        self.refusals: list[IrcLine] = []
        self.is_lost = False
        self.done = anyio.Event()

    def mark_lost(self) -> None:
        self.is_lost = True
        self.done.set()

    def is_refused_by(self, line: IrcLine, names: Sequence[str]) -> bool:
        """Whether an error is about this post: by its label, or by its target (`names`)."""
        label = line.tags.get("label", "")
        return label.startswith(self.label) if label else self.target in names

    @property
    def message_id(self) -> str:
        """The id of the first line, if the server echoes it."""
        return self.echoes[0].tags.get("msgid", "") if self.echoes else ""

    def check(self) -> None:
        """Raise an error if the post did not arrive."""
        if self.refusals:
            raise self._refusal()
        if self.is_lost:
            raise UnknownOutcome("The connection was lost before the IRC server confirmed it.")

    def _refusal(self) -> Exception:
        line = self.refusals[0]
        reason = f"The IRC server refused it: {line.last}"
        if self.echoes or len(self.refusals) < self.count:
            return UnknownOutcome(f"Only a part was sent. {reason}")
        if line.command in _GONE:
            return TargetGone(reason)
        if line.command in _TOO_FAST:
            return Throttled(reason, wait=RETRY_SECONDS)
        return NotSent(reason)
