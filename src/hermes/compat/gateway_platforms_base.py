"""`gateway.platforms.base`: the base class of platform adapters."""

from hermes.ports.channel import ChannelCapabilities


class BasePlatformAdapter:
    """`supports_async_delivery`: whether messages can be sent after the turn has ended."""

    supports_async_delivery: bool = ChannelCapabilities(max_text=0).async_delivery
