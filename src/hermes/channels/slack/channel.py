"""The Slack channel: receives envelopes of the socket, sends and edits posts over the Web API."""

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

import anyio
from msgspec import structs

from hermes.channels.account import BadToken, account_options, check_address
from hermes.channels.connection import LastSeen, first_error
from hermes.channels.emoji import SLACK
from hermes.channels.proxies import ProxySettings
from hermes.channels.received_files import received_files
from hermes.channels.slack import DOWNLOAD_LIMIT, MANIFEST, SlackOptions
from hermes.channels.slack.assistant import Assistant
from hermes.channels.slack.attached_files import FileReader
from hermes.channels.slack.directory import Directory
from hermes.channels.slack.inbound import InboundBuilder
from hermes.channels.slack.missed_messages import MissedMessages
from hermes.channels.slack.objects import Sent
from hermes.channels.slack.outbound import (
    comment,
    edited_message_fields,
    message_ts,
    new_message_fields,
)
from hermes.channels.slack.position import Position
from hermes.channels.slack.receiver import Receiver
from hermes.channels.slack.socket_connection import SocketConnection
from hermes.channels.slack.web_api import SET_TOKENS, AlreadyDone, WebAccess, WebApi, open_web
from hermes.channels.slack.workspaces import Workspaces
from hermes.channels.state_file import state_path
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    Attachment,
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    NotSent,
    Outbound,
    Receipt,
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
REACTION_SECONDS = 15.0
MAX_EDIT_WAIT = 5.0
"""Seconds an answer waits for a free edit; a workspace has 50 per minute."""


class SlackChannel:
    """Implements `Channel` with editing, typing, reactions and liveness; never retries a post."""

    def __init__(
        self,
        *,
        name: str,
        caps: ChannelCapabilities,
        web: WebAccess,
        app_api: Callable[[], WebApi],
        workspaces: Workspaces,
        options: SlackOptions,
        blobs: Blobs,
        builder: InboundBuilder,
        assistant: Assistant,
        position: Position,
        clock: Clock,
        unreadable: UnreadableUpdates,
    ) -> None:
        self.caps = caps
        self._name = name
        self._web = web
        self._app_api = app_api
        self._workspaces = workspaces
        self._options = options
        self._blobs = blobs
        self._builder = builder
        self._assistant = assistant
        self._position = position
        self._clock = clock
        self._unreadable = unreadable
        self._seen = LastSeen(clock)
        self._reactions: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """Our reaction to a message: a new one replaces it."""
        self._direct: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """Direct messages by the person's id."""

    async def run(self, deliver: HandleInbound) -> None:
        await self._workspaces.log_in()
        self._seen.mark()
        await self._position.load()
        try:
            async with anyio.create_task_group() as group:
                receiver = Receiver(
                    group=group,
                    workspaces=self._workspaces,
                    builder=self._builder,
                    missed=MissedMessages(self._position, self._clock),
                    assistant=self._assistant,
                    position=self._position,
                    unreadable=self._unreadable,
                    deliver=deliver,
                )
                group.start_soon(self._position.keep_writing)
                for workspace in self._workspaces.known:
                    group.start_soon(self._end_when_refused, workspace.api)
                connection = SocketConnection(
                    api=self._app_api(),
                    web=self._web,
                    clock=self._clock,
                    receive=receiver.receive,
                    connected=receiver.connected,
                    on_data=self._on_data,
                    has_room=receiver.has_room,
                )
                await connection.run()
        except BaseExceptionGroup as failures:
            raise first_error(failures) from None

    async def _end_when_refused(self, api: WebApi) -> None:
        """The socket stays open without the bot token, but nothing could be sent."""
        await api.refused.wait()
        raise BadToken("Slack no longer accepts a bot token.", hint=SET_TOKENS)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        api, chat = await self._destination(to.chat)
        if post.attachments:
            return await self._send_files(api, chat, to, post)
        fields = new_message_fields(chat, to.thread, post, self._options)
        sent = await api.call("chat.postMessage", Sent, fields)
        self._posted(chat, to)
        return Receipt(to, sent.ts)

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        check_address(receipt.address, self._name)
        api, chat = await self._destination(receipt.address.chat)
        fields = edited_message_fields(chat, receipt.id, post, self._options)
        try:
            await api.act("chat.update", fields, optional=post.progress)
        except Throttled as error:
            if post.progress or error.wait < MAX_EDIT_WAIT:
                raise
            # The gateway then sends the answer as a new post, which has a separate limit.
            raise NotSent("Slack allows no more edits for now.") from error

    async def typing(self, to: Address, on: bool) -> None:
        """Show the assistant's status, which is only possible in threads."""
        api, _ = await self._destination(to.chat)
        try:
            await self._assistant.show_status(api, to, on=on)
        except UnknownOutcome as error:
            # A lost indicator does not matter.
            log.info("the status could not be shown: %s", error)

    async def react(self, to: Address, message: str, emoji: str) -> None:
        """Show our reaction to a message; it replaces the previous one."""
        api, chat = await self._destination(to.chat)
        before = self._reactions.get(message) or SEEN
        fields = {"channel": chat, "timestamp": message_ts(message)}
        if emoji:
            await self._set_reaction(api, "reactions.add", {**fields, "name": _name(emoji)})
        if before != emoji and (self._reactions.get(message) or emoji != SEEN):
            await self._set_reaction(api, "reactions.remove", {**fields, "name": _name(before)})
        self._reactions.keep(message, emoji or None)

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    def _on_data(self) -> None:
        self._seen.mark()
        self._position.is_alive()

    async def _set_reaction(self, api: WebApi, method: str, fields: dict[str, object]) -> None:
        until = self._clock.monotonic() + REACTION_SECONDS
        while True:
            try:
                await api.act(method, fields)
            except AlreadyDone:
                return
            except Throttled as error:
                if self._clock.monotonic() + error.wait > until:
                    raise
                await self._clock.sleep(error.wait)
            else:
                return

    async def _destination(self, chat: str) -> tuple[WebApi, str]:
        """Return client and id for a chat; a person's id stands for their direct messages."""
        api = await self._workspaces.api_of(chat)
        if not chat.startswith(("U", "W")):
            return api, chat
        if (known := self._direct.get(chat)) is None:
            known = await api.open_direct(chat)
            self._direct.put(chat, known)
        return api, known

    async def _send_files(self, api: WebApi, chat: str, to: Address, post: Outbound) -> Receipt:
        """Slack creates the message later, so the receipt names the file."""
        uploaded = [await self._upload(api, attachment) for attachment in post.attachments]
        fields: dict[str, object] = {
            "files": uploaded,
            "channel_id": chat,
            "thread_ts": to.thread,
            "initial_comment": comment(post) or None,
        }
        await api.act("files.completeUploadExternal", fields)
        self._posted(chat, to)
        return Receipt(to, str(uploaded[0]["id"]))

    async def _upload(self, api: WebApi, attachment: Attachment) -> dict[str, str]:
        media = attachment.media
        data = await self._blobs.read(media.digest)
        name = media.name or "file"
        return {"id": await api.upload(name, media.media_type, data), "title": name}

    def _posted(self, chat: str, to: Address) -> None:
        self._assistant.posted(to)
        if to.thread:
            self._position.join(chat, to.thread)


