"""What a profile's settings say about a talk by where it goes on, and who asks there."""

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
from hermes.gateway.authorization import is_authenticated_platform
from hermes.gateway.messages import platform_of
from hermes.gateway.roles import (
    AUTHENTICATED_PERMISSIONS,
    DEFAULT_PERMISSIONS,
    RolePermissions,
    role_permissions_from,
)
from hermes.schema.scope import Address, Role, Scope


class ChatSettings:
    """Light enough for a single question from a terminal; `chat_rules` has the rest."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._powers = cache(self._permissions_on)

    def platform(self, name: str) -> Platform:
        return self._config.platforms.get(name) or Platform()

    def section(self, platform: str) -> ChatPlatform | Discord | Matrix | None:
        """The platform's own section at the root of the settings."""
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

    def powers(self, platform: str, role: Role) -> RolePermissions:
        return self._powers(platform)[role]

    def override(self, address: Address | None) -> ChannelOverride:
        """What one chat is given in place of the profile's own."""
        if address is None:
            return ChannelOverride()
        given = self.platform(platform_of(address.channel)).channel_overrides
        return given.get(address.thread or "") or given.get(address.chat) or ChannelOverride()

    def prompt(self, scope: Scope) -> str:
        """What the prompt says about the place where the talk goes on."""
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
        usual = (
            AUTHENTICATED_PERMISSIONS
            if is_authenticated_platform(platform)
            else DEFAULT_PERMISSIONS
        )
        return role_permissions_from(self.platform(platform).extra, usual)
