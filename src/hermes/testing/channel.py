"""In-memory channels for tests, one of which injects faults."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum, auto

import anyio
from msgspec import structs

from hermes.ports.channel import (
    ChannelCapabilities,
    Inbound,
    Markup,
    MarkupRejected,
    MediaLimits,
    NotSent,
    Offline,
    Outbound,
    PressedButton,
    Receipt,
    TargetGone,
    Throttled,
    Update,
)
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address

THROTTLE_SECONDS = 7.0
FAKE_CAPABILITIES = ChannelCapabilities(
    max_text=4096,
    edit=True,
    typing=True,
    buttons=8,
    media_out=MediaLimits(document=1_000_000),
)


class ChannelDown(Offline, ConnectionError):
    """The platform does not respond."""


class NoSuchPost(NotSent, ValueError):
    """The post to edit does not exist."""


class FakeChannel:
    """An in-memory channel that passes the channel contract.

    `posts` are the visible posts in order of arrival. `type` delivers an update to the runner of
    the channel and returns once it is acknowledged; typing the same update again simulates a
    platform that repeats it.
    """

    def __init__(self, name: str = "fake", caps: ChannelCapabilities | None = None) -> None:
        self.name = name
        self.posts: dict[str, tuple[Address, Outbound]] = {}
        self.typing_in: set[Address] = set()
        self.rejects_markup = False
        self.acknowledged: list[str] = []
        self.down = False
        self._caps = caps or FAKE_CAPABILITIES
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

    async def say(
        self, text: str, *, chat: str = "1", sender: str = "ann", reply_to: str | None = None
    ) -> Inbound:
        """Deliver a new text message and return its update."""
        self._count += 1
        key = f"{self.name}:{self._count}"
        address, message = Address(self.name, chat), f"m-{self._count}"
        update = Inbound(key, address, sender, (Text(text),), reply_to, message)
        await self.type(update)
        return update

    async def change(
        self, update: Update, message: Inbound, *parts: Text | Media, sender: str = "ann"
    ) -> Inbound:
        """Deliver an update about an earlier message and return it."""
        self._count += 1
        about = structs.replace(message.about, mentions=True)
        changed = structs.replace(
            message,
            key=f"{self.name}:{self._count}",
            sender=sender,
            parts=parts,
            update=update,
            about=about,
        )
        await self.type(changed)
        return changed

    async def press(self, post: str, value: str, *, sender: str = "ann") -> Inbound:
        """Press the button of that value below a post."""
        to, shown = self.posts[post]
        if value not in {choice.value for choice in shown.choices}:
            raise NoSuchPost(f"Post {post} has no button {value}.")
        about = Inbound("", to, sender, (), message=post)
        return await self.change(PressedButton(value), about, sender=sender)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        self._check(to)
        if self.rejects_markup and post.markup is not Markup.PLAIN:
            raise MarkupRejected("The platform cannot parse the text.")
        for known, (_, sent) in self.posts.items():
            if self.caps.idempotent and sent.key == post.key != "":
                return Receipt(to, known)
        receipt = Receipt(to, f"post-{len(self.posts) + 1}")
        self.posts[receipt.id] = (to, post)
        return receipt

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        self._check(receipt.address)
        if receipt.id not in self.posts:
            raise NoSuchPost(f"Post {receipt.id} does not exist.")
        self.posts[receipt.id] = (receipt.address, post)

    async def typing(self, to: Address, on: bool) -> None:
        self._check(to)
        (self.typing_in.add if on else self.typing_in.discard)(to)

    def texts_in(self, chat: str) -> list[str]:
        """Return the texts visible in a chat, oldest first."""
        return [post.text for to, post in self.posts.values() if to.chat == chat]

    def _check(self, to: Address) -> None:
        if self.down:
            raise ChannelDown(f"{self.name} does not respond")
        if to.channel != self.name:
            raise ValueError(f"Cannot send to {to.channel}: this channel is {self.name}.")


class SendFault(Enum):
    """The outcome of one call to `send`."""

    NONE = auto()
    REFUSED = auto()
    OFFLINE = auto()
    THROTTLED = auto()
    GONE = auto()
    HANGS = auto()
    LOST_REPLY = auto()
    """The post arrives, but the call fails."""
    NO_ID = auto()
    BREAKS = auto()
    """The post does not arrive, and the error leaves that open."""


class FakeFaultyChannel(FakeChannel):
    """A fake channel whose `send` follows a list of faults, then whatever `chance` returns.

    `reactions` are the reactions set on messages; `seen_at` is returned by `last_seen_at`.
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
        self.seen_at: datetime | None = None

    def last_seen_at(self) -> datetime | None:
        return self.seen_at

    async def react(self, to: Address, message: str, emoji: str) -> None:
        self.reactions.append((message, emoji))

    async def send(self, to: Address, post: Outbound) -> Receipt:
        self.calls += 1
        fault = self.faults.pop(0) if self.faults else self.chance()
        match fault:
            case SendFault.NONE:
                return await super().send(to, post)
            case SendFault.REFUSED:
                raise NotSent("The platform refused the post.")
            case SendFault.OFFLINE:
                raise Offline("No connection to the platform.")
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
    """A chat shows missing, repeated or misordered posts."""


def check_posts(
    expected: Mapping[str, Sequence[str]], seen: Callable[[str], Sequence[str]], mark: str
) -> None:
    """Check that each text arrived once and in order; further copies must start with the mark."""
    for chat, texts in expected.items():
        plain: list[str] = []
        for text in seen(chat):
            bare = text.removeprefix(mark)
            if bare in plain:
                if text == bare:
                    raise UnexpectedPosts(f"{chat}: {text!r} arrived twice without the mark")
                continue
            plain.append(bare)
        if plain != list(texts):
            raise UnexpectedPosts(f"{chat}: expected {list(texts)}, saw {plain}")
