"""The channel for the fake platform, which polls and posts over HTTP like real drivers."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import aiohttp
import anyio
import msgspec
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.ports.channel import (
    Attachment,
    ChangedReaction,
    ChannelCapabilities,
    DeletedMessage,
    EditedMessage,
    Inbound,
    InboundDetails,
    MediaLimits,
    NewMessage,
    NotSent,
    Offline,
    Outbound,
    PressedButton,
    Receipt,
    TargetGone,
    Throttled,
)
from hermes.ports.channel import Update as HappenedUpdate
from hermes.ports.store import Blobs
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from support.chat_platform.server import Posting, Reaction, Typing, Updates
from support.chat_platform.state import Update, WrittenMessage

POLL_SECONDS = 20.0
TEST_CAPABILITIES = ChannelCapabilities(
    max_text=400,
    groups=True,
    edit=True,
    typing=True,
    reactions=True,
    buttons=8,
    media_out=MediaLimits(document=1_000_000),
)


class _CallResult(Struct):
    id: str = ""
    wait: float = 1.0


class PlatformChannel:
    """Implements `Channel` with editing, typing, reactions and liveness; never retries."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        clock: Clock,
        account: str,
        name: str = "test",
        blobs: Blobs | None = None,
    ) -> None:
        self._blobs = blobs
        self._session = session
        self._clock = clock
        self._account = account
        self._name = name
        self._seen_at: datetime | None = None
        self.caps = TEST_CAPABILITIES

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        """Poll for updates; each poll acknowledges the previous batch, which is durable by then."""
        cursor, acked, alive = 0, 0, False
        while True:
            # Do not wait on the first poll, nor with a batch to acknowledge.
            wait = POLL_SECONDS if alive and cursor == acked else 0.0
            query = {"cursor": str(cursor), "wait": str(wait)}
            async with self._session.get(f"/{self._account}/updates", params=query) as response:
                response.raise_for_status()
                updates = msgspec.json.decode(await response.read(), type=Updates).updates
            self._seen_at, alive = self._clock.now(), True
            if cursor != acked:
                failpoint("channel.after_ack")
            acked = cursor
            await self._deliver(updates, deliver)
            cursor = updates[-1].n if updates else cursor

    async def send(self, to: Address, post: Outbound) -> Receipt:
        self._check(to)
        buttons = {choice.value: choice.label for choice in post.choices}
        files = {one.media.name: await self._read(one) for one in post.attachments}
        text = post.text or " ".join(one.caption for one in post.attachments)
        posting = Posting(to.chat, text, post.reply_to, buttons, files)
        result = await self._call("POST", "posts", posting)
        return Receipt(to, result.id)

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        self._check(receipt.address)
        await self._call("PUT", f"posts/{receipt.id}", Posting(text=post.text))

    async def typing(self, to: Address, on: bool) -> None:
        await self._call("POST", "typing", Typing(to.chat, on))

    async def react(self, to: Address, message: str, sign: str) -> None:
        await self._call("POST", "signs", Reaction(to.chat, message, sign))

    def last_seen_at(self) -> datetime | None:
        return self._seen_at

    async def _deliver(
        self, updates: Sequence[Update], deliver: Callable[[Inbound], Awaitable[None]]
    ) -> None:
        """Deliver chats concurrently, and the messages of one chat in order."""
        chats: dict[str, list[Inbound]] = {}
        for update in updates:
            chats.setdefault(update.spoken.chat, []).append(self._inbound(update))

        async def deliver_in_order(inbounds: Sequence[Inbound]) -> None:
            for inbound in inbounds:
                await deliver(inbound)

        try:
            async with anyio.create_task_group() as group:
                for inbounds in chats.values():
                    group.start_soon(deliver_in_order, inbounds)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def _inbound(self, update: Update) -> Inbound:
        spoken = update.spoken
        address = Address(self._name, spoken.chat)
        kind = "group" if spoken.in_group else "dm"
        about = InboundDetails(
            chat_type=kind,
            chat_name=spoken.chat,
            user_name=spoken.name,
            mentions=spoken.change == "press",
        )
        return Inbound(
            key=spoken.id,
            address=address,
            sender=spoken.person,
            parts=(Text(spoken.text),) if spoken.text or not spoken.change else (),
            reply_to=spoken.reply_to,
            message=spoken.target or spoken.id,
            about=about,
            update=_update(spoken),
        )

    async def _read(self, attachment: Attachment) -> bytes:
        if self._blobs is None:
            raise NotSent("This channel was opened without files.")
        return await self._blobs.read(attachment.media.digest)

    async def _call(self, method: str, path: str, body: Struct) -> _CallResult:
        data = msgspec.json.encode(body)
        try:
            async with self._session.request(
                method, f"/{self._account}/{path}", data=data
            ) as response:
                status, answer = response.status, await response.read()
        except aiohttp.ClientConnectorError as error:
            raise Offline(f"Cannot reach the platform: {error}") from error
        if status == 200:
            return msgspec.json.decode(answer, type=_CallResult)
        if status == 429:
            wait = msgspec.json.decode(answer, type=_CallResult).wait
            raise Throttled("The platform is limiting requests.", wait=wait)
        if status == 403:
            raise TargetGone("The platform does not know this chat.")
        raise NotSent(f"The platform responded with {status}: {answer.decode(errors='replace')}")

    def _check(self, to: Address) -> None:
        if to.channel != self._name:
            raise ValueError(f"Cannot send to {to.channel}: this channel is {self._name}.")


def _update(spoken: WrittenMessage) -> HappenedUpdate:
    match spoken.change:
        case "edit":
            return EditedMessage()
        case "delete":
            return DeletedMessage()
        case "reaction":
            return ChangedReaction(spoken.value)
        case "press":
            return PressedButton(spoken.value)
        case _:
            return NewMessage()


@asynccontextmanager
async def open_platform_channel(
    url: str, account: str, clock: Clock, name: str = "test", blobs: Blobs | None = None
) -> AsyncGenerator[PlatformChannel]:
    """Open a channel; connections are made on demand and closed with the block."""
    timeout = aiohttp.ClientTimeout(total=120.0)
    async with aiohttp.ClientSession(url, timeout=timeout) as session:
        yield PlatformChannel(session, clock, account, name, blobs)
