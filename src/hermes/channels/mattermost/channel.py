"""The Mattermost channel: receives events of a websocket, sends and edits posts over HTTP."""

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from hermes.channels.account import (
    BadToken,
    BotToken,
    account_options,
    bot_token,
    check_address,
    require_options,
)
from hermes.channels.connection import LastSeen, Retries, first_error
from hermes.channels.emoji import MATTERMOST
from hermes.channels.mattermost import FILE_LIMIT, MANIFEST, MattermostOptions
from hermes.channels.mattermost.cursors import Cursors, Position
from hermes.channels.mattermost.event_socket import EventSocket, open_event_socket
from hermes.channels.mattermost.inbound import Directory, InboundBuilder
from hermes.channels.mattermost.objects import Post, User
from hermes.channels.mattermost.outbound import post_fields, shown_text
from hermes.channels.mattermost.receiver import Receiver
from hermes.channels.mattermost.rest_api import MattermostApi, RootRefused, open_mattermost
from hermes.channels.received_files import ReceivedFiles, received_files
from hermes.channels.state_file import StateFile, state_path
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    NotSent,
    Offline,
    Outbound,
    Receipt,
    TargetGone,
    Throttled,
    UnknownOutcome,
)
from hermes.ports.store import Blobs
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
SEEN = "👀"
MAX_REMEMBERED = 5_000
_TOKEN = re.compile(r"(?:Bearer\s+)?([^\s]+)")


