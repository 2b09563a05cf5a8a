"""Choose among several keys of one provider, skipping those on cooldown."""

import random
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, assert_never


class KeyStrategy(StrEnum):
    FILL_FIRST = "fill_first"
    """The first key as long as it works."""
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_USED = "least_used"


class CooldownStore(Protocol):
    """Key cooldowns that outlive the process."""

    def remaining(self, keys: Sequence[str]) -> Mapping[str, float]:
        """Return the remaining seconds for each key on cooldown."""
        ...

    async def save(self, key: str, seconds: float, reason: str, *, only_key: bool) -> None:
        """Store a cooldown; `only_key` means that there is no other."""
        ...


class KeyRing:
    """The keys of one model at one provider.

    A provider without keys has a ring with one empty key. Cooldowns are loaded from `cooldowns`,
    and written to it by `save_cooldowns`.
    """

    def __init__(
        self,
        keys: Sequence[str],
        strategy: KeyStrategy = KeyStrategy.FILL_FIRST,
        chance: Callable[[], float] = random.random,
        cooldowns: CooldownStore | None = None,
        now: float = 0.0,
    ) -> None:
        self._keys = tuple(dict.fromkeys(keys)) or ("",)
        self._strategy = strategy
        self._chance = chance
        self._cooldowns: dict[str, float] = {}
        self._used = dict.fromkeys(self._keys, 0)
        self._last = -1
        self._store = cooldowns
        self._unsaved: list[tuple[str, float, str]] = []
        if cooldowns and len(self._keys) > 1:
            left = cooldowns.remaining(self._keys)
            self._cooldowns = {key: now + seconds for key, seconds in left.items()}

    def __len__(self) -> int:
        return len(self._keys)

    def next_key(self, now: float) -> str:
        """Return a ready key, or the one that is ready soonest."""
        if len(self._keys) == 1:
            return self._keys[0]
        key = self._choose(self._ready(now)) or min(self._keys, key=self._ready_at)
        self._used[key] += 1
        self._last = self._keys.index(key)
        return key

    def cool_until(self, key: str, until: float) -> None:
        """Do not use this key until then."""
        self._cooldowns[key] = max(until, self._ready_at(key))

    def start_cooldown(self, key: str, now: float, seconds: float, reason: str) -> None:
        """Put a key on cooldown, to be stored by `save_cooldowns`."""
        self.cool_until(key, now + seconds)
        if self._store:
            self._unsaved.append((key, seconds, reason))

    async def save_cooldowns(self) -> None:
        """Store the cooldowns that are not stored yet."""
        while self._store and self._unsaved:
            key, seconds, reason = self._unsaved.pop(0)
            await self._store.save(key, seconds, reason, only_key=len(self._keys) == 1)

    def has_ready(self, now: float) -> bool:
        return bool(self._ready(now))

    def _ready(self, now: float) -> list[str]:
        return [key for key in self._keys if self._ready_at(key) <= now]

    def _ready_at(self, key: str) -> float:
        return self._cooldowns.get(key, float("-inf"))

    def _choose(self, ready: Sequence[str]) -> str:
        if not ready:
            return ""
        match self._strategy:
            case KeyStrategy.FILL_FIRST:
                return ready[0]
            case KeyStrategy.ROUND_ROBIN:
                after = (*self._keys[self._last + 1 :], *self._keys)
                return next(key for key in after if key in ready)
            case KeyStrategy.RANDOM:
                return ready[int(self._chance() * len(ready))]
            case KeyStrategy.LEAST_USED:
                return min(ready, key=self._used.__getitem__)
            case _:
                assert_never(self._strategy)
