"""Remember the handled messages of an IRC network, and the nicknames of accounts."""

import logging
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.channels.state_file import StateFile

log = logging.getLogger(__name__)

MAX_IDS = 500
MAX_NICKS = 500
OVERLAP = timedelta(seconds=5)
"""How far back messages are fetched again: some servers store their times in seconds only."""


class _File(Struct, kw_only=True):
    account: str
    started: datetime | None = None
    until: datetime | None = None
    ids: list[str] = []
    nicks: dict[str, str] = {}


class IrcRecords:
    """The records of one `account`, in a file that `keep_writing` writes.

    Everything up to `until` is handled. It does not advance while missed messages are handled, so
    that a later process fetches them again.
    """

    def __init__(self, path: Path, account: str) -> None:
        self._state = StateFile(path, _File)
        self._account = account
        stored = self._state.read()
        if stored is None or stored.account != account:
            stored = _File(account=account)
        self._started = stored.started
        self._until = stored.until
        self._seen_until = stored.until
        self._ids = deque(stored.ids, MAX_IDS)
        self._nicks = stored.nicks
        self._catching_up = False
        self._changed = anyio.Event()

    @property
    def missed_since(self) -> datetime | None:
        """Return the time since which messages may have been missed; None at the first start."""
        if self._until is None or self._started is None:
            return None
        # Messages from before the first start are not answered.
        return max(self._until - OVERLAP, self._started.replace(microsecond=0))

    def is_handled(self, message_id: str) -> bool:
        return message_id in self._ids

    def is_missed(self, at: datetime) -> bool:
        """Whether a message of the server's history may have been missed."""
        since = self.missed_since
        return since is not None and at >= since

    def begin(self, now: datetime) -> None:
        """Record that a connection is open; missed messages are fetched next."""
        self._catching_up = True
        self._started = self._started or now
        self._seen_until = self._seen_until or now

    def caught_up(self) -> None:
        self._catching_up = False
        self._until = self._seen_until
        self._changed.set()

    def handled(self, message_id: str, at: datetime) -> None:
        if message_id:
            self._ids.append(message_id)
        self._seen_until = max(at, self._seen_until or at)
        if not self._catching_up:
            self._until = self._seen_until
        self._changed.set()

    def nick_of(self, account: str) -> str:
        """Return the nickname an account was last seen under; empty if it was never seen."""
        return self._nicks.get(account, "")

    def remember_nick(self, account: str, nick: str) -> None:
        if self._nicks.get(account) == nick:
            return
        self._nicks.pop(account, None)
        self._nicks[account] = nick
        while len(self._nicks) > MAX_NICKS:
            del self._nicks[next(iter(self._nicks))]
        self._changed.set()

    async def keep_writing(self) -> None:
        """Write the records whenever they have changed."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            await self.write()

    async def write(self) -> None:
        file = _File(
            account=self._account,
            started=self._started,
            until=self._until,
            ids=list(self._ids),
            nicks=self._nicks,
        )
        try:
            await self._state.write(file)
        except OSError as error:
            log.warning("the position in IRC's messages cannot be stored: %s", error)