class MattermostChannel:
    """Implements `Channel` with editing, typing, reactions and liveness; never retries a post."""

    def __init__(
        self,
        *,
        name: str,
        api: MattermostApi,
        token: BotToken,
        options: MattermostOptions,
        blobs: Blobs,
        files: ReceivedFiles,
        cursors: Cursors,
        clock: Clock,
        unreadable: UnreadableUpdates,
    ) -> None:
        self.caps: ChannelCapabilities = MANIFEST.caps
        self._name = name
        self._api = api
        self._token = token
        self._options = options
        self._blobs = blobs
        self._files = files
        self._cursors = cursors
        self._clock = clock
        self._unreadable = unreadable
        self._seen = LastSeen(clock)
        self._bot: User | None = None
        self._directory = Directory(api)
        self._reactions: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """Our reaction to each post: a new one replaces it."""
        self._direct: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """Channels of direct messages, by the person's id."""
        self._handled: LruMap[str, bool] = LruMap(MAX_REMEMBERED)

    async def run(self, deliver: HandleInbound) -> None:
        retries = Retries(self._clock, pause=0.25)
        while True:
            try:
                await self._connect(deliver, retries)
            except BadToken:
                raise
            except (Offline, Throttled, UnknownOutcome) as error:
                await retries.failed(error)

    async def _connect(self, deliver: HandleInbound, retries: Retries) -> None:
        """Receive events until the connection ends, with the current token."""
        self._token.reload()
        self._bot = bot = await self._api.me()
        self._seen.mark()
        if not await self._cursors.load():
            now = await self._api.server_time()
            await self._cursors.begin(now or int(self._clock.now().timestamp() * 1000))
        try:
            async with self._open_socket() as socket, anyio.create_task_group() as group:
                receiver = self._receiver(bot, group, deliver)
                group.start_soon(self._cursors.keep_writing)
                group.start_soon(socket.keep_alive)
                await receiver.fetch_missed()
                retries.succeeded()
                while True:
                    await receiver.has_room()
                    receiver.receive(await socket.next_event())
        except ExceptionGroup as failures:
            raise first_error(failures) from None

    def _open_socket(self) -> AbstractAsyncContextManager[EventSocket]:
        return open_event_socket(
            self._api.websocket_url,
            self._token.value,
            proxy=self._api.proxy,
            clock=self._clock,
            on_data=self._seen.mark,
        )

    def _receiver(self, bot: User, group: TaskGroup, deliver: HandleInbound) -> Receiver:
        builder = InboundBuilder(
            name=self._name,
            bot=bot,
            api=self._api,
            directory=self._directory,
            files=self._files,
            options=self._options,
        )
        return Receiver(
            group=group,
            api=self._api,
            builder=builder,
            directory=self._directory,
            cursors=self._cursors,
            handled=self._handled,
            clock=self._clock,
            unreadable=self._unreadable,
            deliver=deliver,
        )

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        channel = self._direct.get(to.chat) or to.chat
        try:
            sent = await self._send(channel, to.thread or "", post)
        except TargetGone:
            if to.thread or channel != to.chat:
                raise
            sent = await self._send(await self._open_direct(to.chat), "", post)
        return Receipt(to, sent.id)

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        check_address(receipt.address, self._name)
        await self._api.patch_post(receipt.id, shown_text(post))

    async def typing(self, to: Address, on: bool) -> None:
        """The indicator ends by itself, or with the next post."""
        if on:
            channel = self._direct.get(to.chat) or to.chat
            await self._api.show_typing(channel, to.thread or "")

    async def react(self, to: Address, message: str, emoji: str) -> None:
        """Show our reaction to a post; it replaces the previous one."""
        bot = await self._own_user()
        before = self._reactions.get(message) or SEEN
        if emoji:
            await self._api.add_reaction(bot.id, message, _name(emoji))
        if before != emoji and (self._reactions.get(message) or emoji != SEEN):
            await self._api.remove_reaction(bot.id, message, _name(before))
        self._reactions.keep(message, emoji or None)

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    async def _own_user(self) -> User:
        if self._bot is None:
            self._bot = await self._api.me()
        return self._bot

    async def _send(self, channel: str, root: str, post: Outbound) -> Post:
        bot = await self._own_user()
        files: list[str] = []
        for attachment in post.attachments:
            data = await self._blobs.read(attachment.media.digest)
            name = attachment.media.name or "file"
            files.append(await self._api.upload(channel, name, attachment.media.media_type, data))
        fields = post_fields(post, channel=channel, root=root, files=files, bot=bot.id)
        try:
            return await self._api.create_post(fields)
        except RootRefused:
            # The first post of the thread was deleted.
            fields.pop("root_id", None)
            return await self._api.create_post(fields)

    async def _open_direct(self, person: str) -> str:
        """Return the channel of direct messages, if the address of a post is a person."""
        bot = await self._own_user()
        try:
            channel = (await self._api.open_direct(bot.id, person)).id
        except (Offline, Throttled):
            raise
        except NotSent as error:
            # Neither a channel of the bot nor a person: trying again does not help.
            raise TargetGone(str(error)) from error
        self._direct.put(person, channel)
        return channel


def _name(emoji: str) -> str:
    if not (name := MATTERMOST.name(emoji)):
        raise NotSent(f"Mattermost has no name for {emoji}.")
    return name


def checked_options(deps: ChannelDeps) -> MattermostOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(MattermostOptions, deps, MANIFEST, own=("url",))
    require_options(options, deps, MANIFEST, ("url",))
    return with_checked_url(options)


def with_checked_url(options: MattermostOptions) -> MattermostOptions:
    parts = urlsplit(options.url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError("MATTERMOST_URL must be an address such as https://chat.example.com.")
    return structs.replace(options, url=options.url.rstrip("/"))


def current_token(deps: ChannelDeps) -> str:
    """Return the account's current token. Raises `ConfigError` if there is none."""
    return bot_token(deps, MANIFEST, _TOKEN, "under Integrations, Bot Accounts")


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[MattermostChannel]:
    options, token = checked_options(deps), BotToken(partial(current_token, deps))
    path = state_path(deps)
    unreadable = unreadable_updates(deps)
    async with open_mattermost(options, token, deps.current_env(), unreadable) as api:
        yield MattermostChannel(
            name=deps.name,
            api=api,
            token=token,
            options=options,
            blobs=deps.blobs,
            files=received_files(deps, FILE_LIMIT),
            cursors=Cursors(StateFile(path, Position)),
            clock=deps.clock,
            unreadable=unreadable,
        )
