"""`gateway.config`: gateway settings and platform names of the public system."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

import msgspec
from msgspec import Struct

from hermes.config.loader import config_from_mapping
from hermes.config.platforms import PLATFORMS
from hermes.config.sections.messaging import Streaming as StreamingConfig

__all__ = ["GatewayConfig", "Platform", "StreamingConfig"]

Platform = StrEnum(
    "Platform",
    {platform.prefix: platform.prefix.lower() for platform in PLATFORMS}
    | {"LOCAL": "local", "CLI": "cli", "API_SERVER": "api_server", "WEBHOOK": "webhook"},
)


class GatewayConfig(Struct, kw_only=True):
    """The settings that decide how sessions are named; `hermes.config` has all of them."""

    multiplex_profiles: bool = False
    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the mapping of a config.yaml, with keys at the root or under `gateway`."""
        config = config_from_mapping(data)
        return cls(
            multiplex_profiles=config.multiplexed,
            group_sessions_per_user=config.group_sessions_per_user,
            thread_sessions_per_user=config.thread_sessions_per_user,
        )

    def to_dict(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)
