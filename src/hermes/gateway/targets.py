"""Parse delivery targets and resolve them to addresses."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias, assert_never

from msgspec import Struct

from hermes.config.platforms import facts_of
from hermes.config.sections.messaging import HomeChannel, Platform, channel_settings
from hermes.gateway.platform_settings import home_variables, parse_list, platform_variable
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address

_PLATFORM = re.compile(r"[a-z][a-z0-9_-]*(?:/[a-z0-9_-]+)?")
"""A platform, or `platform/account`."""
_ON_SERVER = re.compile(
    r"(?P<chat>[!@][^:]+:[^:]+(?::\d+)?|\#[^:]+:(?:[^:]*\.[^:]*|localhost)(?::\d+)?)"
    r"(?::(?P<thread>\$.+))?"
)
"""Rooms with a server name after a colon; their threads begin with a dollar sign."""


class OriginTarget(Struct, frozen=True):
    """The chat the request came from."""


class LocalTarget(Struct, frozen=True):
    """A file in the home instead of a chat."""


class AllHomesTarget(Struct, frozen=True):
    """All home channels."""


class HomeTarget(Struct, frozen=True):
    """The home channel of a platform."""

    platform: str


class ChatTarget(Struct, frozen=True):
    """A chat by its id, or by a name that the channel directory knows."""

    platform: str
    chat: str
    thread: str | None = None


Target: TypeAlias = OriginTarget | LocalTarget | AllHomesTarget | HomeTarget | ChatTarget
_NAMED_TARGETS: Mapping[str, Target] = {
    "origin": OriginTarget(),
    "local": LocalTarget(),
    "all": AllHomesTarget(),
}


class UnresolvedReason(StrEnum):
    NO_ORIGIN = "no_origin"
    NO_HOME = "no_home"
    NO_HOME_ANYWHERE = "no_home_anywhere"
    UNKNOWN_PLATFORM = "unknown_platform"


class UnresolvedTarget(Struct, frozen=True):
    target: Target
    reason: UnresolvedReason


class ResolvedTargets(Struct, frozen=True):
    """Unique addresses in order; `local` if a file is wanted, too.

    The text for unresolved targets goes into a file.
    """

    addresses: tuple[Address, ...] = ()
    local: bool = False
    unresolved: tuple[UnresolvedTarget, ...] = ()


def parse_targets(text: str) -> tuple[Target, ...]:
    """Parse comma-separated targets; raises `UsageError` for an invalid one."""
    parts = [part.strip() for part in text.split(",")]
    targets = dict.fromkeys(_target(part) for part in parts if part)
    if not targets:
        raise _invalid_target(text)
    return tuple(targets)


def home_channels(
    env: Mapping[str, str], platforms: Mapping[str, Platform], channels: Iterable[str] = ()
) -> dict[str, Address]:
    """Return the home channels; environment variables override settings.

    `channels` may have no settings, because variables configure them.
    """
    homes: dict[str, Address] = {}
    unset = dict.fromkeys(channels, Platform())
    for name, settings in {**unset, **channel_settings(platforms)}.items():
        # The variables are those of the platform's first account.
        named = None if "/" in name else _from_variables(name, env)
        home = named or _configured(name, settings.home_channel)
        if home is not None:
            homes[name] = Address(home.platform, home.chat, home.thread)
    return homes


def home_names(env: Mapping[str, str], platforms: Mapping[str, Platform]) -> dict[str, str]:
    """Return the names that people gave their home channels."""
    names: dict[str, str] = {}
    for channel, settings in channel_settings(platforms).items():
        home = settings.home_channel
        stored = home.name if isinstance(home, HomeChannel) else ""
        variables = () if "/" in channel else home_variables(channel)
        from_env = (env.get(f"{one}_NAME", "").strip() for one in variables)
        if name := next(filter(None, (*from_env, stored)), ""):
            names[channel] = name
    return names


def resolve_targets(
    targets: Sequence[Target],
    homes: Mapping[str, Address],
    *,
    origin: Address | None = None,
    platforms: Iterable[str] = (),
) -> ResolvedTargets:
    """Resolve targets; `platforms` can be sent to in addition to those with a home."""
    known = {*homes, *platforms, *([origin.channel] if origin else [])}
    found: dict[Address, None] = {}
    local = False
    unresolved: list[UnresolvedTarget] = []
    for target in targets:
        if isinstance(target, LocalTarget):
            local = True
            continue
        resolved = _addresses(target, homes, origin, known)
        if isinstance(resolved, UnresolvedReason):
            unresolved.append(UnresolvedTarget(target, resolved))
        else:
            found.update(dict.fromkeys(resolved))
    return ResolvedTargets(tuple(found), local or bool(unresolved), tuple(unresolved))


def target_name(target: Target) -> str:
    """Return the text that `parse_targets` reads as this target."""
    match target:
        case HomeTarget(platform):
            return platform
        case ChatTarget(platform, chat, thread):
            return address_name(Address(platform, chat, thread))
        case OriginTarget():
            return "origin"
        case LocalTarget():
            return "local"
        case AllHomesTarget():
            return "all"


def address_name(address: Address) -> str:
    return ":".join(filter(None, [address.channel, address.chat, address.thread]))


def _addresses(
    target: OriginTarget | AllHomesTarget | HomeTarget | ChatTarget,
    homes: Mapping[str, Address],
    origin: Address | None,
    known: Collection[str],
) -> list[Address] | UnresolvedReason:
    match target:
        case OriginTarget():
            return [origin] if origin else list(homes.values())[:1] or UnresolvedReason.NO_ORIGIN
        case AllHomesTarget():
            return list(homes.values()) or UnresolvedReason.NO_HOME_ANYWHERE
        case HomeTarget(platform) | ChatTarget(platform) if platform not in known:
            return UnresolvedReason.UNKNOWN_PLATFORM
        case HomeTarget(platform):
            return [homes[platform]] if platform in homes else UnresolvedReason.NO_HOME
        case ChatTarget(platform, chat, thread):
            return [Address(platform, chat, thread)]
        case _:
            assert_never(target)


def _target(word: str) -> Target:
    if (named := _NAMED_TARGETS.get(word.lower())) is not None:
        return named
    name, colon, rest = word.partition(":")
    platform = name.strip().lower()
    if not _PLATFORM.fullmatch(platform) or (colon and not rest.strip(": ")):
        raise _invalid_target(word)
    return _chat_target(platform, rest.strip()) if colon else HomeTarget(platform)


def _chat_target(platform: str, text: str) -> ChatTarget:
    if found := _ON_SERVER.fullmatch(text):
        return ChatTarget(platform, found["chat"], found["thread"])
    chat, _, thread = text.partition(":")
    if not chat.strip():
        raise _invalid_target(f"{platform}:{text}")
    return ChatTarget(platform, chat.strip(), thread.strip() or None)


def _from_variables(platform: str, env: Mapping[str, str]) -> ChatTarget | None:
    for name in home_variables(platform):
        if chat := env.get(name, "").strip():
            return ChatTarget(platform, chat, env.get(f"{name}_THREAD_ID", "").strip() or None)
    other = facts_of(platform).other_home
    listed = parse_list(env.get(platform_variable(platform, other), "")) if other else ()
    # The text after a space is the key of the chat.
    return ChatTarget(platform, listed[0].partition(" ")[0]) if listed else None


def _configured(platform: str, home: HomeChannel | str | None) -> ChatTarget | None:
    match home:
        case HomeChannel(chat_id=chat, thread_id=thread) if chat:
            return ChatTarget(platform, chat, thread or None)
        case str() if home.strip():
            return _chat_target(platform, home.strip())
        case _:
            return None


def _invalid_target(text: str) -> UsageError:
    return UsageError(
        f"{text.strip()!r} is not a delivery target.",
        hint="Use origin, local, all, a platform or platform:chat[:thread], separated by commas.",
    )
