"""Remember the chats of a profile in `channel_directory.json`, so they can be found by name."""

import logging
from collections.abc import Mapping
from pathlib import Path

import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.app.send_targets import CALL_TYPE
from hermes.gateway.messages import platform_of
from hermes.kit.clock import Clock
from hermes.kit.files import keep_aside, read_regular_file, write_atomic
from hermes.ports.channel import Inbound

log = logging.getLogger(__name__)

MAX_CHATS = 500
"""Per platform; the most recently seen chats are kept."""

SAVE_INTERVAL = 30.0

_DIRECT = "dm"


class DirectoryChat(Struct, frozen=True):
    id: str
    name: str = ""
    type: str = ""


class _DirectoryFile(Struct):
    updated_at: str = ""
    platforms: dict[str, list[DirectoryChat]] = {}


class ChatDirectory:
    """Collects chats in memory; `run` saves new ones periodically and at its end."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._chats: dict[str, dict[str, DirectoryChat]] = {}
        self._changed = anyio.Event()

    def record(self, inbound: Inbound) -> None:
        about, address = inbound.about, inbound.address
        if platform_of(address.channel) != address.channel:
            # Another profile's account: the platform name alone would not reach it.
            return
        if about.chat_type == CALL_TYPE:
            return
        chat = _directory_chat(address.chat, about.chat_name, about.chat_type)
        known = self._chats.setdefault(platform_of(address.channel), {})
        if known.pop(chat.id, None) != chat:
            self._changed.set()
        known[chat.id] = chat
        while len(known) > MAX_CHATS:
            del known[next(iter(known))]

    async def run(self) -> None:
        """Save changes until cancelled; starts with the chats saved earlier."""
        for platform, chats in (await run_sync(self._read)).items():
            seen = self._chats.get(platform, {})
            known = (
                _directory_chat(chat.id, chat.name, chat.type)
                for chat in chats
                if chat.type != CALL_TYPE
            )
            self._chats[platform] = {chat.id: chat for chat in known} | seen
        try:
            while True:
                await self._changed.wait()
                await self._save()
                await self._clock.sleep(SAVE_INTERVAL)
        finally:
            if self._changed.is_set():
                await self._save()

    async def _save(self) -> None:
        self._changed = anyio.Event()
        # The change is no longer flagged, so it must be saved even when cancelled.
        with anyio.CancelScope(shield=True):
            try:
                await run_sync(self._write, self._snapshot())
            except (OSError, ValueError) as error:
                log.warning("cannot write %s: %s", self._path, error)

    def _read(self) -> Mapping[str, list[DirectoryChat]]:
        try:
            data = read_regular_file(self._path)
        except (OSError, ValueError):
            return {}
        try:
            return msgspec.json.decode(data, type=_DirectoryFile, strict=False).platforms
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self._move_damaged(error)
            return {}

    def _move_damaged(self, error: Exception) -> None:
        try:
            backup = keep_aside(self._path, self._clock.now())
        except OSError as failure:
            log.warning("%s is damaged and cannot be moved aside: %s", self._path, failure)
            return
        log.warning("%s is damaged (%s); moved to %s", self._path, error, backup)

    def _snapshot(self) -> _DirectoryFile:
        """A copy, because chats are added while a thread writes it."""
        platforms = {name: list(chats.values()) for name, chats in self._chats.items()}
        return _DirectoryFile(self._clock.now().isoformat(), platforms)

    def _write(self, whole: _DirectoryFile) -> None:
        write_atomic(self._path, msgspec.json.encode(whole), mode=0o600)


def _directory_chat(chat: str, name: str, kind: str) -> DirectoryChat:
    """Direct chats get no name: their users choose it, so it must not be used to find them."""
    name = "" if kind == _DIRECT else name
    return DirectoryChat(_encodable(chat), _encodable(name), _encodable(kind))


def _encodable(text: str) -> str:
    """Replace lone surrogates, which some platforms send and no file can hold."""
    return text.encode(errors="replace").decode()
