"""The Discord channel: receives gateway events, sends and edits posts over HTTP."""

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from urllib.parse import quote

import anyio
from msgspec import structs

from hermes.channels.account import BotToken, account_options, bot_token, check_address
from hermes.channels.connection import LastSeen, first_error
from hermes.channels.discord import MANIFEST, DiscordOptions
from hermes.channels.discord.attached_files import FileReader
from hermes.channels.discord.chats import ChatDirectory
from hermes.channels.discord.commands import own_commands, publish_commands
from hermes.channels.discord.gateway_connection import GatewayConnection
from hermes.channels.discord.inbound import InboundBuilder
from hermes.channels.discord.objects import Application, Channel, Intent, Message, User
from hermes.channels.discord.outbound import (
    Fields,
    is_voice,
    message_fields,
    message_id,
    new_message_fields,
    with_files,
    with_voice,
)
from hermes.channels.discord.position import EventLog, Position
from hermes.channels.discord.receiver import Receiver
from hermes.channels.discord.rest_api import (
    RestApi,
    UnknownChannel,
    open_rest_api,
)
from hermes.channels.discord.threads import Threads, thread_name
from hermes.channels.http_client import Upload
from hermes.channels.received_files import received_files
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
    Throttled,
    UnknownOutcome,
)
from hermes.ports.store import Blobs
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
SEEN = "👀"
MAX_REMEMBERED = 5_000
_TOKEN = re.compile(r"(?:Bot\s+)?([\w-]+\.[\w-]+\.[\w-]+)")
MISSED_VARIABLE = "DISCORD_MISSED_MESSAGE_BACKFILL"
_INTENTS = (
    Intent.GUILDS
    | Intent.GUILD_MESSAGES
    | Intent.GUILD_REACTIONS
    | Intent.DIRECT_MESSAGES
    | Intent.DIRECT_REACTIONS
)


