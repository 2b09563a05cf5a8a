"""The known chats of a profile, kept in `channel_directory.json`, and targets of messages."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.config.env import Env, profile_env
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.platforms import PLATFORMS
from hermes.config.sections.messaging import Platform
from hermes.gateway.targets import ChatTarget, Target, home_channels, home_names
from hermes.kit.clock import Clock
from hermes.kit.files import file_signature, keep_aside, read_regular_file, write_atomic
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import Inbound
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address, own_channel

log = logging.getLogger(__name__)

MAX_CHATS = 500
"""Per platform; the most recently seen chats are kept."""

SAVE_INTERVAL = 30.0
CALL_TYPE = "webhook"
"""The chat type of single webhook calls, which cannot be sent to."""
_DIRECT = "dm"
_NAME_MARK = "#"


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
        # For another profile's account, the platform name alone would not reach it.
        if own_channel(address.channel) != address.channel or about.chat_type == CALL_TYPE:
            return
        chat = _directory_chat(address.chat, about.chat_name, about.chat_type)
        known = self._chats.setdefault(address.channel, {})
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
                platforms = {name: list(chats.values()) for name, chats in self._chats.items()}
                whole = _DirectoryFile(self._clock.now().isoformat(), platforms)
                data = msgspec.json.encode(whole)
                await run_sync(partial(write_atomic, self._path, data, mode=0o600))
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


def _directory_chat(chat: str, name: str, kind: str) -> DirectoryChat:
    """Direct chats get no name: their users choose it, so it must not be used to find them."""
    name = "" if kind == _DIRECT else name
    return DirectoryChat(_encodable(chat), _encodable(name), _encodable(kind))


def _encodable(text: str) -> str:
    """Replace lone surrogates, which some platforms send and no file can hold."""
    return text.encode(errors="replace").decode()


class KnownChat(Struct, frozen=True):
    """A chat that the gateway has seen."""

    platform: str
    id: str
    name: str = ""
    type: str = ""


class SendTargets(Struct, frozen=True):
    platforms: frozenset[str]
    homes: Mapping[str, Address]
    chats: Sequence[KnownChat]
    origin: Address | None = None
    home_names: Mapping[str, str] = {}


def load_send_targets(home: Home, process: Env, online: Sequence[str] = ()) -> SendTargets:
    """`online` are the platforms of a running gateway. Raises `ConfigError`."""
    env = profile_env(home.dotenv, process)
    settings = dict(load_config(home, env).config.platforms)
    for name in (*_platforms_from_env(env), *online):
        settings.setdefault(name, Platform())
    chats = read_directory(home)
    return SendTargets(
        frozenset({*settings, *(chat.platform for chat in chats)}),
        home_channels(env, settings),
        chats,
        _origin_from_env(process),
        home_names(env, settings),
    )


class CachedSendTargets:
    """Reads the targets of a home again only after one of its files was changed."""

    def __init__(self, home: Home, process: Env) -> None:
        self._home = home
        self._process = process
        self._signature: object = None
        self._known: dict[tuple[str, ...], SendTargets] = {}

    def load(self, online: Sequence[str] = ()) -> SendTargets:
        """As `load_send_targets`."""
        files = (self._home.config, self._home.dotenv, self._home.channel_directory)
        signature = tuple(map(file_signature, files))
        if self._signature != signature:
            self._known.clear()
            self._signature = signature
        key = tuple(online)
        if key not in self._known:
            self._known[key] = load_send_targets(self._home, self._process, key)
        return self._known[key]


def read_directory(home: Home) -> list[KnownChat]:
    """The chats in `channel_directory.json`; unreadable entries are skipped."""
    try:
        directory = msgspec.json.decode(
            read_regular_file(home.channel_directory), type=_StoredDirectory
        )
    except (OSError, *JSON_ERRORS):
        return []
    found: list[KnownChat] = []
    for platform, entries in directory.platforms.items():
        for raw in entries:
            try:
                entry = msgspec.json.decode(raw, type=_StoredChat)
            except JSON_ERRORS:
                continue
            if entry.type != CALL_TYPE:
                found.append(KnownChat(platform, str(entry.id), entry.name, entry.type))
    return found


def resolve_names(targets: Sequence[Target], chats: Sequence[KnownChat]) -> tuple[Target, ...]:
    """Replace chat names in targets by ids.

    Only names after a `#` are looked up, since anyone may name a chat like another one's id.
    """
    return tuple(
        _resolve_name(target, chats) if isinstance(target, ChatTarget) else target
        for target in targets
    )


class _StoredDirectory(Struct):
    platforms: dict[str, list[msgspec.Raw]] = {}


class _StoredChat(Struct):
    id: str | int
    name: str = ""
    type: str = ""


def _resolve_name(target: ChatTarget, chats: Sequence[KnownChat]) -> ChatTarget:
    known = [chat for chat in chats if chat.platform == target.platform]
    if not target.chat.startswith(_NAME_MARK) or any(chat.id == target.chat for chat in known):
        return target
    wanted = _bare_name(target.chat)
    ids = {
        chat.id
        for chat in known
        if wanted and chat.type != _DIRECT and _bare_name(chat.name) == wanted
    }
    if len(ids) > 1:
        raise UsageError(
            f"{len(ids)} {target.platform} chats are named {target.chat!r}: "
            + ", ".join(sorted(ids)),
            hint="Use the id instead.",
        )
    return ChatTarget(target.platform, ids.pop(), target.thread) if ids else target


def _bare_name(name: str) -> str:
    return name.strip().lstrip(_NAME_MARK).casefold()


def _platforms_from_env(env: Mapping[str, str]) -> Iterator[str]:
    for platform in PLATFORMS:
        names = (f"{platform.prefix}_{suffix}" for suffix, _, _ in platform.variables)
        if any(env.get(name) for name in (*names, f"{platform.prefix}_HOME_CHANNEL")):
            yield platform.platform


def _origin_from_env(env: Mapping[str, str]) -> Address | None:
    """The chat of the turn that runs this command, if any."""
    platform = env.get("HERMES_SESSION_CHANNEL", "") or env.get("HERMES_SESSION_PLATFORM", "")
    chat = env.get("HERMES_SESSION_CHAT_ID", "")
    if not platform or not chat:
        return None
    return Address(platform, chat, env.get("HERMES_SESSION_THREAD_ID") or None)
