"""The XMPP channel: one account in direct chats and rooms."""

import hashlib
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from xml.etree.ElementTree import Element

import anyio
from anyio.to_thread import run_sync
from msgspec import structs

from hermes.channels.account import BadToken, account_options, check_address, require_options
from hermes.channels.connection import LastSeen, Retries, first_error
from hermes.channels.http_client import open_http_client
from hermes.channels.proxies import ProxySettings, socket_proxy, stays_here
from hermes.channels.received_files import received_files
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.channels.xmpp import FILE_LIMIT, MANIFEST, XmppOptions
from hermes.channels.xmpp.connection import XmppAccount, XmppConnection, open_xmpp
from hermes.channels.xmpp.file_upload import FileUpload
from hermes.channels.xmpp.inbound import InboundBuilder, Rooms
from hermes.channels.xmpp.records import ArchivePosition, XmppRecords
from hermes.channels.xmpp.session import XmppSession
from hermes.channels.xmpp.stanzas import (
    CHAT_STATES,
    CLIENT,
    CORRECTION,
    ORIGIN_ID,
    RECEIPTS,
    REPLY,
    XmppMessage,
    bare,
    element,
    reactions_element,
    text_elements,
)
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.lru_map import LruMap
from hermes.kit.tasks import background_tasks
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    Markup,
    NotSent,
    Offline,
    Outbound,
    Receipt,
)
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address

HandleInbound = Callable[[Inbound], Awaitable[None]]
RECONNECT_PAUSE = 0.5
READY_SECONDS = 30.0
MAX_REMEMBERED = 5_000
OWN_ID = "hermes-"
CANNOT_DECRYPT = (
    "This message was encrypted end to end, which I cannot read. "
    "Please turn off encryption (OMEMO) in this chat and send it again."
)
_JID = re.compile(r"[^\s@/<>\"'&]+@[^\s@/<>\"'&]+")


