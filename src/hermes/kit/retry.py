"""How long to wait before trying again. Who retries what is decided elsewhere."""

import random
from collections.abc import Callable

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """Doubles from `base` to `cap` seconds, plus up to `jitter` of that again."""

    base: float = 2.0
    cap: float = 60.0
    jitter: float = 0.5

    def delay(self, attempt: int, chance: Callable[[], float] = random.random) -> float:
        """Seconds to wait after failure number `attempt`, counted from one."""
        # Somebody may try for weeks: no float holds two to the power of that.
        plain = min(self.base * 2 ** min(attempt - 1, 64), self.cap)
        return plain + plain * self.jitter * chance()
