"""Remember the time up to which everything is handled, and the bot's threads.

After an outage, messages since then are fetched. Without the file, only messages that arrived while
no gateway ran would be missed.
"""

import logging
from collections import OrderedDict
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct

from hermes.channels.state_file import StateFile
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap

log = logging.getLogger(__name__)

MAX_THREADS = 1_000
MAX_REMEMBERED = 5_000
MAX_CHATS = 2_000
IDLE_WRITE = timedelta(seconds=60)
"""Seconds by which the stored time may lag while nothing happens."""


class StoredPosition(Struct, frozen=True, kw_only=True):
    """`threads` are `chat:thread`, the latest last; `teams` the workspaces of chats."""

    handled_until: datetime | None = None
    threads: tuple[str, ...] = ()
    teams: dict[str, str] = {}


class Position:
    """Tracks what is in progress and what was handled; `keep_writing` stores it in a file."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = StateFile(path, StoredPosition)
        self._clock = clock
        self._until: datetime | None = None
        self._under_way: dict[int, datetime] = {}
        self._numbers = count()
        self._threads: OrderedDict[str, None] = OrderedDict()
        self._teams: OrderedDict[str, str] = OrderedDict()
        self._stored: LruMap[str, bool] = LruMap(MAX_REMEMBERED)
        """Keys of updates that are durable, so that a search does not deliver them again."""
        self._changed = anyio.Event()

    async def load(self) -> None:
        stored = await anyio.to_thread.run_sync(self._file.read) or StoredPosition()
        self._until = stored.handled_until
        self._threads = OrderedDict.fromkeys(stored.threads) | self._threads
        self._teams = OrderedDict(stored.teams) | self._teams
        self._under_way.clear()

    def began(self, since: datetime | None = None) -> int:
        """Record the start of an event or a search; return its number for `ended`."""
        number = next(self._numbers)
        self._under_way[number] = since or self._clock.now()
        return number

    def ended(self, number: int) -> None:
        arrived = self._under_way.pop(number, None)
        if arrived is not None:
            self._until = max(arrived, self._until or arrived)
        self._changed.set()

    def mark_stored(self, key: str) -> None:
        self._stored.put(key, True)

    def is_stored(self, key: str) -> bool:
        return self._stored.get(key) is not None

    def is_alive(self) -> None:
        """Record that the connection works; if nothing is in progress, all is handled."""
        now = self._clock.now()
        if not self._under_way and (self._until is None or now - self._until > IDLE_WRITE):
            self._until = now
            self._changed.set()

    @property
    def handled_until(self) -> datetime | None:
        return min(self._under_way.values(), default=self._until)

    def join(self, chat: str, thread: str) -> None:
        """The bot takes part in the thread."""
        name = f"{chat}:{thread}"
        is_new = name not in self._threads
        self._threads[name] = None
        self._threads.move_to_end(name)
        while len(self._threads) > MAX_THREADS:
            self._threads.popitem(last=False)
        if is_new:
            self._changed.set()

    def takes_part(self, chat: str, thread: str) -> bool:
        return f"{chat}:{thread}" in self._threads

    def threads_in(self, chat: str) -> list[str]:
        return [name.partition(":")[2] for name in self._threads if name.startswith(f"{chat}:")]

    def set_team(self, chat: str, team: str) -> None:
        if self._teams.get(chat) == team:
            return
        self._teams[chat] = team
        while len(self._teams) > MAX_CHATS:
            self._teams.popitem(last=False)
        self._changed.set()

    def team_of(self, chat: str) -> str:
        return self._teams.get(chat, "")

    @property
    def stored(self) -> StoredPosition:
        return StoredPosition(
            handled_until=self.handled_until,
            threads=tuple(self._threads),
            teams=dict(self._teams),
        )

    async def keep_writing(self) -> None:
        """Write the position whenever it has changed."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            try:
                await self._file.write(self.stored)
            except OSError as error:
                log.warning("the position in Slack's messages cannot be stored: %s", error)
