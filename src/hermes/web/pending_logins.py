"""Logins that have begun, such as a challenge to a passkey: each can be finished once, and soon."""

import secrets
from typing import Generic, TypeVar

from hermes.kit.clock import Clock

T = TypeVar("T")

LIFETIME = 600.0
MAX_PER_ADDRESS = 20
MAX_ALL = 1000


class PendingLogins(Generic[T]):
    """Values by random token. One address cannot push out what others have begun."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: dict[str, tuple[str, float, T]] = {}

    def add(self, address: str, value: T) -> str:
        now = self._clock.monotonic()
        self._begun = {key: one for key, one in self._begun.items() if now - one[1] < LIFETIME}
        own = [key for key, one in self._begun.items() if one[0] == address]
        oldest = own[:1] if len(own) >= MAX_PER_ADDRESS else list(self._begun)[: -MAX_ALL + 1]
        for key in oldest:
            del self._begun[key]
        token = secrets.token_urlsafe(32)
        self._begun[token] = address, now, value
        return token

    def take(self, token: str) -> T | None:
        """The value, the first time and within its lifetime."""
        found = self._begun.pop(token, None)
        if found is None or self._clock.monotonic() - found[1] >= LIFETIME:
            return None
        return found[2]
