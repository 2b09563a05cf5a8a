"""Remember which events were handled, so that the next process continues after them."""

import logging
from collections import OrderedDict
from datetime import datetime, timedelta

import anyio
import anyio.to_thread
from msgspec import Struct

from hermes.channels.discord.gateway_connection import GatewayEvent, ResumePoint
from hermes.channels.state_file import StateFile
from hermes.kit.clock import Clock

log = logging.getLogger(__name__)

MAX_DIRECT = 200
"""Maximum number of direct chats, the latest, that are searched for missed messages."""
OVERLAP = timedelta(seconds=60)
"""Overlap when fetching missed messages: clocks differ, and the gateway ignores repetitions."""


class Position(Struct, frozen=True, kw_only=True):
    """The last handled event, the time before which everything is handled, and direct chats."""

    session: str = ""
    url: str = ""
    sequence: int = 0
    handled_until: datetime | None = None
    direct: tuple[str, ...] = ()

    @property
    def resume_point(self) -> ResumePoint | None:
        if not self.session or not self.url:
            return None
        return ResumePoint(session=self.session, url=self.url, sequence=self.sequence)


class EventLog:
    """Tracks events in progress and the position before them; `keep_writing` stores it in a file.

    Without its file, only messages that arrived while no gateway ran would be missed.
    """

    def __init__(self, file: StateFile[Position], clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._session, self._url, self._last = "", "", 0
        self._until: datetime | None = None
        self._replayed_since: datetime | None = None
        """Set while Discord replays events: since when they were missed."""
        self._under_way: dict[tuple[str, int], datetime] = {}
        """When events in progress arrived or were missed, by session and number."""
        self._searches: dict[str, datetime] = {}
        """Chats whose missed messages are being fetched, and since when they are missed."""
        self._direct: OrderedDict[str, None] = OrderedDict()
        self._changed = anyio.Event()

    async def load(self) -> Position:
        stored = await anyio.to_thread.run_sync(self._file.read) or Position()
        self._session, self._url, self._last = stored.session, stored.url, stored.sequence
        self._until = stored.handled_until
        self._replayed_since = stored.handled_until if stored.resume_point else None
        self._direct = OrderedDict.fromkeys(stored.direct)
        self._under_way.clear()
        self._searches.clear()
        return stored

    def opened(self, session: str, url: str) -> None:
        """Record that a new session began."""
        self._session, self._url, self._last = session, url, 0
        self._replayed_since = None

    def caught_up(self) -> None:
        """Record that Discord has replayed everything."""
        self._replayed_since = None

    def began(self, event: GatewayEvent) -> None:
        self._last = event.sequence
        arrived = self._replayed_since or self._clock.now()
        self._under_way[event.session, event.sequence] = arrived

    def ended(self, event: GatewayEvent) -> None:
        arrived = self._under_way.pop((event.session, event.sequence), None)
        if arrived is not None:
            self._until = max(arrived, self._until or arrived)
        self._changed.set()

    def began_search(self, chat: str, since: datetime) -> None:
        self._searches[chat] = since

    def ended_search(self, chat: str) -> None:
        self._searches.pop(chat, None)
        self._changed.set()

    def add_direct(self, chat: str) -> None:
        self._direct[chat] = None
        self._direct.move_to_end(chat)
        while len(self._direct) > MAX_DIRECT:
            self._direct.popitem(last=False)

    @property
    def direct(self) -> tuple[str, ...]:
        return tuple(self._direct)

    @property
    def position(self) -> Position:
        moments = [*self._under_way.values(), *self._searches.values()]
        if self._replayed_since is not None:
            moments.append(self._replayed_since)
        until = min(moments) if moments else self._until
        numbers = [number for session, number in self._under_way if session == self._session]
        if self._searches or len(numbers) < len(self._under_way):
            # Discord would replay neither what is being fetched nor events of an older session.
            return Position(handled_until=until, direct=self.direct)
        sequence = min(numbers) - 1 if numbers else self._last
        return Position(
            session=self._session,
            url=self._url,
            sequence=sequence,
            handled_until=until,
            direct=self.direct,
        )

    async def keep_writing(self) -> None:
        """Write the position whenever it has changed."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            try:
                await self._file.write(self.position)
            except OSError as error:
                log.warning("the position in Discord's events cannot be stored: %s", error)