class XmppChannel:
    """Implements `Channel` with editing, typing, reactions and liveness; never retries a post."""

    def __init__(
        self,
        *,
        name: str,
        account: Callable[[], XmppAccount],
        options: XmppOptions,
        records: XmppRecords,
        rooms: Rooms,
        builder: InboundBuilder,
        upload: FileUpload,
        clock: Clock,
        unreadable: UnreadableUpdates,
    ) -> None:
        self.caps: ChannelCapabilities = MANIFEST.caps
        self._name = name
        self._account = account
        self._room_list = [_room_and_password(room) for room in options.muc_rooms]
        self._records = records
        self._rooms = rooms
        self._builder = builder
        self._upload = upload
        self._clock = clock
        self._unreadable = unreadable
        self._last_seen = LastSeen(clock)
        self._retries = Retries(clock, pause=RECONNECT_PAUSE)
        self._waiting: deque[XmppMessage] = deque()
        """Messages that are not stored yet; they outlive a connection."""
        self._open: tuple[XmppConnection, XmppSession] | None = None
        self._reactions: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """The ids that rooms gave to our messages, for reactions."""
        self._warned: LruMap[str, bool] = LruMap(MAX_REMEMBERED)
        """Chats that were notified that encrypted messages cannot be read."""

    async def run(self, deliver: HandleInbound) -> None:
        while True:
            try:
                await self._stay_connected(deliver)
            except BadToken:
                raise
            except Offline as error:
                await self._retries.failed(error)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        parts: list[Element] = []
        if post.text:
            parts += text_elements(post.text, styled=post.markup is Markup.XMPP)
        for attachment in post.attachments:
            connection, _ = await self._ready()
            parts += await self._upload.share(connection, attachment)
        if post.reply_to:
            parts.append(element(REPLY, "reply", id=post.reply_to, to=to.chat))
        message = _message_id(post.key)
        await self._send(to, message, parts)
        return Receipt(to, message)

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        check_address(receipt.address, self._name)
        if not receipt.id.startswith(OWN_ID):
            raise NotSent("This message was not sent by this account.")
        parts = text_elements(post.text, styled=post.markup is Markup.XMPP)
        parts.append(element(CORRECTION, "replace", id=receipt.id))
        await self._send(receipt.address, _message_id(""), parts)

    async def typing(self, to: Address, on: bool) -> None:
        connection, _ = await self._ready()
        state = element(CHAT_STATES, "composing" if on else "paused")
        connection.send_message(to.chat, self._kind(to.chat), new_id("state"), [state])

    async def react(self, to: Address, message: str, emoji: str) -> None:
        """Show our reaction to a message; it replaces the previous one."""
        check_address(to, self._name)
        about = self._reactions.get(message) or message
        await self._send(to, _message_id(""), [reactions_element(about, [emoji] if emoji else [])])

    def last_seen_at(self) -> datetime | None:
        return self._last_seen.at

    def _kind(self, chat: str) -> str:
        return "groupchat" if chat in self._rooms.names else "chat"

    async def _ready(self) -> tuple[XmppConnection, XmppSession]:
        if (current := self._open) is None:
            raise Offline("There is no connection to the XMPP server.")
        with anyio.move_on_after(READY_SECONDS):
            await current[1].ready.wait()
        if current is not self._open:
            raise Offline("The connection to the XMPP server was lost.")
        return current

    async def _send(self, to: Address, message: str, parts: list[Element]) -> None:
        if not _JID.fullmatch(to.chat):
            raise NotSent(f"{to.chat!r} is not an XMPP address.")
        connection, session = await self._ready()
        parts.append(element(ORIGIN_ID, "origin-id", id=message))
        room_id = await session.send(connection, to.chat, self._kind(to.chat), message, parts)
        if room_id:
            self._builder.sent(message, room_id)
            self._reactions.put(message, room_id)

    async def _stay_connected(self, deliver: HandleInbound) -> None:
        account = self._account()
        session = XmppSession(
            own=bare(account.jid),
            rooms=self._rooms,
            waiting=self._waiting,
            unreadable=self._unreadable,
            clock=self._clock,
        )
        async with open_xmpp(
            account,
            on_message=session.handle_message,
            on_presence=session.handle_presence,
            on_data=self._last_seen.mark,
        ) as connection:
            self._last_seen.mark()
            self._open = (connection, session)
            try:
                async with background_tasks() as group:
                    group.start_soon(connection.keep_connected)
                    group.start_soon(session.keep_alive, connection)
                    group.start_soon(self._records.keep_writing)
                    await self._receive(connection, session, deliver)
            except ExceptionGroup as failures:
                raise first_error(failures) from None
            finally:
                self._open = None
                with anyio.CancelScope(shield=True):
                    await self._records.write()

    async def _receive(
        self, connection: XmppConnection, session: XmppSession, deliver: HandleInbound
    ) -> None:
        await self._take_waiting(connection, len(self._waiting), deliver)
        connection.send_presence()
        await session.join(connection, self._room_list)
        session.ready.set()
        for archive in [connection.own, *sorted(self._rooms.joined)]:
            await self._catch_up(connection, session, archive, deliver)
        self._retries.succeeded()
        while True:
            await session.wait()
            await self._take_waiting(connection, 1, deliver)

    async def _catch_up(
        self,
        connection: XmppConnection,
        session: XmppSession,
        archive: str,
        deliver: HandleInbound,
    ) -> None:
        """Fetch messages added to the archive since it was last read."""
        position = self._records.position(archive)
        found = await session.missed(connection, archive, position)
        if position is None:
            # Messages from before the first start are not answered.
            last = found[-1].archive_id if found else ""
            self._records.advance(archive, ArchivePosition(last, self._clock.now()))
            return
        for message in found:
            await self._take(connection, message, deliver)

    async def _take_waiting(
        self, connection: XmppConnection, count: int, deliver: HandleInbound
    ) -> None:
        for _ in range(count):
            await self._take(connection, self._waiting[0], deliver)
            self._waiting.popleft()

    async def _take(
        self, connection: XmppConnection, message: XmppMessage, deliver: HandleInbound
    ) -> None:
        keys = self._builder.keys(message)
        if not self._is_for_us(connection, message) or self._records.is_handled(keys):
            return
        if message.encrypted:
            await self._say_unreadable(connection, message)
        else:
            key = keys[0] if keys else new_id("xmpp")
            updates: list[Inbound] = []
            with self._unreadable.skipping(message):
                updates = await self._builder.updates(message, key)
            for update in updates:
                await deliver(update)
        self._records.handled(keys)
        if message.archive_id:
            at = message.at or self._clock.now()
            self._records.advance(message.archive, ArchivePosition(message.archive_id, at))
        if message.wants_receipt and message.kind != "groupchat" and message.id:
            receipt = element(RECEIPTS, "received", id=message.id)
            # Without the receipt, the sender just does not know that the message arrived.
            with suppress(Offline):
                connection.send_message(message.sender, message.kind, new_id("receipt"), [receipt])

    def _is_for_us(self, connection: XmppConnection, message: XmppMessage) -> bool:
        if message.kind == "groupchat":
            return (
                message.chat in self._rooms.joined
                and bool(message.nick)
                and (message.nick != self._rooms.nick)
            )
        # Private messages in rooms come from the room, so the sender is unknown.
        is_private = message.chat in self._rooms.names
        return (
            message.kind in {"chat", "normal"} and message.chat != connection.own and not is_private
        )

    async def _say_unreadable(self, connection: XmppConnection, message: XmppMessage) -> None:
        if message.kind != "chat" or self._warned.get(message.chat):
            return
        self._warned.put(message.chat, True)
        body = element(CLIENT, "body", CANNOT_DECRYPT)
        with suppress(Offline):
            connection.send_message(message.sender, "chat", _message_id(""), [body])


