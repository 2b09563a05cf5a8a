"""A messaging platform in memory: people type, posts arrive, and either can go wrong."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum, auto

import anyio

from hermes.ports.channel import (
    ChannelCapabilities,
    Inbound,
    NotSent,
    Offline,
    Outbound,
    Receipt,
    TargetGone,
    Throttled,
)
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

    def __init__(self, name: str = "fake", caps: ChannelCapabilities | None = None) -> None:
        self.name = name
        self.posts: dict[str, tuple[Address, Outbound]] = {}
        self.typing_in: set[Address] = set()
        self.acknowledged: list[str] = []
        self.down = False
        self._caps = caps or ChannelCapabilities(max_text=4096)
        self._deliver: Callable[[Inbound], Awaitable[None]] | None = None
        self._listening = anyio.Event()
        self._count = 0

    @property
    def caps(self) -> ChannelCapabilities:
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

    async def send(self, to: Address, post: Outbound) -> Receipt:
        self._check(to)
        receipt = Receipt(to, f"post-{len(self.posts) + 1}")
        self.posts[receipt.id] = (to, post)
        return receipt

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        self._check(receipt.address)
        if receipt.id not in self.posts:
            raise NoSuchPost(f"There is no post {receipt.id}.")
        self.posts[receipt.id] = (receipt.address, post)

    async def typing(self, to: Address, on: bool) -> None:
        self._check(to)
        (self.typing_in.add if on else self.typing_in.discard)(to)

    def texts_in(self, chat: str) -> list[str]:
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


THROTTLE_SECONDS = 7.0


class SendFault(Enum):
    """How one call to `send` goes wrong."""

    NONE = auto()
    REFUSED = auto()
    OFFLINE = auto()
    THROTTLED = auto()
    GONE = auto()
    HANGS = auto()
    LOST_REPLY = auto()
    """It arrives, but we are told of an error."""
    NO_ID = auto()
    BREAKS = auto()
    """It does not arrive, and the error does not say so."""


class FakeFaultyChannel(FakeChannel):
    """A fake channel whose calls to `send` go wrong by plan, or as `chance` says when it is over.

    `reactions` are the signs given to messages; `heard` is the last proof of life.
    """

    def __init__(
        self,
        *faults: SendFault,
        name: str = "fake",
        caps: ChannelCapabilities | None = None,
        chance: Callable[[], SendFault] = lambda: SendFault.NONE,
    ) -> None:
        super().__init__(name, caps)
        self.faults = list(faults)
        self.chance = chance
        self.calls = 0
        self.reactions: list[tuple[str, str]] = []
        self.heard: datetime | None = None

    def last_seen_at(self) -> datetime | None:
        return self.heard

    async def react(self, to: Address, message: str, sign: str) -> None:
        self.reactions.append((message, sign))

    async def send(self, to: Address, post: Outbound) -> Receipt:
        self.calls += 1
        fault = self.faults.pop(0) if self.faults else self.chance()
        match fault:
            case SendFault.NONE:
                return await super().send(to, post)
            case SendFault.REFUSED:
                raise NotSent("The platform said no.")
            case SendFault.OFFLINE:
                raise Offline("There is no connection.")
            case SendFault.THROTTLED:
                raise Throttled("Too many posts.", wait=THROTTLE_SECONDS)
            case SendFault.GONE:
                raise TargetGone("The chat was deleted.")
            case SendFault.HANGS:
                await anyio.sleep_forever()
                raise AssertionError("unreachable")
            case SendFault.LOST_REPLY:
                await super().send(to, post)
                raise ConnectionError("the connection broke after the post")
            case SendFault.NO_ID:
                return Receipt(to, "")
            case SendFault.BREAKS:
                raise ConnectionError("the connection broke before the post")


class UnexpectedPosts(AssertionError):
    """Somebody saw too little, too much, or in the wrong order."""


def check_posts(
    expected: Mapping[str, Sequence[str]], seen: Callable[[str], Sequence[str]], mark: str
) -> None:
    """Each text arrives, in order, once; a second copy only with the mark before it."""
    for chat, texts in expected.items():
        plain: list[str] = []
        for text in seen(chat):
            bare = text.removeprefix(mark)
            if bare in plain:
                if text == bare:
                    raise UnexpectedPosts(f"{chat}: {text!r} came twice, and nothing said so")
                continue
            plain.append(bare)
        if plain != list(texts):
            raise UnexpectedPosts(f"{chat}: expected {list(texts)}, saw {plain}")
