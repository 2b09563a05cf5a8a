"""The Telegram channel: receives updates by polling or webhook, sends and edits posts."""

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

import anyio
from msgspec import structs

from hermes.channels.account import BotToken, account_options, bot_token, check_address
from hermes.channels.connection import LastSeen, Retries, first_error
from hermes.channels.received_files import received_files
from hermes.channels.telegram import DOWNLOAD_LIMIT, MANIFEST, TelegramOptions
from hermes.channels.telegram.attached_files import FileReader
from hermes.channels.telegram.bot_api import (
    POLL_SECONDS,
    BotApi,
    GroupMigrated,
    NotModified,
    OtherPoller,
    ThreadGone,
    open_bot_api,
)
from hermes.channels.telegram.command_menu import menu_entries, publish_commands
from hermes.channels.telegram.inbound import GroupFilter, InboundBuilder
from hermes.channels.telegram.objects import Update, User
from hermes.channels.telegram.outbound import (
    REACTIONS,
    SendCall,
    chat_fields,
    chat_id,
    file_call,
    message_number,
    text_call,
    text_fields,
)
from hermes.channels.telegram.update_batch import UpdateBatch, read_update
from hermes.channels.telegram.webhook import WebhookUpdates
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    Offline,
    Outbound,
    Receipt,
    Throttled,
    UnknownOutcome,
)
from hermes.ports.store import Blobs
from hermes.schema.errors import ConfigError, HermesError
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
ALBUM_SECONDS = 0.8
"""Seconds that may pass between the parts of an album."""
MAX_ALBUM_WAITS = 5
POLL_PAUSE = 0.5
CHECK_SECONDS = 20.0
"""Seconds between checks of a webhook, well below the silence after which a channel counts as dead.
"""
LOCAL_LIMIT = 128 * 1024 * 1024
MAX_MOVED_CHATS = 1_000
_TOKEN = re.compile(r"(\d+:[\w-]+)")