def _message_id(key: str) -> str:
    """Return a message id that is the same for each attempt to send a post."""
    name = hashlib.sha256(key.encode()).hexdigest()[:32] if key else new_id("m")
    return f"{OWN_ID}{name}"


def _room_and_password(entry: str) -> tuple[str, str]:
    room, _, password = entry.strip().partition(" ")
    return bare(room), password.strip()


def checked_options(deps: ChannelDeps) -> XmppOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(XmppOptions, deps, MANIFEST, own=MANIFEST.variables)
    password = options.password or deps.settings.token or deps.settings.api_key
    options = structs.replace(options, password=password.strip(), jid=options.jid.strip())
    require_options(options, deps, MANIFEST, ("jid", "password"))
    return options


def account_of(options: XmppOptions, env: Mapping[str, str]) -> XmppAccount:
    """Return the login. Raises `ConfigError` if the options cannot be used."""
    if not _JID.fullmatch(options.jid.partition("/")[0]):
        raise ConfigError(
            f"{options.jid!r} is not an XMPP address.", hint="XMPP_JID must be name@server."
        )
    host = options.host or bare(options.jid).partition("@")[2]
    proxy = socket_proxy(MANIFEST.label, host, _proxy_settings(options, env))
    if not options.use_tls and not stays_here(options.host, proxy):
        raise ConfigError(
            "The password would be sent without encryption.",
            hint="XMPP_USE_TLS=false is only possible with a server on this machine.",
        )
    return XmppAccount(
        jid=options.jid,
        password=options.password,
        host=options.host,
        port=options.port,
        use_tls=options.use_tls,
        proxy=proxy,
    )


def _proxy_settings(options: XmppOptions, env: Mapping[str, str]) -> ProxySettings:
    return ProxySettings(options.proxy_url, "XMPP_PROXY", env)


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[XmppChannel]:
    options = checked_options(deps)
    own = bare(account_of(options, deps.current_env()).jid)
    path = deps.home / "xmpp" / f"{f'account-{deps.account}' if deps.account else 'account'}.json"
    records = await run_sync(XmppRecords, path, own)
    rooms = Rooms(options.muc_nick, [_room_and_password(room)[0] for room in options.muc_rooms])
    settings = _proxy_settings(options, deps.current_env())
    async with open_http_client(MANIFEST.label, settings) as http:
        yield XmppChannel(
            name=deps.name,
            account=lambda: account_of(checked_options(deps), deps.current_env()),
            options=options,
            records=records,
            rooms=rooms,
            builder=InboundBuilder(
                name=deps.name,
                own=own,
                rooms=rooms,
                files=received_files(deps, FILE_LIMIT),
                download=partial(http.download, max_bytes=FILE_LIMIT),
            ),
            upload=FileUpload(http, deps.blobs),
            clock=deps.clock,
            unreadable=unreadable_updates(deps),
        )
