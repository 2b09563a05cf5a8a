"""Settings that depend on the chat: platform, permissions, overrides, prompts."""

from collections.abc import Mapping
from functools import cache

from hermes.config.schema import Config
from hermes.config.sections.messaging import (
    ChannelOverride,
    ChatPlatform,
    Discord,
    Matrix,
    Platform,
)
from hermes.gateway.authorization import AUTHENTICATED_PLATFORMS
from hermes.gateway.messages import platform_of
from hermes.gateway.roles import (
    AUTHENTICATED_PERMISSIONS,
    DEFAULT_PERMISSIONS,
    RolePermissions,
    role_permissions_from,
)
from hermes.schema.scope import Address, Role, Scope


class ChatSettings:
    """Cheap enough for a single question from a terminal; `app.gateway` has the rest."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._permissions = cache(self._permissions_on)

    def platform(self, name: str) -> Platform:
        return self._config.platforms.get(name) or Platform()

    def section(self, platform: str) -> ChatPlatform | Discord | Matrix | None:
        """The platform's own top-level section of the settings."""
        config = self._config
        sections: Mapping[str, ChatPlatform | Discord | Matrix] = {
            "discord": config.discord,
            "telegram": config.telegram,
            "slack": config.slack,
            "mattermost": config.mattermost,
            "whatsapp": config.whatsapp,
            "matrix": config.matrix,
        }
        return sections.get(platform)

    def permissions(self, platform: str, role: Role) -> RolePermissions:
        return self._permissions(platform)[role]

    def override(self, address: Address | None) -> ChannelOverride:
        """Settings of one chat that override the profile's."""
        if address is None:
            return ChannelOverride()
        overrides = self.platform(platform_of(address.channel)).channel_overrides
        override = overrides.get(address.thread or "") or overrides.get(address.chat)
        return override or ChannelOverride()

    def prompt(self, scope: Scope) -> str:
        """The part of the prompt about the chat."""
        if scope.address is None:
            return ""
        platform = platform_of(scope.address.channel)
        section = self.section(platform)
        prompts: Mapping[str, str] = section.channel_prompts if section else {}
        hint = self._config.platform_hints.get(platform)
        parts = [
            hint if isinstance(hint, str) else "",
            prompts.get(scope.address.thread or "") or prompts.get(scope.address.chat, ""),
            self.override(scope.address).system_prompt,
        ]
        return "\n\n".join(part.strip() for part in parts if part.strip())

    def _permissions_on(self, platform: str) -> Mapping[Role, RolePermissions]:
        known = platform in AUTHENTICATED_PLATFORMS
        defaults = AUTHENTICATED_PERMISSIONS if known else DEFAULT_PERMISSIONS
        return role_permissions_from(self.platform(platform).extra, defaults)
