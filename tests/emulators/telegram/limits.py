"""The documented flood limits: per chat, per group and minute, and for the whole bot."""

import math
from collections import defaultdict, deque

from hermes.kit.clock import Clock

BOT_PER_SECOND = 30
CHAT_BURST, CHAT_SECONDS = 4, 3.0
"""One message per second; short bursts are allowed."""
GROUP_PER_MINUTE = 20


class FloodLimits:
    """Counts the messages of a bot. `refused` are the calls that exceeded a limit.

    Each call during a penalty makes it longer, as on the real server.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bot: deque[float] = deque()
        self._chats: defaultdict[int, deque[float]] = defaultdict(deque)
        self._until: dict[int, float] = {}
        self.refused = 0

    def wait(self, chat: int) -> int:
        """Count a message; return the seconds to wait if it exceeds a limit."""
        now = self._clock.monotonic()
        if now < self._until.get(chat, 0.0):
            self._until[chat] += 1.0
            self.refused += 1
            return math.ceil(self._until[chat] - now)
        most, seconds = (GROUP_PER_MINUTE, 60.0) if chat < 0 else (CHAT_BURST, CHAT_SECONDS)
        for times, limit, window in (
            (self._chats[chat], most, seconds),
            (self._bot, BOT_PER_SECOND, 1.0),
        ):
            while times and times[0] <= now - window:
                times.popleft()
            if len(times) >= limit:
                self._until[chat] = times[0] + window
                self.refused += 1
                return max(1, math.ceil(self._until[chat] - now))
        self._chats[chat].append(now)
        self._bot.append(now)
        return 0
