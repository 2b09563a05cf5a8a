"""List where messages can be sent: platforms, home channels and known chats."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from hermes.config.dotenv import profile_env
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.platforms import PLATFORMS
from hermes.config.sections.messaging import Platform
from hermes.gateway.targets import ChatTarget, Target, home_channels
from hermes.kit.files import read_regular_file
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address

_PLATFORM_NAMES = {
    "QQ": "qqbot",
    "HASS": "homeassistant",
    "MSGRAPH": "msgraph_webhook",
    "TWILIO": "sms",
}
"""Platforms whose variables have a different prefix."""


CALL_TYPE = "webhook"
"""The chat type of single webhook calls, which cannot be sent to."""
_NAME_MARK = "#"
_DIRECT = "dm"


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
    )


def read_directory(home: Home) -> list[KnownChat]:
    """The chats in `channel_directory.json`; unreadable entries are skipped."""
    try:
        directory = msgspec.json.decode(
            read_regular_file(home.channel_directory), type=_DirectoryFile
        )
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return []
    found: list[KnownChat] = []
    for platform, entries in directory.platforms.items():
        for raw in entries:
            try:
                entry = msgspec.json.decode(raw, type=_DirectoryEntry)
            except (msgspec.DecodeError, UnicodeDecodeError):
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


class _DirectoryFile(Struct):
    platforms: dict[str, list[msgspec.Raw]] = {}


class _DirectoryEntry(Struct):
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
            yield _PLATFORM_NAMES.get(platform.prefix, platform.prefix.lower())


def _origin_from_env(env: Mapping[str, str]) -> Address | None:
    """The chat of the turn that runs this command, if any."""
    platform = env.get("HERMES_SESSION_CHANNEL", "") or env.get("HERMES_SESSION_PLATFORM", "")
    chat = env.get("HERMES_SESSION_CHAT_ID", "")
    if not platform or not chat:
        return None
    return Address(platform, chat, env.get("HERMES_SESSION_THREAD_ID") or None)
