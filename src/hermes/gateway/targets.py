"""Where something is to be delivered: the words people write, and the addresses they mean."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias, assert_never

from msgspec import Struct

from hermes.config.sections.chats import HomeChannel, Platform
from hermes.gateway.settings import home_variables
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address

_PLATFORM = re.compile(r"[a-z][a-z0-9_-]*")
_ON_SERVER = re.compile(
    r"(?P<chat>[!@][^:]+:[^:]+(?::\d+)?|\#[^:]+:(?:[^:]*\.[^:]*|localhost)(?::\d+)?)"
    r"(?::(?P<thread>\$.+))?"
)
"""Rooms that carry the name of their server behind a colon; their threads begin with a dollar."""


class Origin(Struct, frozen=True):
    """Where the request came from."""


class Local(Struct, frozen=True):
    """Nowhere: into a file of the home."""


class Everywhere(Struct, frozen=True):
    """All home channels."""


class HomeOf(Struct, frozen=True):
    """The home channel of a platform."""

    platform: str


class Place(Struct, frozen=True):
    """A chat by its id, or by a name that the channel directory knows."""

    platform: str
    chat: str
    thread: str | None = None


Target: TypeAlias = Origin | Local | Everywhere | HomeOf | Place


class Missing(StrEnum):
    """Why a target leads nowhere."""

    NO_ORIGIN = "no_origin"
    NO_HOME = "no_home"
    NO_HOME_ANYWHERE = "no_home_anywhere"
    UNKNOWN_PLATFORM = "unknown_platform"


class Unreached(Struct, frozen=True):
    target: Target
    why: Missing


class Destinations(Struct, frozen=True):
    """Each address once, in the order it was named; `local` when a file is wanted, too.

    What leads nowhere is in `unreached`, to be told; its text then goes into a file.
    """

    addresses: tuple[Address, ...] = ()
    local: bool = False
    unreached: tuple[Unreached, ...] = ()


def parse_targets(text: str) -> tuple[Target, ...]:
    """Targets parted by commas, each once. Raises `UsageError` for what is none."""
    words = [word.strip() for word in text.split(",")]
    targets = dict.fromkeys(_target(word) for word in words if word)
    if not targets:
        raise _no_target(text)
    return tuple(targets)


def homes_from(env: Mapping[str, str], platforms: Mapping[str, Platform]) -> dict[str, Address]:
    """The home channel of each platform that has one; a variable wins over the settings."""
    homes: dict[str, Address] = {}
    for name, settings in platforms.items():
        home = _from_variables(name, env) or _configured(name, settings.home_channel)
        if home is not None:
            homes[name] = Address(home.platform, home.chat, home.thread)
    return homes


def resolve(
    targets: Sequence[Target],
    homes: Mapping[str, Address],
    *,
    origin: Address | None = None,
    platforms: Iterable[str] = (),
) -> Destinations:
    """The addresses that targets mean; `platforms` are those that can be sent to besides."""
    known = {*homes, *platforms, *([origin.channel] if origin else [])}
    found: dict[Address, None] = {}
    local = False
    unreached: list[Unreached] = []
    for target in targets:
        if isinstance(target, Local):
            local = True
            continue
        reached = _reach(target, homes, origin, known)
        if isinstance(reached, Missing):
            unreached.append(Unreached(target, reached))
        else:
            found.update(dict.fromkeys(reached))
    return Destinations(tuple(found), local or bool(unreached), tuple(unreached))


def _reach(
    target: Origin | Everywhere | HomeOf | Place,
    homes: Mapping[str, Address],
    origin: Address | None,
    known: Collection[str],
) -> list[Address] | Missing:
    match target:
        case Origin():
            return [origin] if origin else list(homes.values())[:1] or Missing.NO_ORIGIN
        case Everywhere():
            return list(homes.values()) or Missing.NO_HOME_ANYWHERE
        case HomeOf(platform) | Place(platform) if platform not in known:
            return Missing.UNKNOWN_PLATFORM
        case HomeOf(platform):
            return [homes[platform]] if platform in homes else Missing.NO_HOME
        case Place(platform, chat, thread):
            return [Address(platform, chat, thread)]
        case _:
            assert_never(target)


def _target(word: str) -> Target:
    match word.lower():
        case "origin":
            return Origin()
        case "local":
            return Local()
        case "all":
            return Everywhere()
        case _:
            return _on_platform(word)


def _on_platform(word: str) -> Target:
    name, colon, rest = word.partition(":")
    platform = name.strip().lower()
    if not _PLATFORM.fullmatch(platform) or (colon and not rest.strip(": ")):
        raise _no_target(word)
    return _place(platform, rest.strip()) if colon else HomeOf(platform)


def _place(platform: str, text: str) -> Place:
    if found := _ON_SERVER.fullmatch(text):
        return Place(platform, found["chat"], found["thread"])
    chat, _, thread = text.partition(":")
    if not chat.strip():
        raise _no_target(f"{platform}:{text}")
    return Place(platform, chat.strip(), thread.strip() or None)


def _from_variables(platform: str, env: Mapping[str, str]) -> Place | None:
    for name in home_variables(platform):
        if chat := env.get(name, "").strip():
            return Place(platform, chat, env.get(f"{name}_THREAD_ID", "").strip() or None)
    return None


def _configured(platform: str, home: HomeChannel | str | None) -> Place | None:
    match home:
        case HomeChannel(chat_id=chat, thread_id=thread) if chat:
            return Place(platform, chat, thread or None)
        case str() if home.strip():
            return _place(platform, home.strip())
        case _:
            return None


def _no_target(text: str) -> UsageError:
    return UsageError(
        f"{text.strip()!r} is no place to deliver to",
        hint="Write origin, local, all, a platform, or platform:chat[:thread]; or several of them "
        "with commas between.",
    )
