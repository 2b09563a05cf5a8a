"""`gateway.platforms.base`: what an old adapter says of itself, as a channel of ours has it."""

from hermes.ports.channel import ChannelCapabilities


class BasePlatformAdapter:
    """`supports_async_delivery`: whether something can be told after the turn that promised it."""

    supports_async_delivery: bool = ChannelCapabilities(max_text=0).later
