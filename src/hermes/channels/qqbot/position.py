"""Remember which events were handled, so that a session is resumed after them."""

import logging

import anyio
import anyio.to_thread
from msgspec import Struct

from hermes.channels.qqbot.event_socket import Session
from hermes.channels.state_file import StateFile

log = logging.getLogger(__name__)


class Position(Struct, frozen=True, kw_only=True):
    """Everything up to `sequence` is handled."""

    session: str = ""
    sequence: int = 0


class EventLog:
    """Tracks events in progress and the position before them; `keep_writing` stores that."""

    def __init__(self, file: StateFile[Position]) -> None:
        self._file = file
        self._session = ""
        self._last = 0
        self._under_way: set[int] = set()
        self._changed = anyio.Event()

    async def load(self) -> None:
        stored = await anyio.to_thread.run_sync(self._file.read) or Position()
        self._session, self._last = stored.session, stored.sequence
        self._under_way.clear()

    def opened(self, session: str, sequence: int) -> None:
        """Record that a new session began; QQ repeats nothing from earlier ones."""
        self._session, self._last = session, sequence
        self._under_way.clear()
        self._changed.set()

    def began(self, sequence: int) -> None:
        self._last = max(self._last, sequence)
        if sequence:
            self._under_way.add(sequence)

    def ended(self, sequence: int) -> None:
        self._under_way.discard(sequence)
        self._changed.set()

    def interrupted(self) -> None:
        """Forget events in progress when the connection ends: QQ sends them again."""
        self._last = self.position.sequence
        self._under_way.clear()

    @property
    def session(self) -> Session | None:
        at = self.position
        return Session(id=at.session, sequence=at.sequence) if at.session else None

    @property
    def position(self) -> Position:
        sequence = min(self._under_way) - 1 if self._under_way else self._last
        return Position(session=self._session, sequence=sequence)

    async def keep_writing(self) -> None:
        """Write the position whenever it has changed."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            try:
                await self._file.write(self.position)
            except OSError as error:
                log.warning("the position in QQ's events cannot be stored: %s", error)
