"""`gateway.platforms.base`: what an old adapter says of itself, as a channel of ours has it."""

from hermes.ports.channel import Caps


class BasePlatformAdapter:
    """`supports_async_delivery`: whether something can be told after the turn that promised it."""

    supports_async_delivery: bool = Caps(max_text=0).later
