"""What a channel remembers for a while: how often a route was called, and what was taken."""

from collections import deque


class Window:
    """At most `limit` calls in any `seconds`."""

    def __init__(self, limit: int, seconds: float = 60.0) -> None:
        self._limit = limit
        self._seconds = seconds
        self._calls: deque[float] = deque()

    def wait(self, now: float) -> float:
        """Zero when there is room, and then it is taken; else seconds until there is."""
        while self._calls and now - self._calls[0] >= self._seconds:
            self._calls.popleft()
        if len(self._calls) < self._limit:
            self._calls.append(now)
            return 0.0
        return self._calls[0] + self._seconds - now


class Recent:
    """The last `most` names with a word about each; the oldest are forgotten first."""

    def __init__(self, most: int, seconds: float = float("inf")) -> None:
        self._most = most
        self._seconds = seconds
        self._words: dict[str, tuple[str, float]] = {}

    def remember(self, name: str, word: str, now: float) -> None:
        self._words.pop(name, None)
        self._words[name] = (word, now)
        while len(self._words) > self._most:
            del self._words[next(iter(self._words))]

    def recall(self, name: str, now: float) -> str | None:
        word, at = self._words.get(name, (None, now))
        return word if now - at <= self._seconds else None
