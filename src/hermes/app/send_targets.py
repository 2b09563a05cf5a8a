"""Where a home can send to: its platforms, their home channels, and the chats known by name."""

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
"""Platforms whose variables begin with another word than their name."""


CALL_TYPE = "webhook"
"""The type of what was called once and is over: nobody can be met there again."""
_NAME_MARK = "#"
_DIRECT = "dm"


class KnownChat(Struct, frozen=True):
    """A chat that the gateway has met."""

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
    """`online` are the platforms of a gateway that runs. Raises `ConfigError`."""
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
    """The chats in `channel_directory.json`; what cannot be read there is left out."""
    try:
        whole = msgspec.json.decode(read_regular_file(home.channel_directory), type=_DirectoryFile)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return []
    found: list[KnownChat] = []
    for platform, entries in whole.platforms.items():
        for raw in entries:
            try:
                entry = msgspec.json.decode(raw, type=_DirectoryEntry)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if entry.type != CALL_TYPE:
                found.append(KnownChat(platform, str(entry.id), entry.name, entry.type))
    return found


def resolve_names(targets: Sequence[Target], chats: Sequence[KnownChat]) -> tuple[Target, ...]:
    """The same targets, with names of chats turned into their ids.

    Anybody may name a chat as they like, also by another one's id: a name is one only after a `#`.
    """
    return tuple(
        _resolve_name(one, chats) if isinstance(one, ChatTarget) else one for one in targets
    )


class _DirectoryFile(Struct):
    platforms: dict[str, list[msgspec.Raw]] = {}


class _DirectoryEntry(Struct):
    id: str | int
    name: str = ""
    type: str = ""


def _resolve_name(place: ChatTarget, chats: Sequence[KnownChat]) -> ChatTarget:
    here = [chat for chat in chats if chat.platform == place.platform]
    if not place.chat.startswith(_NAME_MARK) or any(chat.id == place.chat for chat in here):
        return place
    wanted = _bare_name(place.chat)
    ids = {
        chat.id
        for chat in here
        if wanted and chat.type != _DIRECT and _bare_name(chat.name) == wanted
    }
    if len(ids) > 1:
        raise UsageError(
            f"{len(ids)} chats of {place.platform} are named {place.chat!r}: "
            + ", ".join(sorted(ids)),
            hint="Name the one you mean by its id.",
        )
    return ChatTarget(place.platform, ids.pop(), place.thread) if ids else place


def _bare_name(name: str) -> str:
    return name.strip().lstrip(_NAME_MARK).casefold()


def _platforms_from_env(env: Mapping[str, str]) -> Iterator[str]:
    for platform in PLATFORMS:
        names = (f"{platform.prefix}_{suffix}" for suffix, _, _ in platform.variables)
        if any(env.get(name) for name in (*names, f"{platform.prefix}_HOME_CHANNEL")):
            yield _PLATFORM_NAMES.get(platform.prefix, platform.prefix.lower())


def _origin_from_env(env: Mapping[str, str]) -> Address | None:
    """The chat of the turn that runs this command, if one does."""
    platform = env.get("HERMES_SESSION_CHANNEL", "") or env.get("HERMES_SESSION_PLATFORM", "")
    chat = env.get("HERMES_SESSION_CHAT_ID", "")
    if not platform or not chat:
        return None
    return Address(platform, chat, env.get("HERMES_SESSION_THREAD_ID") or None)