class TelegramChannel:
    """Implements `Channel` with editing, typing, reactions and liveness; never retries.

    `commands` are offered in Telegram's own menu.
    """

    def __init__(
        self,
        *,
        name: str,
        api: BotApi,
        token: BotToken,
        options: TelegramOptions,
        blobs: Blobs,
        files: FileReader,
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
        self._clock = clock
        self._commands = commands
        self._unreadable = unreadable
        self._seen = LastSeen(clock)
        self._moved: LruMap[str, str] = LruMap(MAX_MOVED_CHATS)
        """New ids of groups that became supergroups."""

    async def run(self, deliver: HandleInbound) -> None:
        bot = await self._connect()
        builder = InboundBuilder(
            name=self._name, bot=bot, files=self._files, groups=_group_filter(self._options)
        )
        await publish_commands(self._api, menu_entries(self._commands, self._options))
        if self._options.webhook_url:
            await self._serve_webhook(builder, deliver)
        else:
            await self._poll(builder, deliver)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        if post.attachments:
            (attachment,) = post.attachments
            data = await self._blobs.read(attachment.media.digest)
            call = file_call(self._current(to), post, attachment, data)
        else:
            previews = not self._options.disable_link_previews
            call = text_call(self._current(to), post, previews=previews)
        return Receipt(to, await self._send(to, call))

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        check_address(receipt.address, self._name)
        fields = {
            "chat_id": chat_id(self._current(receipt.address).chat),
            "message_id": message_number(receipt.id),
            **text_fields(post, previews=not self._options.disable_link_previews),
        }
        try:
            await self._api.send("editMessageText", fields)
        except NotModified:
            log.debug("post %s already has this text", receipt.id)

    async def typing(self, to: Address, on: bool) -> None:
        """The indicator ends by itself, or with the next post."""
        if on:
            fields = {**chat_fields(self._current(to)), "action": "typing"}
            try:
                await self._api.call("sendChatAction", bool, fields)
            except UnknownOutcome as error:
                # A lost indicator does not matter.
                log.info("typing could not be shown: %s", error)

    async def react(self, to: Address, message: str, emoji: str) -> None:
        reaction = [{"type": "emoji", "emoji": REACTIONS.get(emoji, emoji)}] if emoji else []
        fields = {
            "chat_id": chat_id(self._current(to).chat),
            "message_id": message_number(message),
            "reaction": reaction,
        }
        await self._api.call("setMessageReaction", bool, fields)

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    async def _send(self, to: Address, call: SendCall) -> str:
        """Send, if necessary to the group's new id or outside a topic that no longer exists."""
        try:
            sent = await self._api.send(call.method, call.fields, call.uploads)
        except GroupMigrated as error:
            log.warning("chat %s is now %s", to.chat, error.chat)
            self._moved.put(to.chat, str(error.chat))
            fields = {**call.fields, "chat_id": error.chat}
            sent = await self._api.send(call.method, fields, call.uploads)
        except ThreadGone:
            log.warning("topic %s of chat %s no longer exists", to.thread, to.chat)
            fields = {**call.fields, "message_thread_id": None}
            sent = await self._api.send(call.method, fields, call.uploads)
        return str(sent.message_id)

    async def _connect(self) -> User:
        """Ask Telegram who the bot is, with the current token."""
        self._token.reload()
        try:
            bot = await self._api.get_me()
        except UnknownOutcome as error:
            raise Offline(str(error)) from error
        self._seen.mark()
        return bot

    async def _poll(self, builder: InboundBuilder, deliver: HandleInbound) -> None:
        """Poll for updates; each request acknowledges the previous batch, durable by then."""
        offset, retries = 0, Retries(self._clock, pause=POLL_PAUSE)
        while True:
            try:
                updates = await self._updates(offset)
            except OtherPoller as error:
                if "webhook" not in str(error).lower():
                    raise
                log.warning("a webhook is removed, because this gateway polls for updates")
                await self._api.delete_webhook()
                continue
            except (UnknownOutcome, Throttled) as error:
                await retries.failed(error)
                continue
            retries.succeeded()
            self._seen.mark()
            if not updates:
                continue
            batch = await self._with_whole_albums(UpdateBatch(updates))
            await self._deliver(batch, builder, deliver)
            offset = batch.last_id + 1

    async def _updates(self, offset: int, seconds: int = POLL_SECONDS) -> list[Update]:
        found = await self._api.get_updates(offset, seconds)
        try:
            return [read_update(bytes(raw), self._unreadable) for raw in found]
        except JSON_ERRORS as error:
            raise UnknownOutcome("Telegram sent an update without a number.") from error

    async def _with_whole_albums(self, batch: UpdateBatch) -> UpdateBatch:
        """Wait for more parts of the albums in the batch, which arrive as separate messages."""
        for _ in range(MAX_ALBUM_WAITS):
            if not batch.album_sizes:
                break
            await self._clock.sleep(ALBUM_SECONDS)
            # Use the same offset again, so that nothing of the batch is acknowledged yet.
            more = UpdateBatch(await self._updates(batch.first_id, 0))
            self._seen.mark()
            grown = more.album_sizes != batch.album_sizes
            batch = more if more.updates else batch
            if not grown:
                break
        return batch

    async def _serve_webhook(self, builder: InboundBuilder, deliver: HandleInbound) -> None:
        async def receive(updates: Sequence[Update]) -> None:
            await self._deliver(UpdateBatch(updates), builder, deliver)
            self._seen.mark()

        options = self._options
        updates = WebhookUpdates(
            options,
            receive,
            self._clock,
            album_seconds=ALBUM_SECONDS,
            unreadable=self._unreadable,
        )
        async with updates.server():
            await self._api.set_webhook(options.webhook_url, options.webhook_secret)
            reported = 0
            while True:
                info = await self._api.get_webhook_info()
                self._seen.mark()
                if info.url != options.webhook_url:
                    raise Offline("Another program has taken over this bot's webhook.")
                if info.last_error_message and info.last_error_date > reported:
                    reported = info.last_error_date
                    log.warning("Telegram cannot deliver: %s", info.last_error_message)
                await self._clock.sleep(CHECK_SECONDS)

    async def _deliver(
        self, batch: UpdateBatch, builder: InboundBuilder, deliver: HandleInbound
    ) -> None:
        """Deliver chats concurrently, and the updates of one chat in order."""

        async def deliver_chat(groups: Sequence[Sequence[Update]]) -> None:
            for updates in groups:
                found: list[Inbound] = []
                with self._unreadable.skipping(updates):
                    found = await builder.build(updates)
                for inbound in found:
                    await deliver(inbound)
                for update in updates:
                    await self._acknowledge_press(update)

        try:
            async with anyio.create_task_group() as group:
                for groups in batch.by_chat():
                    group.start_soon(deliver_chat, groups)
        except ExceptionGroup as failures:
            raise first_error(failures) from None

    async def _acknowledge_press(self, update: Update) -> None:
        """Acknowledge a press, so that the button stops waiting; too late if the press is old."""
        if update.callback_query is None:
            return
        fields = {"callback_query_id": update.callback_query.id}
        try:
            await self._api.call("answerCallbackQuery", bool, fields)
        except HermesError as error:
            log.info("a button press could not be acknowledged: %s", error)

    def _current(self, to: Address) -> Address:
        return structs.replace(to, chat=self._moved.get(to.chat) or to.chat)


def _group_filter(options: TelegramOptions) -> GroupFilter:
    return GroupFilter(
        patterns=tuple(map(_pattern, options.mention_patterns)),
        exclusive_mentions=options.exclusive_bot_mentions,
        allowed_topics=frozenset(options.allowed_topics),
        ignored_topics=frozenset(options.ignored_threads),
    )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(f"Telegram's mention pattern {text!r} is invalid: {error}.") from error


def checked_options(deps: ChannelDeps) -> TelegramOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(TelegramOptions, deps, MANIFEST)
    _group_filter(options)
    if options.webhook_url and not options.webhook_secret:
        raise ConfigError(
            "Telegram's webhook needs a secret.",
            hint="Set TELEGRAM_WEBHOOK_SECRET to a random text of letters and digits.",
        )
    return options


def current_token(deps: ChannelDeps) -> str:
    """Return the account's current token. Raises `ConfigError` if there is none."""
    return bot_token(deps, MANIFEST, _TOKEN, "from @BotFather")


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[TelegramChannel]:
    options, token = checked_options(deps), BotToken(partial(current_token, deps))
    async with open_bot_api(options, token, deps.current_env()) as api:
        max_bytes = LOCAL_LIMIT if options.local_mode else DOWNLOAD_LIMIT
        files = FileReader(
            api, received_files(deps, max_bytes), max_bytes=max_bytes, local=options.local_mode
        )
        yield TelegramChannel(
            name=deps.name,
            api=api,
            token=token,
            options=options,
            blobs=deps.blobs,
            files=files,
            clock=deps.clock,
            commands=deps.commands,
            unreadable=unreadable_updates(deps),
        )
