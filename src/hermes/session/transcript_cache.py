"""Transcripts that were just used, so that the next turn need not read them again.

A kept transcript is right as long as nobody else held the session in between, and the
lease tells: its next generation then follows directly on the kept one.
"""

from collections import OrderedDict

from msgspec import Struct

from hermes.agent.history import History

MAX_BYTES = 5_000_000
"""How many bytes of memory are taken in all."""

BYTES_PER_MESSAGE = 1_000
"""Bytes that a message takes besides its words."""


class _CachedTranscript(Struct, frozen=True):
    generation: int
    history: History
    size: int


class TranscriptCache:
    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, _CachedTranscript] = OrderedDict()
        self._size = 0

    def take(self, session: str, generation: int) -> History | None:
        """The transcript as of now, to be given back by `keep`; None when it must be read."""
        kept = self._kept.pop(session, None)
        if kept is None:
            return None
        self._size -= kept.size
        return kept.history if kept.generation + 1 == generation else None

    def keep(self, session: str, generation: int, history: History) -> None:
        """Remember it; the ones that were not used for longest make room."""
        self.take(session, -1)
        size = history.held + BYTES_PER_MESSAGE * len(history)
        self._kept[session] = _CachedTranscript(generation, history, size)
        self._size += size
        while self._size > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self._size -= oldest.size
