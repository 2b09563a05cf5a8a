"""Many chats of an emulated platform, and a channel to it that tests let updates arrive at."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web
from msgspec import Struct

from emulators.mattermost.limits import RateLimit
from emulators.mattermost.state import EmulatedMattermost
from emulators.telegram.limits import FloodLimits
from hermes.channels.http_client import open_http_client
from hermes.channels.matrix import MANIFEST as MATRIX
from hermes.channels.matrix.client_api import ClientApi
from hermes.kit.clock import Clock
from hermes.ports.channel import (
    Channel,
    Inbound,
    Outbound,
    Receipt,
    SupportsEdit,
    SupportsReactions,
    SupportsTyping,
)
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.channel import FakeChannel
from hermes.testing.fake_openai.server import listen
from support import discord, slack, telegram
from support.mattermost import mattermost_bench


class ChatChannel(Channel, SupportsEdit, SupportsReactions, SupportsTyping, Protocol):
    """A channel that shows everything."""


class RelayChannel(FakeChannel):
    """Receives what a test types, and sends through the channel of a platform."""

    def __init__(self, name: str, channel: ChatChannel) -> None:
        super().__init__(name, channel.caps)
        self._channel = channel

    async def send(self, to: Address, post: Outbound) -> Receipt:
        return await self._channel.send(to, post)

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        await self._channel.edit(receipt, post)

    async def typing(self, to: Address, on: bool) -> None:
        await self._channel.typing(to, on)

    async def react(self, to: Address, message: str, sign: str) -> None:
        await self._channel.react(to, message, sign)


class StreamedChats(Struct, frozen=True):
    """`write` writes a message in a chat and returns its address and id.

    `forms` are all texts of the bot's posts in it so far; `refused` counts the calls over the
    limit.
    """

    channel: RelayChannel
    write: Callable[[int], tuple[Address, str]]
    forms: Callable[[Address], list[list[str]]]
    refused: Callable[[], int]

    async def ask(self, chat: int) -> Address:
        """Let a message arrive in the chat with this number; return once it is stored."""
        address, message = self.write(chat)
        key, sender = f"{chat}:{message}", f"person-{chat}"
        text = Text(f"question in {chat}")
        await self.channel.type(Inbound(key, address, sender, (text,), None, message))
        return address


@asynccontextmanager
async def telegram_chats(folder: Path, clock: Clock) -> AsyncGenerator[StreamedChats]:
    limits = FloodLimits(clock)
    emulated = telegram.emulator(limits=limits)

    def write(chat: int) -> tuple[Address, str]:
        person = 2001 + chat
        return Address("telegram", str(person)), str(emulated.say(person, "hello"))

    async with telegram.telegram_bench(folder, emulated, clock=clock) as bench:
        yield StreamedChats(
            RelayChannel("telegram", bench.channel),
            write,
            lambda to: [one.forms for one in emulated.posts(int(to.chat))],
            lambda: limits.refused,
        )


@asynccontextmanager
async def discord_chats(folder: Path, clock: Clock) -> AsyncGenerator[StreamedChats]:
    emulated = discord.emulator(clock=clock)

    def write(chat: int) -> tuple[Address, str]:
        person = str(2001 + chat)
        direct = emulated.direct(person)
        return Address("discord", direct), emulated.say(direct, "hello", person=person)

    async with discord.discord_bench(folder, emulated, clock=clock) as bench:
        yield StreamedChats(
            RelayChannel("discord", bench.channel),
            write,
            lambda to: [one.forms for one in emulated.posts(to.chat)],
            lambda: bench.server.limits.refused,
        )


@asynccontextmanager
async def slack_chats(folder: Path, clock: Clock) -> AsyncGenerator[StreamedChats]:
    emulated = slack.emulator(clock=clock)

    def write(chat: int) -> tuple[Address, str]:
        person = f"U{2001 + chat}"
        emulated.people[person] = person
        direct = emulated.direct(person)
        thread = emulated.say(direct, "hello", person=person)
        return Address("slack", direct, thread), thread

    async with slack.slack_bench(folder, emulated, clock=clock) as bench:
        yield StreamedChats(
            RelayChannel("slack", bench.channel),
            write,
            lambda to: [one.forms for one in emulated.posts(to.chat)],
            lambda: bench.server.limits.refused,
        )


@asynccontextmanager
async def mattermost_chats(folder: Path, clock: Clock) -> AsyncGenerator[StreamedChats]:
    limit = RateLimit(clock)
    emulated = EmulatedMattermost(limit=limit)

    def write(chat: int) -> tuple[Address, str]:
        person = f"person{chat:020}"
        emulated.users[person] = person
        direct = emulated.direct(person)
        return Address("mattermost", direct), emulated.say(direct, "hello", person=person).id

    async with mattermost_bench(folder, emulated, clock=clock) as bench:
        yield StreamedChats(
            RelayChannel("mattermost", bench.channel),
            write,
            lambda to: [one.forms for one in emulated.shown(to.chat)],
            lambda: limit.refused,
        )


class LimitedRooms:
    """A homeserver that takes events with Synapse's default limit: ten, then one in five seconds.

    A refused event does not count.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._level, self._at = 0.0, 0.0
        self.refused = 0
        self.forms: dict[str, list[list[str]]] = {}
        path = "/_matrix/client/v3/rooms/{room}"
        app = web.Application()
        app.router.add_put(path + "/send/{kind}/{key}", self._send)
        app.router.add_put(path + "/typing/{user}", self._typing)
        self.runner = web.AppRunner(app)

    async def _send(self, request: web.Request) -> web.Response:
        content = msgspec.json.decode(await request.read(), type=dict[str, str])
        now = self._clock.monotonic()
        self._level, self._at = max(0.0, self._level - (now - self._at) / 5), now
        if self._level > 9 + 1e-6:
            self.refused += 1
            wait = (self._level - 9) * 5
            limited = {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": round(wait * 1000) + 1}
            return web.json_response(limited, status=429)
        self._level += 1
        posts = self.forms.setdefault(request.match_info["room"], [])
        if (edited := content.get("edits")) is not None:
            posts[int(edited)].append(content["body"])
        elif "body" in content:
            posts.append([content["body"]])
        return web.json_response({"event_id": str(len(posts) - 1)})

    async def _typing(self, request: web.Request) -> web.Response:
        return web.json_response({})


class LimitedRoomsChannel:
    """Sends to `LimitedRooms` with the client of the Matrix channel."""

    def __init__(self, api: ClientApi) -> None:
        self.caps = MATRIX.caps
        self._api = api
        self._sent = 0

    async def run(self, deliver: object) -> None:
        raise NotImplementedError

    async def send(self, to: Address, post: Outbound) -> Receipt:
        return Receipt(
            to, await self._put(to, {"body": post.plain or post.text}, optional=post.progress)
        )

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        content = {"body": post.plain or post.text, "edits": receipt.id}
        await self._put(receipt.address, content, optional=post.progress)

    async def typing(self, to: Address, on: bool) -> None:
        await self._api.typing(to.chat, "@agent:test", on=on)

    async def react(self, to: Address, message: str, sign: str) -> None:
        await self._put(to, {"sign": sign}, optional=True)

    async def _put(self, to: Address, content: dict[str, str], *, optional: bool) -> str:
        self._sent += 1
        key = str(self._sent)
        return await self._api.send_event(to.chat, "m", key, content, optional=optional)


@asynccontextmanager
async def matrix_chats(folder: Path, clock: Clock) -> AsyncGenerator[StreamedChats]:
    server = LimitedRooms(clock)
    async with (
        listen(server.runner, "127.0.0.1", 0) as url,
        open_http_client("The homeserver") as http,
    ):
        yield StreamedChats(
            RelayChannel("matrix", LimitedRoomsChannel(ClientApi(http, url, clock))),
            lambda chat: (Address("matrix", f"!{chat}:test"), f"$asked-{chat}"),
            lambda to: server.forms.get(to.chat, []),
            lambda: server.refused,
        )
