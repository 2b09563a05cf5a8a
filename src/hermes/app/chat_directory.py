"""The chats a profile has met, in `channel_directory.json`, so that people can name them."""

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
"""Chats of one platform; those that were met last are kept."""

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
    """`meet` is cheap; `run` writes what is new, now and then, and at its end."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._chats: dict[str, dict[str, DirectoryChat]] = {}
        self._changed = anyio.Event()

    def meet(self, inbound: Inbound) -> None:
        about, address = inbound.about, inbound.address
        if platform_of(address.channel) != address.channel:
            # Somebody else's account: by the platform's name alone it could not be reached.
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
        """Until cancelled; begins with what an earlier process knew."""
        for platform, chats in (await run_sync(self._read)).items():
            met = self._chats.get(platform, {})
            known = (
                _directory_chat(one.id, one.name, one.type)
                for one in chats
                if one.type != CALL_TYPE
            )
            self._chats[platform] = {chat.id: chat for chat in known} | met
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
        # What does not count as changed any more is on its way to the disk, also at the end.
        with anyio.CancelScope(shield=True):
            try:
                await run_sync(self._write, self._whole())
            except (OSError, ValueError) as error:
                log.warning("%s cannot be written: %s", self._path, error)

    def _read(self) -> Mapping[str, list[DirectoryChat]]:
        try:
            data = read_regular_file(self._path)
        except (OSError, ValueError):
            return {}
        try:
            return msgspec.json.decode(data, type=_DirectoryFile, strict=False).platforms
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self._begin_anew(error)
            return {}

    def _begin_anew(self, error: Exception) -> None:
        try:
            kept = keep_aside(self._path, self._clock.now())
        except OSError as failure:
            log.warning("%s is damaged and cannot be kept: %s", self._path, failure)
            return
        log.warning("%s is damaged (%s); it is kept as %s", self._path, error, kept)

    def _whole(self) -> _DirectoryFile:
        """A copy, because chats are met while a thread writes."""
        platforms = {name: list(chats.values()) for name, chats in self._chats.items()}
        return _DirectoryFile(self._clock.now().isoformat(), platforms)

    def _write(self, whole: _DirectoryFile) -> None:
        write_atomic(self._path, msgspec.json.encode(whole), mode=0o600)


def _directory_chat(chat: str, name: str, kind: str) -> DirectoryChat:
    """A direct chat is named as whoever is in it pleases: nobody is found by such a name."""
    name = "" if kind == _DIRECT else name
    return DirectoryChat(_encodable(chat), _encodable(name), _encodable(kind))


def _encodable(text: str) -> str:
    """Half a character, as some platforms let through, fits into no file."""
    return text.encode(errors="replace").decode()
