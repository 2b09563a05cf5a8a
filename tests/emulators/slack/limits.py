"""The documented rate limits: tiers per method and workspace, and posts per channel."""

from collections import defaultdict, deque
from collections.abc import Mapping

from hermes.kit.clock import Clock

WINDOW = 60.0
TIER_2, TIER_3, TIER_4 = 20, 50, 100
PER_MINUTE: Mapping[str, int] = {
    "apps.connections.open": TIER_3,
    "auth.test": 600,
    "assistant.threads.setStatus": 600,
    "assistant.threads.setTitle": TIER_3,
    "assistant.threads.setSuggestedPrompts": TIER_4,
    "chat.postMessage": 300,
    "chat.update": TIER_3,
    "chat.delete": TIER_3,
    "conversations.history": TIER_3,
    "conversations.info": TIER_3,
    "conversations.open": TIER_3,
    "conversations.replies": TIER_3,
    "files.completeUploadExternal": TIER_4,
    "files.getUploadURLExternal": TIER_4,
    "files.info": TIER_4,
    "reactions.add": TIER_3,
    "reactions.remove": TIER_2,
    "users.conversations": TIER_3,
    "users.info": TIER_4,
}
POST_BURST = 3
"""Posts to one channel that may follow each other at once; then one per second."""


class RateLimits:
    """Counts the calls. `refused` exceeded a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: defaultdict[tuple[str, str], deque[float]] = defaultdict(deque)
        self._posts: defaultdict[str, float] = defaultdict(lambda: float("-inf"))
        self.refused = 0

    def count(self, token: str, method: str, channel: str) -> float:
        """The seconds to wait; 0 if the call is within the limits."""
        now = self._clock.monotonic()
        times = self._times[token, method]
        while times and times[0] <= now - WINDOW:
            times.popleft()
        wait = 0.0
        if len(times) >= PER_MINUTE.get(method, TIER_3):
            wait = times[0] + WINDOW - now
        if method == "chat.postMessage":
            # The time at which the burst would be used up.
            due = max(self._posts[channel], now - POST_BURST)
            wait = max(wait, due + 1 - now)
            if wait <= 0:
                self._posts[channel] = due + 1
        if wait > 0:
            self.refused += 1
            return wait
        times.append(now)
        return 0.0
