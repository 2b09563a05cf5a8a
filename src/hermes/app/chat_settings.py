"""Look up the settings of a chat: its platform, permissions, overrides and prompt."""

from collections.abc import Mapping
from functools import cached_property

import msgspec
from msgspec import Struct, structs

from hermes.config.platforms import FACTS
from hermes.config.schema import Config
from hermes.config.sections.general import DisplayPlatform
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
from hermes.ports.channel_options import convert_options
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address, Role, own_channel, platform_of


class ChatSettings(Struct, dict=True):
    """Settings of chats, without those of the running gateway (`app.gateway`)."""

    config: Config
    _permissions: dict[str, Mapping[Role, RolePermissions]] = {}
    _sections: dict[str, ChatPlatform | Discord | Matrix] = {}
    _overrides: dict[str, Mapping[str, ChannelOverride]] = {}

    @cached_property
    def _channels(self) -> Mapping[str, Platform]:
        return channel_settings(self.config.platforms)

    def platform(self, name: str) -> Platform:
        """The settings of a platform, or of one of its accounts."""
        return self._channels.get(name) or self._channels.get(platform_of(name)) or Platform()

    def section(self, channel: str) -> ChatPlatform | Discord | Matrix:
        """The behavior of a platform, or of one of its accounts, in groups."""
        if channel in self._sections:
            return self._sections[channel]
        section: object = getattr(self.config, platform_of(channel), None)
        is_known = isinstance(section, ChatPlatform | Discord | Matrix)
        kind = type(section) if is_known else ChatPlatform
        extra = self.platform(channel).extra
        options = {name: extra[name] for name in kind.__struct_fields__ if name in extra}
        try:
            self._sections[channel] = convert_options(kind, options)
        except msgspec.ValidationError as error:
            raise ConfigError(f"platforms.{channel}.extra: {error}") from error
        return self._sections[channel]

    def permissions(self, platform: str, role: Role) -> RolePermissions:
        """What people with this role may do on a platform."""
        if platform not in FACTS and platform not in self.config.platforms:
            return DEFAULT_PERMISSIONS[role]  # a session outside chats, such as in the terminal
        if platform not in self._permissions:
            authenticates = authenticated_role(platform) is not None
            defaults = AUTHENTICATED_PERMISSIONS if authenticates else DEFAULT_PERMISSIONS
            extra = self.platform(platform).extra
            self._permissions[platform] = role_permissions_from(extra, defaults)
        return self._permissions[platform][role]

    def override(self, address: Address) -> ChannelOverride:
        """Settings of one chat that override the profile's."""
        channel = own_channel(address.channel)
        if channel not in self._overrides:
            self._overrides[channel] = self.platform(channel).channel_overrides
        overrides = self._overrides[channel]
        override = overrides.get(address.thread or "") or overrides.get(address.chat)
        return override or ChannelOverride()

    def shows_tools(self, platform: str, override: ChannelOverride | None = None) -> bool:
        """Whether a platform, or one of its chats, shows the tools that a turn uses."""
        level: bool | str = self.config.display.tool_progress
        for display in (self.config.display.platforms.get(platform), override):
            if display is not None and display.tool_progress is not None:
                level = display.tool_progress
        return level not in {"off", "none", False}

    def change_tool_progress(self, platform: str, level: str) -> None:
        """Apply a new level to the turns that start from now on."""
        own = self.config.display.platforms.get(platform) or DisplayPlatform()
        platforms = {
            **self.config.display.platforms,
            platform: structs.replace(own, tool_progress=level),
        }
        display = structs.replace(self.config.display, platforms=platforms)
        self.config = structs.replace(self.config, display=display)

    def prompt(self, address: Address) -> str:
        """The part of the prompt about the chat."""
        platform = platform_of(address.channel)
        channel = own_channel(address.channel)
        section = self._sections.get(channel) or self.section(channel)
        prompts: Mapping[str, str] = section.channel_prompts
        hint = self.config.platform_hints.get(platform)
        parts = [
            hint if isinstance(hint, str) else "",
            prompts.get(address.thread or "") or prompts.get(address.chat, ""),
            self.override(address).system_prompt,
        ]
        return "\n\n".join(part.strip() for part in parts if part.strip())
