"""A messaging platform in memory: people type, posts arrive, and either can go wrong."""

from collections.abc import Awaitable, Callable

import anyio

from hermes.ports.channel import Caps, Inbound, NotSent, Offline, Outgoing, Receipt
from hermes.schema.messages import Text
from hermes.schema.scope import Address


class ChannelDown(Offline, ConnectionError):
    """The platform does not answer."""


class NoSuchPost(NotSent, ValueError):
    """Nothing can be changed, because it is not there."""


class FakeChannel:
    """Passes the channel contract. `posts` is what people see, in the order of arrival.

    `type` hands an update to whoever runs the channel and returns once it was
    acknowledged; the same update may be typed again, as platforms do.
    """

    def __init__(self, name: str = "fake", caps: Caps | None = None) -> None:
        self.name = name
        self.posts: dict[str, tuple[Address, Outgoing]] = {}
        self.typing_in: set[Address] = set()
        self.acknowledged: list[str] = []
        self.down = False
        self._caps = caps or Caps(max_text=4096)
        self._deliver: Callable[[Inbound], Awaitable[None]] | None = None
        self._listening = anyio.Event()
        self._count = 0

    @property
    def caps(self) -> Caps:
        return self._caps

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        self._deliver = deliver
        self._listening.set()
        try:
            await anyio.sleep_forever()
        finally:
            self._deliver = None
            self._listening = anyio.Event()

    async def type(self, update: Inbound) -> None:
        await self._listening.wait()
        if self._deliver is None or self.down:
            raise ChannelDown(f"{self.name} is not listening")
        await self._deliver(update)
        self.acknowledged.append(update.key)

    async def say(self, text: str, *, chat: str = "1", sender: str = "ann") -> Inbound:
        """A person writes something new; returns the update, to be typed again if wanted."""
        self._count += 1
        key = f"{self.name}:{self._count}"
        update = Inbound(key, Address(self.name, chat), sender, (Text(text),))
        await self.type(update)
        return update

    async def send(self, to: Address, post: Outgoing) -> Receipt:
        self._check(to)
        receipt = Receipt(to, f"post-{len(self.posts) + 1}")
        self.posts[receipt.id] = (to, post)
        return receipt

    async def edit(self, receipt: Receipt, post: Outgoing) -> None:
        self._check(receipt.address)
        if receipt.id not in self.posts:
            raise NoSuchPost(f"There is no post {receipt.id}.")
        self.posts[receipt.id] = (receipt.address, post)

    async def typing(self, to: Address, on: bool) -> None:
        self._check(to)
        (self.typing_in.add if on else self.typing_in.discard)(to)

    def seen_in(self, chat: str) -> list[str]:
        """The texts that people in a chat can read, top to bottom."""
        return [
            "".join(part.text for part in post.parts if isinstance(part, Text))
            for to, post in self.posts.values()
            if to.chat == chat
        ]

    def _check(self, to: Address) -> None:
        if self.down:
            raise ChannelDown(f"{self.name} does not answer")
        if to.channel != self.name:
            raise ValueError(f"{to.channel} is not this channel, {self.name}.")
