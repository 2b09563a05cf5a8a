"""The QQ channel: receives events of a websocket, sends messages over HTTP."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

import anyio
from msgspec import structs

from hermes.channels.account import BadToken, account_options, check_address, require_options
from hermes.channels.chat_queues import ChatQueues
from hermes.channels.connection import LastSeen, Retries, first_error
from hermes.channels.http_client import Upload
from hermes.channels.qqbot import FILE_LIMIT, MANIFEST, QqbotOptions
from hermes.channels.qqbot.event_socket import (
    BANNED,
    INTENTS,
    REFUSED_INTENTS,
    may_resume,
    open_event_socket,
    session_of,
)
from hermes.channels.qqbot.inbound import INTERACTION, InboundBuilder, Origin
from hermes.channels.qqbot.objects import ChatKind, Frame
from hermes.channels.qqbot.outbound import (
    IMAGE,
    Permissions,
    file_type_of,
    media_fields,
    message_fields,
    text_fields,
)
from hermes.channels.qqbot.position import EventLog, Position
from hermes.channels.qqbot.reply_windows import Chats, Question, Reply, ReplyWindows, written_at
from hermes.channels.qqbot.rest_api import (
    KeyboardRefused,
    LinkRefused,
    MarkdownRefused,
    PushRefused,
    QqApi,
    RepeatedReply,
    ReplyRefused,
    open_qq_api,
)
from hermes.channels.received_files import ReceivedFiles, received_files
from hermes.channels.state_file import StateFile
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.channels.websocket import SocketClosed
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    Attachment,
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    Markup,
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
MAX_REMEMBERED = 5_000
CLOSED = (
    "QQ only accepts replies for a while after someone wrote. The message is sent when someone "
    "writes again."
)


class QqbotChannel:
    """Implements `Channel` with liveness; never repeats a post that may have been sent."""

    def __init__(
        self,
        *,
        name: str,
        api: QqApi,
        options: QqbotOptions,
        blobs: Blobs,
        files: ReceivedFiles,
        events: EventLog,
        windows: ReplyWindows,
        unreadable: UnreadableUpdates,
        clock: Clock,
    ) -> None:
        caps = MANIFEST.caps
        plain = structs.replace(caps, markup=Markup.PLAIN, buttons=0)
        self.caps: ChannelCapabilities = caps if options.markdown_support else plain
        self._name = name
        self._api = api
        self._options = options
        self._blobs = blobs
        self._events = events
        self._windows = windows
        self._unreadable = unreadable
        self._clock = clock
        self._seen = LastSeen(clock)
        self._may = Permissions(markdown=options.markdown_support)
        self._intents = 0
        self._closed: LruMap[str, bool] = LruMap(MAX_REMEMBERED)
        """Chats in which nothing can be sent until someone writes."""
        self._posts: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        self._handled: LruMap[str, bool] = LruMap(MAX_REMEMBERED)
        self._builder = InboundBuilder(
            name=name, app=options.app_id, api=api, files=files, posts=self._posts
        )

    async def run(self, deliver: HandleInbound) -> None:
        retries = Retries(self._clock, pause=0.25)
        await self._events.load()
        while True:
            try:
                await self._connect(deliver, retries)
            except BadToken:
                raise
            except (Offline, Throttled, UnknownOutcome) as error:
                self._after_end(error)
                await retries.failed(error)

    def _after_end(self, error: Exception) -> None:
        """Decide whether to resume the session. Raises `Offline` for a suspended bot."""
        self._events.interrupted()
        code = error.close_code if isinstance(error, SocketClosed) else 0
        if code in BANNED:
            raise Offline(
                "QQ has suspended the bot, or allows it only in the sandbox.",
                hint="See its state at https://q.qq.com.",
            )
        if code in REFUSED_INTENTS and self._intents + 1 < len(INTENTS):
            self._intents += 1
            log.warning("QQ grants the bot fewer events; trying set %s", self._intents)
        if isinstance(error, Offline) and not may_resume(error):
            self._events.opened("", 0)

    async def _connect(self, deliver: HandleInbound, retries: Retries) -> None:
        """Receive events until the connection ends."""
        url = await self._api.websocket_url()
        authorization = await self._api.authorization()
        self._seen.mark()
        try:
            async with (
                open_event_socket(
                    url, proxy=self._api.proxy, clock=self._clock, on_data=self._seen.mark
                ) as socket,
                anyio.create_task_group() as group,
            ):
                queues = ChatQueues(group, partial(self._handle, deliver))
                session = self._events.session
                await socket.log_in(authorization, INTENTS[self._intents], session)
                group.start_soon(self._events.keep_writing)
                group.start_soon(socket.keep_alive)
                while True:
                    await queues.has_room()
                    frame = await socket.next_event()
                    retries.succeeded()
                    self._receive(frame, queues)
        except ExceptionGroup as failures:
            raise first_error(failures) from None

    def _receive(self, frame: Frame, queues: ChatQueues[tuple[Frame, Origin]]) -> None:
        sequence = frame.s or 0
        if session := session_of(frame):
            self._events.opened(session, sequence)
            return
        self._events.began(sequence)
        origin = None
        with self._unreadable.skipping(frame.d):
            origin = self._builder.origin_of(frame)
        if origin is None or not origin.chat:
            self._events.ended(sequence)
        else:
            queues.put(origin.chat, (frame, origin))

    async def _handle(self, deliver: HandleInbound, item: tuple[Frame, Origin]) -> None:
        frame, origin = item
        if frame.t == INTERACTION:
            await self._acknowledge(origin.question)
        if origin.question:
            at = written_at(origin.timestamp, self._clock.now())
            question = Question(origin.question, at, origin.event)
            await self._windows.opened(origin.chat, origin.kind, question)
            self._closed.drop(origin.chat)
        inbound: Inbound | None = None
        with self._unreadable.skipping(frame.d):
            inbound = await self._builder.build(frame, origin)
        if inbound is not None and not self._handled.get(inbound.key):
            await deliver(inbound)
            self._handled.put(inbound.key, True)
        self._events.ended(frame.s or 0)

    async def _acknowledge(self, interaction: str) -> None:
        """Acknowledge a press, or the button looks busy; the press counts in any case."""
        try:
            await self._api.acknowledge(interaction)
        except (NotSent, UnknownOutcome) as error:
            log.info("a button press could not be acknowledged: %s", error)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        kind = await self._windows.kind_of(to.chat)
        if post.attachments:
            sent = await self._send_files(kind, to.chat, post)
        else:
            make = partial(message_fields, post, kind)
            sent = await self._send(kind, to.chat, post, make)
        for choice in post.choices:
            self._posts.put(f"{to.chat}:{choice.value}", sent)
        return Receipt(to, sent)

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    async def _send_files(self, kind: ChatKind, chat: str, post: Outbound) -> str:
        sent = ""
        for number, attachment in enumerate(post.attachments):
            caption = attachment.caption or (post.text if number == 0 else "")
            part = structs.replace(post, key=f"{post.key}:{number}" if number else post.key)
            sent = await self._send_file(kind, chat, part, attachment, caption)
        return sent

    async def _send_file(
        self, kind: ChatKind, chat: str, post: Outbound, file: Attachment, caption: str
    ) -> str:
        data = await self._blobs.read(file.media.digest)
        name, file_type = file.media.name or "file", file_type_of(file)
        upload = Upload("file_image", name, file.media.media_type, data)
        if not kind.in_guild:
            info = await self._api.upload(kind, chat, upload, file_type)
            make = partial(media_fields, caption, info)
            return await self._send(kind, chat, post, make)
        if file_type != IMAGE:
            raise NotSent(f"{name} cannot be sent: QQ guilds only take PNG and JPEG images.")
        return await self._send(kind, chat, post, partial(text_fields, caption, kind), upload)

    async def _send(
        self,
        kind: ChatKind,
        chat: str,
        post: Outbound,
        make: Callable[[Permissions], dict[str, object]],
        image: Upload | None = None,
    ) -> str:
        """Reply to the first open question that QQ accepts, with the permitted kinds of content.

        Each further attempt follows a refusal, so nothing is sent twice.
        """
        links = True
        while True:
            reply = await self._windows.next_reply(chat, post.key, post.reply_to)
            if reply is None and self._closed.get(chat):
                raise Offline(CLOSED)
            fields = make(structs.replace(self._may, links=links))
            if reply is not None:
                fields |= reply.fields_in(kind)
            try:
                return await self._api.send(kind, chat, fields, image)
            except RepeatedReply:
                return f"repeated:{post.key}"
            except LinkRefused:
                if not links:
                    raise
                links = False
            except (ReplyRefused, PushRefused, KeyboardRefused, MarkdownRefused) as error:
                log.info("%s", error)
                await self._learn(chat, reply, error)

    async def _learn(self, chat: str, reply: Reply | None, refusal: NotSent) -> None:
        """Stop using what QQ refused."""
        match refusal:
            case ReplyRefused():
                await self._windows.spent(chat, reply)
            case KeyboardRefused():
                self._may.buttons = _withdrawn(self._may.buttons, "buttons")
            case MarkdownRefused():
                self._may.markdown = _withdrawn(self._may.markdown, "Markdown")
                raise refusal
            case _:
                self._closed.put(chat, True)


def _withdrawn(allowed: bool, what: str) -> bool:
    """Stop using this permission. Raises `NotSent` if it was not in use."""
    if not allowed:
        raise NotSent(f"QQ refuses {what}, although the message has none.")
    log.warning("QQ does not let this bot use %s; messages are sent without them", what)
    return False


def checked_options(deps: ChannelDeps) -> QqbotOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(QqbotOptions, deps, MANIFEST, own=("app_id", "client_secret"))
    secret = deps.settings.token or deps.settings.api_key
    options = structs.replace(options, client_secret=options.client_secret or secret or "")
    require_options(options, deps, MANIFEST, ("app_id", "client_secret"))
    return options


def _current_secret(deps: ChannelDeps) -> tuple[str, str]:
    options = checked_options(deps)
    return options.app_id, options.client_secret


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[QqbotChannel]:
    options = checked_options(deps)
    folder, name = deps.home / "cache" / "qqbot", deps.name.replace("/", "-")
    secret, env = partial(_current_secret, deps), deps.current_env()
    async with open_qq_api(options, secret, deps.clock, env) as api:
        yield QqbotChannel(
            name=deps.name,
            api=api,
            options=options,
            blobs=deps.blobs,
            files=received_files(deps, FILE_LIMIT),
            events=EventLog(StateFile(folder / f"{name}.json", Position)),
            windows=ReplyWindows(StateFile(folder / f"{name}-chats.json", Chats), deps.clock),
            unreadable=unreadable_updates(deps),
            clock=deps.clock,
        )
