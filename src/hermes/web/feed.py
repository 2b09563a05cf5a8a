"""The numbered events of a profile that pages follow, and resume after a lost connection."""

import json
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import takewhile

import anyio
import msgspec
from msgspec import Struct

MAX_EVENTS = 5_000
MAX_BYTES = 8_000_000
"""Limits on events kept for reconnecting pages; a page that missed more reloads its content."""
MAX_RECENT = 20
"""Sessions that pages loaded last; their events are kept, so that a page can connect to them."""
MAX_SKIPPED = 10_000
MAX_DIGITS = 18


def encode_json(value: object) -> bytes:
    """Encode as JSON, even if a text contains a lone surrogate, which UTF-8 cannot represent."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, enc_hook=str)).encode()


class FeedEvent(Struct, frozen=True, gc=False):
    """`session` is empty for events that concern every page."""

    number: int
    session: str
    kind: str
    data: bytes


class Feed:
    """Events are numbered within a process; `epoch` distinguishes processes."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self._events: deque[FeedEvent] = deque()
        self._bytes = 0
        self._number = 0
        self._dropped = 0
        self._wakeups: set[anyio.Event] = set()
        self._closed = False
        self._watched: dict[str, int] = {}
        self._recent: dict[str, None] = {}
        self._skipped: dict[str, int] = {}

    @property
    def position(self) -> str:
        """The id of the last event."""
        return f"{self.epoch}-{self._number}"

    @property
    def watched(self) -> Sequence[str]:
        """The sessions that pages show now."""
        return list(self._watched)

    def expect(self, session: str) -> None:
        """Record that a page is loading the session and will follow it."""
        self._recent.pop(session, None)
        self._recent[session] = None
        if len(self._recent) > MAX_RECENT:
            del self._recent[next(iter(self._recent))]

    def is_wanted(self, session: str) -> bool:
        """Whether a page shows the session, or loaded it recently."""
        return session in self._watched or session in self._recent

    def skip(self, session: str) -> None:
        """Skip a number for an event that is not published, because no page shows the session."""
        self._number += 1
        self._skipped.pop(session, None)
        self._skipped[session] = self._number
        if len(self._skipped) > MAX_SKIPPED:
            del self._skipped[next(iter(self._skipped))]

    def publish(self, kind: str, data: Mapping[str, object], session: str = "") -> None:
        self._number += 1
        event = FeedEvent(self._number, session, kind, encode_json(data))
        self._events.append(event)
        self._bytes += len(event.data)
        # The last event is kept, whatever its size: without it, no one knows what is missing.
        while len(self._events) > 1 and (len(self._events) > MAX_EVENTS or self._bytes > MAX_BYTES):
            dropped = self._events.popleft()
            self._dropped = dropped.number
            self._bytes -= len(dropped.data)
        self._wake()

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._wake()

    async def follow(self, session: str, after: str) -> AsyncGenerator[Sequence[FeedEvent]]:
        """Yield the events of a session and of all pages, from the event after that id.

        If events are missing, the first one is a `reset`: the page has to load its content again.
        """
        position = self._parse(after)
        if position is None or position < self._skipped.get(session, 0):
            position = self._number
            yield [self._reset()]
        self._watched[session] = self._watched.get(session, 0) + 1
        try:
            while not self._closed:
                if position < self._dropped:
                    position = self._number
                    yield [self._reset()]
                found = self._after(position, session)
                position = self._number
                if found:
                    yield found
                else:
                    await self._next()
        finally:
            self._watched[session] -= 1
            if not self._watched[session]:
                del self._watched[session]

    def _reset(self) -> FeedEvent:
        return FeedEvent(self._number, "", "reset", b"{}")

    def _parse(self, event: str) -> int | None:
        epoch, _, number = event.partition("-")
        if epoch != self.epoch or not number.isdecimal() or len(number) > MAX_DIGITS:
            return None
        return int(number) if int(number) <= self._number else None

    def _after(self, position: int, session: str) -> list[FeedEvent]:
        if not self._events or position >= self._number:
            return []
        fresh = list(takewhile(lambda one: one.number > position, reversed(self._events)))
        return [one for one in reversed(fresh) if not one.session or one.session == session]

    async def _next(self) -> None:
        wakeup = anyio.Event()
        self._wakeups.add(wakeup)
        try:
            await wakeup.wait()
        finally:
            self._wakeups.discard(wakeup)

    def _wake(self) -> None:
        wakeups, self._wakeups = self._wakeups, set()
        for wakeup in wakeups:
            wakeup.set()
