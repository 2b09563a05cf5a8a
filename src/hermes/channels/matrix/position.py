"""Remember the sync token of an account between runs, and events that cannot be read yet."""

from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct

from hermes.channels.matrix.objects import Event
from hermes.channels.state_file import StateFile
from hermes.kit.errors import TemporaryError

MAX_WAITING = 200


class WaitingEvent(Struct, kw_only=True):
    """An event whose key has not arrived; `shown` once the sender was notified."""

    room: str
    event: Event
    since: float
    shown: bool = False


class _File(Struct, kw_only=True):
    user: str = ""
    device: str = ""
    token: str = ""
    encrypted: list[str] = []
    waiting: list[WaitingEvent] = []
    joining: dict[str, str] = {}


class Position:
    """Everything before `token` is handled, except for the events in `waiting`.

    `encrypted` are the rooms that are known to be encrypted; `joining` are the rooms that were
    joined but not yet read, and who invited us.
    """

    def __init__(self, path: Path) -> None:
        self._stored = StateFile(path, _File)
        self._file = _File()
        self._encrypted: set[str] = set()
        self._writing = anyio.Lock()

    async def load(self, user: str, device: str) -> None:
        """Read the file; a position of another account is ignored."""
        stored = await anyio.to_thread.run_sync(self._stored.read) or _File()
        self._encrypted |= set(stored.encrypted)
        if stored.user != user:
            stored = _File()
        elif stored.device != device:
            # The missing keys would be sent to the old device.
            stored.waiting = []
        stored.user, stored.device = user, device
        self._file = stored

    @property
    def token(self) -> str:
        return self._file.token

    @property
    def waiting(self) -> list[WaitingEvent]:
        return self._file.waiting

    @property
    def joining(self) -> dict[str, str]:
        return self._file.joining

    @property
    def encrypted(self) -> set[str]:
        return self._encrypted

    def mark_encrypted(self, room: str) -> None:
        self._encrypted.add(room)

    def add_waiting(self, waiting_event: WaitingEvent) -> None:
        """Add an event; only the newest are kept."""
        if all(known.event.event_id != waiting_event.event.event_id for known in self.waiting):
            self.waiting.append(waiting_event)
            del self.waiting[:-MAX_WAITING]

    async def advance(self, token: str) -> None:
        """Store that everything before `token` is handled. Raises `TemporaryError`."""
        self._file.token = token
        await self.save()

    async def save(self) -> None:
        self._file.encrypted = sorted(self._encrypted)
        async with self._writing:
            try:
                await self._stored.write(self._file)
            except OSError as error:
                raise TemporaryError(f"The position cannot be stored: {error}.") from error
