"""Exponential backoff with jitter."""

import random
from collections.abc import Callable

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """Doubles from `base` to `cap` seconds, plus up to `jitter` of that again."""

    base: float = 2.0
    cap: float = 60.0
    jitter: float = 0.5

    def delay(self, attempt: int, chance: Callable[[], float] = random.random) -> float:
        """Seconds to wait after failure number `attempt`, starting at one."""
        # Bounded: a large exponent would overflow the float.
        plain = min(self.base * 2 ** min(attempt - 1, 64), self.cap)
        return plain + plain * self.jitter * chance()