def _name(emoji: str) -> str:
    if not (name := SLACK.name(emoji)):
        raise NotSent(f"Slack has no name for {emoji}.")
    return name


def checked_options(deps: ChannelDeps) -> SlackOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    return account_options(SlackOptions, deps, MANIFEST, own=["app_token"])


def bot_tokens(deps: ChannelDeps) -> Sequence[str]:
    """Return the current bot tokens, one per workspace. Raises `ConfigError` without any."""
    variable = "" if deps.account else deps.current_env().get(MANIFEST.enabled_by[0], "")
    listed = [token.strip() for token in (variable or deps.settings.token).split(",")]
    tokens = [token for token in listed if token] or [""]
    return [_checked(deps.name, token, "bot", "xoxb") for token in tokens]


def app_token(deps: ChannelDeps) -> str:
    """Return the app's current token. Raises `ConfigError` if there is none."""
    return _checked(deps.name, checked_options(deps).app_token.strip(), "app", "xapp")


def _checked(name: str, token: str, what: str, prefix: str) -> str:
    if re.fullmatch(rf"{prefix}-[\w-]+", token):
        return token
    raise ConfigError(
        f"{name} has no valid {what} token." if token else f"{name} has no {what} token.",
        hint=f"Get one that begins with {prefix}- at https://api.slack.com/apps and set it with: "
        "hermes gateway setup slack",
    )


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[SlackChannel]:
    options = checked_options(deps)
    app_token(deps)
    unreadable = unreadable_updates(deps)
    settings = ProxySettings(options.proxy_url, "SLACK_PROXY", deps.current_env())
    async with open_web(settings, unreadable) as web:

        def make_api(token: str) -> WebApi:
            return WebApi(web, token, deps.clock, base_url=options.base_url)

        path = state_path(deps)
        position = Position(path, deps.clock)
        builder = InboundBuilder(
            name=deps.name,
            options=options,
            directory=Directory(),
            files=FileReader(received_files(deps, DOWNLOAD_LIMIT), max_bytes=DOWNLOAD_LIMIT),
            position=position,
            commands=[name for name, _ in deps.commands],
        )
        workspaces, caps = len(bot_tokens(deps)), MANIFEST.caps
        yield SlackChannel(
            name=deps.name,
            caps=structs.replace(caps, rate=caps.rate * workspaces, burst=caps.burst * workspaces),
            web=web,
            app_api=lambda: make_api(app_token(deps)),
            workspaces=Workspaces(partial(bot_tokens, deps), make_api, position),
            options=options,
            blobs=deps.blobs,
            builder=builder,
            assistant=Assistant(deps.clock, options, deps.settings.typing_status_text),
            position=position,
            clock=deps.clock,
            unreadable=unreadable,
        )
