"""Cache recently used transcripts, so that the next turn need not read them again.

A cached transcript is valid if no other process held the session in between, that is, if the
lease's generation follows directly on the cached one.
"""

from collections import OrderedDict

from msgspec import Struct

from hermes.agent.history import History

MAX_BYTES = 5_000_000
"""Total memory limit."""

BYTES_PER_MESSAGE = 1_000
"""Overhead of a message in addition to its text."""


class _CachedTranscript(Struct, frozen=True):
    generation: int
    history: History
    size: int


class TranscriptCache:
    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._limit = limit
        self._cached: OrderedDict[str, _CachedTranscript] = OrderedDict()
        self._size = 0

    def take(self, session: str, generation: int) -> History | None:
        """Take the current transcript out of the cache; None if it must be read from the store."""
        cached = self._cached.pop(session, None)
        if cached is None:
            return None
        self._size -= cached.size
        return cached.history if cached.generation + 1 == generation else None

    def put(self, session: str, generation: int, history: History) -> None:
        """Put a transcript back; the least recently used ones are evicted."""
        self.take(session, -1)
        size = history.memory_bytes + BYTES_PER_MESSAGE * len(history)
        self._cached[session] = _CachedTranscript(generation, history, size)
        self._size += size
        while self._size > self._limit:
            _, oldest = self._cached.popitem(last=False)
            self._size -= oldest.size