class DiscordChannel:
    """Implements `Channel` with editing, typing, reactions and liveness; never retries a post.

    `commands` are offered in Discord's own list.
    """

    def __init__(
        self,
        *,
        name: str,
        api: RestApi,
        token: BotToken,
        options: DiscordOptions,
        blobs: Blobs,
        files: FileReader,
        chats: ChatDirectory,
        threads: Threads,
        events: EventLog,
        clock: Clock,
        commands: Sequence[tuple[str, str]],
        unreadable: UnreadableUpdates,
    ) -> None:
        self.caps: ChannelCapabilities = MANIFEST.caps
        self._name = name
        self._api = api
        self._token = token
        self._options = options
        self._blobs = blobs
        self._files = files
        self._chats = chats
        self._threads = threads
        self._events = events
        self._clock = clock
        self._unreadable = unreadable
        self._commands = own_commands(commands, options)
        self._seen = LastSeen(clock)
        self._reactions: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """Our reaction to each message: a new one replaces it."""
        self._direct: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """Channels of direct messages, by the person's id."""
        self._forum_posts: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """Forum posts by the answer that opened them; its other parts go into the same post."""

    async def run(self, deliver: HandleInbound) -> None:
        bot, application = await self._log_in()
        builder = InboundBuilder(
            name=self._name,
            bot=bot,
            api=self._api,
            chats=self._chats,
            threads=self._threads,
            files=self._files,
            options=self._options,
            clock=self._clock,
        )
        position = await self._events.load()
        try:
            async with anyio.create_task_group() as group:
                receiver = Receiver(
                    group=group,
                    api=self._api,
                    builder=builder,
                    chats=self._chats,
                    events=self._events,
                    options=self._options,
                    clock=self._clock,
                    unreadable=self._unreadable,
                    deliver=deliver,
                )
                group.start_soon(self._events.keep_writing)
                group.start_soon(
                    publish_commands, self._api, application.id, self._commands, self._options
                )
                connection = self._connection(receiver, application)
                await connection.run(position.resume_point)
        except ExceptionGroup as failures:
            raise first_error(failures) from None

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        if not to.thread and await self._chats.is_forum(to.chat):
            return await self._send_to_forum(to, post)
        channel = await self._destination(to)
        try:
            sent = await self._send_message(channel, to, post)
        except UnknownChannel:
            if to.thread:
                if not await self._threads.open_missing(to):
                    raise
                channel = await self._destination(to)
            else:
                channel = await self._open_direct(to.chat)
            sent = await self._send_message(channel, to, post)
        if to.thread and channel == to.thread:
            self._threads.join(to.thread)
        return Receipt(to, sent.id)

    async def _open_direct(self, person: str) -> str:
        """Return the channel of direct messages, if the address of a post is a person."""
        try:
            channel = (await self._api.open_direct(message_id(person))).id
        except (Offline, Throttled):
            raise
        except NotSent as error:
            # Neither a channel nor a person: trying again does not help.
            raise UnknownChannel(str(error)) from error
        self._direct.put(person, channel)
        return channel

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        check_address(receipt.address, self._name)
        message = message_id(receipt.id)
        channel = await self._channel_of(receipt.address, message)
        fields = message_fields(post, self._options.allow_mentions)
        path = f"/channels/{channel}/messages/{message}"
        await self._api.call("PATCH", path, object, fields, optional=post.progress)

    async def typing(self, to: Address, on: bool) -> None:
        """The indicator ends by itself, or with the next post."""
        if not on or (not to.thread and await self._chats.is_forum(to.chat)):
            return
        try:
            channel = await self._destination(to)
            await self._api.call_optional("POST", f"/channels/{channel}/typing")
        except UnknownOutcome as error:
            # A lost indicator does not matter.
            log.info("typing could not be shown: %s", error)

    async def react(self, to: Address, message: str, emoji: str) -> None:
        """Show our reaction to a message; it replaces the previous one."""
        channel = await self._channel_of(to, message_id(message))
        path = f"/channels/{channel}/messages/{message}/reactions"
        before = self._reactions.get(message) or SEEN
        if emoji:
            await self._set_reaction("PUT", f"{path}/{quote(emoji)}/@me")
        if before != emoji and (self._reactions.get(message) or emoji != SEEN):
            await self._set_reaction("DELETE", f"{path}/{quote(before)}/@me")
        self._reactions.keep(message, emoji or None)

    async def _set_reaction(self, method: str, path: str) -> None:
        await self._api.with_retries(partial(self._api.call_optional, method, path))

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    async def _log_in(self) -> tuple[User, Application]:
        """Ask Discord who the bot is, with the current token."""
        self._token.reload()
        try:
            bot, application = await self._api.get_me(), await self._api.application()
        except UnknownOutcome as error:
            raise Offline(str(error)) from error
        self._seen.mark()
        return bot, application

    def _connection(self, receiver: Receiver, application: Application) -> GatewayConnection:
        intents = _INTENTS
        if application.reads_messages:
            intents |= Intent.MESSAGE_CONTENT
        else:
            log.warning(
                "%s can read only direct messages and mentions: Message Content Intent is off at "
                "https://discord.com/developers/applications/%s/bot",
                self._name,
                application.id,
            )
        return GatewayConnection(
            api=self._api,
            token=self._token.value,
            intents=int(intents),
            clock=self._clock,
            heartbeat_timeout=self._options.websocket_heartbeat_ack_max_age_seconds,
            proxy=self._api.proxy,
            receive=receiver.receive,
            on_data=self._seen.mark,
            has_room=receiver.has_room,
        )

    async def _destination(self, to: Address) -> str:
        channel = await self._threads.destination(to)
        return self._direct.get(channel) or channel

    async def _channel_of(self, to: Address, message: str) -> str:
        """Return the channel that contains the message with this id."""
        if not to.thread and not await self._chats.is_forum(to.chat):
            return self._direct.get(to.chat) or to.chat
        if not to.thread:
            return message
        if self._threads.was_refused(to):
            return to.chat
        # The message that opens a thread stays in the channel, except in forums.
        opens = message == to.thread and not await self._chats.is_forum(to.chat)
        return to.chat if opens else to.thread

    async def _send_message(self, channel: str, to: Address, post: Outbound) -> Message:
        reply_to = post.reply_to
        if channel == to.chat and to.thread:
            reply_to = reply_to or to.thread
        elif reply_to == to.thread:
            # It is already shown above the thread.
            reply_to = None
        fields = new_message_fields(post, self._options.allow_mentions, reply_to)
        fields, uploads = await self._with_files(fields, post)
        return await self._api.call(
            "POST",
            f"/channels/{channel}/messages",
            Message,
            fields,
            uploads,
            optional=post.progress,
        )

    async def _send_to_forum(self, to: Address, post: Outbound) -> Receipt:
        """Open a post in a forum; further parts of the same answer go into it."""
        answer = post.key.rpartition(":")[0]
        if answer and (opened := self._forum_posts.get(answer)):
            in_thread = structs.replace(to, thread=opened)
            sent = await self._send_message(opened, in_thread, post)
            return Receipt(to, sent.id)
        fields = new_message_fields(post, self._options.allow_mentions, None)
        for name in ("nonce", "enforce_nonce"):
            fields.pop(name, None)
        fields, uploads = await self._with_files(fields, post)
        body: Fields = {"name": thread_name(post.plain or post.text), "message": fields}
        if uploads:
            body["attachments"] = fields.pop("attachments")
        thread = await self._api.call(
            "POST", f"/channels/{to.chat}/threads", Channel, body, uploads
        )
        self._chats.add(thread)
        self._threads.join(thread.id)
        if answer:
            self._forum_posts.put(answer, thread.id)
        return Receipt(to, thread.id)

    async def _with_files(self, fields: Fields, post: Outbound) -> tuple[Fields, list[Upload]]:
        files = [
            (attachment, await self._blobs.read(attachment.media.digest))
            for attachment in post.attachments
        ]
        if len(files) == 1 and is_voice(files[0][0]):
            fields, upload = with_voice(fields, files[0][1])
            return fields, [upload]
        return with_files(fields, files) if files else (fields, [])


def checked_options(deps: ChannelDeps) -> DiscordOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(DiscordOptions, deps, MANIFEST, own=("allowed_roles",))
    if word := deps.current_env().get(MISSED_VARIABLE, "").strip().lower():
        enabled = word in {"1", "true", "yes", "on"}
        missed = structs.replace(options.missed_message_backfill, enabled=enabled)
        options = structs.replace(options, missed_message_backfill=missed)
    return options


def current_token(deps: ChannelDeps) -> str:
    """Return the account's current token. Raises `ConfigError` if there is none."""
    return bot_token(deps, MANIFEST, _TOKEN, "at https://discord.com/developers/applications")


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[DiscordChannel]:
    options, token = checked_options(deps), BotToken(partial(current_token, deps))
    unreadable = unreadable_updates(deps)
    async with open_rest_api(options, token, deps.clock, deps.current_env(), unreadable) as api:
        max_bytes = options.max_attachment_bytes
        chats = ChatDirectory(api)
        position = state_path(deps)
        yield DiscordChannel(
            name=deps.name,
            api=api,
            token=token,
            options=options,
            blobs=deps.blobs,
            files=FileReader(api, received_files(deps, max_bytes), max_bytes=max_bytes),
            chats=chats,
            threads=Threads(api, chats),
            events=EventLog(StateFile(position, Position), deps.clock),
            clock=deps.clock,
            commands=deps.commands,
            unreadable=unreadable,
        )
