"""Settings that depend on the chat: platform, permissions, overrides, prompts."""

from collections.abc import Mapping
from functools import cache

import msgspec
from msgspec import structs

from hermes.config.schema import Config
from hermes.config.sections import FreeTable
from hermes.config.sections.messaging import (
    ChannelOverride,
    ChatPlatform,
    Discord,
    Matrix,
    Platform,
    channel_settings,
)
from hermes.gateway.roles import (
    AUTHENTICATED_PERMISSIONS,
    DEFAULT_PERMISSIONS,
    RolePermissions,
    authenticated_role,
    role_permissions_from,
)
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address, Role, own_channel, platform_of


class ChatSettings:
    """Cheap enough for a single question from a terminal; `app.gateway` has the rest."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._channels = {
            name: structs.replace(one, extra={**one.extra, **_set_in_section(config, name)})
            for name, one in channel_settings(config.platforms).items()
        }
        self._permissions = cache(self._permissions_on)

    def platform(self, name: str) -> Platform:
        """The settings of a platform, or of one of its accounts."""
        known = self._channels.get(name) or self._channels.get(platform_of(name))
        return known or Platform(extra=_set_in_section(self._config, name))

    def section(self, platform: str) -> ChatPlatform | Discord | Matrix:
        """The platform's section of the settings, with the same keys of `extra` below it."""
        kind = type(_root_section(self._config, platform) or ChatPlatform())
        given = self.platform(platform).extra
        known = {name: given[name] for name in kind.__struct_fields__ if name in given}
        try:
            return msgspec.convert(known, kind, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(f"platforms.{platform}.extra: {error}") from error

    def permissions(self, platform: str, role: Role) -> RolePermissions:
        return self._permissions(platform)[role]

    def override(self, address: Address) -> ChannelOverride:
        """Settings of one chat that override the profile's."""
        overrides = self.platform(own_channel(address.channel)).channel_overrides
        override = overrides.get(address.thread or "") or overrides.get(address.chat)
        return override or ChannelOverride()

    def prompt(self, address: Address) -> str:
        """The part of the prompt about the chat."""
        platform = platform_of(address.channel)
        section = self.section(platform)
        prompts: Mapping[str, str] = section.channel_prompts
        hint = self._config.platform_hints.get(platform)
        parts = [
            hint if isinstance(hint, str) else "",
            prompts.get(address.thread or "") or prompts.get(address.chat, ""),
            self.override(address).system_prompt,
        ]
        return "\n\n".join(part.strip() for part in parts if part.strip())

    def _permissions_on(self, platform: str) -> Mapping[Role, RolePermissions]:
        known = authenticated_role(platform) is not None
        defaults = AUTHENTICATED_PERMISSIONS if known else DEFAULT_PERMISSIONS
        return role_permissions_from(self.platform(platform).extra, defaults)


def _root_section(config: Config, platform: str) -> ChatPlatform | Discord | Matrix | None:
    section: object = getattr(config, platform, None)
    return section if isinstance(section, ChatPlatform | Discord | Matrix) else None


def _set_in_section(config: Config, channel: str) -> FreeTable:
    """What the section at the root of the file sets for a platform; it wins over `extra`."""
    if (section := _root_section(config, platform_of(channel))) is None:
        return {}
    unset = type(section)()
    values = {name: getattr(section, name) for name in section.__struct_fields__}
    return {name: value for name, value in values.items() if value != getattr(unset, name)}
