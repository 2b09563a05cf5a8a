"""Remember how far each channel was handled, so that the next process continues there."""

import logging

import anyio
import anyio.to_thread
from msgspec import Struct

from hermes.channels.state_file import StateFile

log = logging.getLogger(__name__)


class Position(Struct, frozen=True, kw_only=True):
    """The time of the last handled post per channel; in others everything since `began` is new.

    Times are the server's, in milliseconds.
    """

    began: int = 0
    channels: dict[str, int] = {}


class Cursors:
    """The position; `keep_writing` stores it in a file."""

    def __init__(self, file: StateFile[Position]) -> None:
        self._file = file
        self._began = 0
        self._channels: dict[str, int] = {}
        self._changed = anyio.Event()

    async def load(self) -> bool:
        """Load the position; return False if there is none, then call `begin`."""
        stored = await anyio.to_thread.run_sync(self._file.read) or Position()
        self._began, self._channels = stored.began, dict(stored.channels)
        return bool(stored.began)

    async def begin(self, at: int) -> None:
        """Start with an empty position: everything from now on is new."""
        self._began = at
        await self._file.write(self._position)

    def position(self, channel: str) -> int:
        return self._channels.get(channel, self._began)

    def advance(self, channel: str, at: int) -> None:
        if at > self.position(channel):
            self._channels[channel] = at
            self._changed.set()

    @property
    def _position(self) -> Position:
        return Position(began=self._began, channels=self._channels)

    async def keep_writing(self) -> None:
        """Write the position whenever it has changed."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            try:
                await self._file.write(self._position)
            except OSError as error:
                log.warning("the position in Mattermost's channels cannot be stored: %s", error)
