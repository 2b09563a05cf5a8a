"""Where a home can send to: its platforms, their home channels, and the chats known by name."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from hermes.config.dotenv import env_of
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.load import load_config
from hermes.config.platforms import PLATFORMS
from hermes.config.sections.chats import Platform
from hermes.gateway.targets import Place, Target, homes_from
from hermes.kit.files import read_ordinary
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address

_NAMES = {"QQ": "qqbot", "HASS": "homeassistant", "MSGRAPH": "msgraph_webhook", "TWILIO": "sms"}
"""Platforms whose variables begin with another word than their name."""


CALL = "webhook"
"""The type of what was called once and is over: nobody can be met there again."""
_MARK = "#"
_DIRECT = "dm"


class Known(Struct, frozen=True):
    """A chat that the gateway has met."""

    platform: str
    id: str
    name: str = ""
    type: str = ""


class Places(Struct, frozen=True):
    platforms: frozenset[str]
    homes: Mapping[str, Address]
    chats: Sequence[Known]
    origin: Address | None = None


def places_of(home: Home, process: Env, online: Sequence[str] = ()) -> Places:
    """`online` are the platforms of a gateway that runs. Raises `ConfigError`."""
    env = env_of(home.dotenv, process)
    settings = dict(load_config(home, env).config.platforms)
    for name in (*_from_variables(env), *online):
        settings.setdefault(name, Platform())
    chats = read_directory(home)
    return Places(
        frozenset({*settings, *(chat.platform for chat in chats)}),
        homes_from(env, settings),
        chats,
        _origin(process),
    )


def read_directory(home: Home) -> list[Known]:
    """The chats in `channel_directory.json`; what cannot be read there is left out."""
    try:
        whole = msgspec.json.decode(read_ordinary(home.channel_directory), type=_Directory)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return []
    found: list[Known] = []
    for platform, entries in whole.platforms.items():
        for raw in entries:
            try:
                entry = msgspec.json.decode(raw, type=_Entry)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if entry.type != CALL:
                found.append(Known(platform, str(entry.id), entry.name, entry.type))
    return found


def by_name(targets: Sequence[Target], chats: Sequence[Known]) -> tuple[Target, ...]:
    """The same targets, with names of chats turned into their ids.

    Anybody may name a chat as they like, also by another one's id: a name is one only after a `#`.
    """
    return tuple(_by_name(one, chats) if isinstance(one, Place) else one for one in targets)


class _Directory(Struct):
    platforms: dict[str, list[msgspec.Raw]] = {}


class _Entry(Struct):
    id: str | int
    name: str = ""
    type: str = ""


def _by_name(place: Place, chats: Sequence[Known]) -> Place:
    here = [chat for chat in chats if chat.platform == place.platform]
    if not place.chat.startswith(_MARK) or any(chat.id == place.chat for chat in here):
        return place
    wanted = _bare(place.chat)
    ids = {
        chat.id for chat in here if wanted and chat.type != _DIRECT and _bare(chat.name) == wanted
    }
    if len(ids) > 1:
        raise UsageError(
            f"{len(ids)} chats of {place.platform} are named {place.chat!r}: "
            + ", ".join(sorted(ids)),
            hint="Name the one you mean by its id.",
        )
    return Place(place.platform, ids.pop(), place.thread) if ids else place


def _bare(name: str) -> str:
    return name.strip().lstrip(_MARK).casefold()


def _from_variables(env: Mapping[str, str]) -> Iterator[str]:
    for platform in PLATFORMS:
        names = (f"{platform.prefix}_{suffix}" for suffix, _, _ in platform.variables)
        if any(env.get(name) for name in (*names, f"{platform.prefix}_HOME_CHANNEL")):
            yield _NAMES.get(platform.prefix, platform.prefix.lower())


def _origin(env: Mapping[str, str]) -> Address | None:
    """The chat of the turn that runs this command, if one does."""
    platform = env.get("HERMES_SESSION_CHANNEL", "") or env.get("HERMES_SESSION_PLATFORM", "")
    chat = env.get("HERMES_SESSION_CHAT_ID", "")
    if not platform or not chat:
        return None
    return Address(platform, chat, env.get("HERMES_SESSION_THREAD_ID") or None)
