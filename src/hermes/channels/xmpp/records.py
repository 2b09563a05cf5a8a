"""Remember between runs how far each archive of an XMPP account was read."""

import logging
from collections import deque
from datetime import datetime
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.channels.state_file import StateFile

log = logging.getLogger(__name__)

MAX_KEYS = 500


class ArchivePosition(Struct, frozen=True):
    """The last handled message of an archive; the id is empty if there was none."""

    id: str
    at: datetime


class _File(Struct, kw_only=True):
    account: str
    archives: dict[str, ArchivePosition] = {}
    keys: list[str] = []


class XmppRecords:
    """The records of one `account`, in a file that `keep_writing` writes."""

    def __init__(self, path: Path, account: str) -> None:
        self._state = StateFile(path, _File)
        self._account = account
        stored = self._state.read()
        if stored is None or stored.account != account:
            stored = _File(account=account)
        self._archives = stored.archives
        self._keys = deque(stored.keys, MAX_KEYS)
        self._changed = anyio.Event()

    def position(self, archive: str) -> ArchivePosition | None:
        """Return the position; None if the archive was never read."""
        return self._archives.get(archive)

    def is_handled(self, keys: tuple[str, ...]) -> bool:
        return any(key in self._keys for key in keys)

    def handled(self, keys: tuple[str, ...]) -> None:
        self._keys.extend(keys)
        self._changed.set()

    def advance(self, archive: str, position: ArchivePosition) -> None:
        self._archives[archive] = position
        self._changed.set()

    async def keep_writing(self) -> None:
        """Write the records whenever they have changed."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            await self.write()

    async def write(self) -> None:
        file = _File(account=self._account, archives=self._archives, keys=list(self._keys))
        try:
            await self._state.write(file)
        except OSError as error:
            log.warning("the position in XMPP's archives cannot be stored: %s", error)
