"""Keep Slack's rate limits: per method and workspace, and the pauses it asks for."""

from collections import defaultdict, deque
from collections.abc import Mapping

from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import Throttled

WINDOW = 60.0
OPTIONAL_SHARE = 0.7
"""The share that progress and reactions may use; the rest of a limit is reserved for answers."""
OPTIONAL_BURST = 10
"""Optional calls that may be made at once; further ones are spread over the minute."""
MAX_PAUSES = 10_000
LIMITED = "Slack is limiting requests."
_TIER_2, _TIER_3 = 20, 50
PER_MINUTE: Mapping[str, int] = {
    "chat.postMessage": 270,
    "chat.update": _TIER_3,
    "reactions.add": _TIER_3,
    "reactions.remove": _TIER_2,
    "conversations.history": _TIER_3,
    "conversations.replies": _TIER_3,
    "conversations.info": _TIER_3,
    "conversations.open": _TIER_3,
    "users.conversations": _TIER_3,
}
"""The documented tiers of the methods that are called often; "several hundred" posts."""


class RateLimits:
    """Refuses calls of one workspace that would exceed a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: defaultdict[str, deque[float]] = defaultdict(deque)
        self._next_optional: defaultdict[str, float] = defaultdict(float)
        self._quiet: LruMap[tuple[str, str], float] = LruMap(MAX_PAUSES)

    def count(self, method: str, chat: str = "", *, optional: bool = False) -> None:
        """Count a call. Raises `Throttled` if it would exceed a limit."""
        now = self._clock.monotonic()
        wait = (self._quiet.get((method, chat)) or now) - now
        per_minute = PER_MINUTE.get(method)
        if per_minute is not None:
            recent = self._recent[method]
            while recent and recent[0] <= now - WINDOW:
                recent.popleft()
            if len(recent) >= (per_minute * OPTIONAL_SHARE if optional else per_minute):
                wait = max(wait, recent[0] + WINDOW - now)
            if optional:
                wait = max(
                    wait, self._next_optional[method] - OPTIONAL_BURST * _each(per_minute) - now
                )
        if wait > 0:
            raise Throttled(LIMITED, wait=wait, one_kind=True)
        if per_minute is not None:
            self._recent[method].append(now)
            if optional:
                self._next_optional[method] = max(self._next_optional[method], now) + _each(
                    per_minute
                )

    def pause(self, method: str, chat: str, seconds: float) -> None:
        """Record that Slack refused a call and how long to wait."""
        self._quiet.put((method, chat), self._clock.monotonic() + seconds)


def _each(per_minute: int) -> float:
    """Return the seconds between optional calls after a burst, given their number per minute."""
    return WINDOW / (per_minute * OPTIONAL_SHARE - OPTIONAL_BURST)
