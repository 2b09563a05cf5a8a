"""The IRC channel: a nickname on one network."""

import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

import anyio
from anyio.to_thread import run_sync
from msgspec import structs

from hermes.channels.account import account_options, check_address
from hermes.channels.connection import LastSeen, Retries, first_error
from hermes.channels.irc import MANIFEST, NICKNAME, SERVER, IrcOptions
from hermes.channels.irc.batches import time_of
from hermes.channels.irc.connection import IrcServer, open_connection
from hermes.channels.irc.inbound import PERSON, InboundBuilder
from hermes.channels.irc.login import IrcLogin, LoginDialog
from hermes.channels.irc.nickserv import LoginRefused
from hermes.channels.irc.pending_post import FloodLimit
from hermes.channels.irc.records import IrcRecords
from hermes.channels.irc.session import IrcSession, Received
from hermes.channels.irc.text_lines import without_codes
from hermes.channels.proxies import ProxySettings, socket_proxy, stays_here
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
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
_PLAIN_PORT = 6667
_MAX_PORT = 65_535
_TARGET = re.compile(r"[^\s,:\x00-\x1f][^\s,\x00-\x1f]*")


class IrcChannel:
    """Implements `Channel` with liveness; never retries a post. `account` is the current login."""

    def __init__(
        self,
        *,
        name: str,
        account: Callable[[], tuple[IrcServer, IrcLogin]],
        options: IrcOptions,
        records: IrcRecords,
        builder: InboundBuilder,
        clock: Clock,
        unreadable: UnreadableUpdates,
    ) -> None:
        self.caps: ChannelCapabilities = MANIFEST.caps
        self._name = name
        self._account = account
        self._channels = dict(map(_channel_and_key, options.channel))
        self._records = records
        self._builder = builder
        self._flood = FloodLimit(clock, options.flood_burst, options.flood_interval)
        self._clock = clock
        self._unreadable = unreadable
        self._last_seen = LastSeen(clock)
        self._session: IrcSession | None = None
        self._waiting: deque[Received] = deque()
        """Messages that are not stored yet; they outlive a connection."""
        self._retries = Retries(clock, pause=RECONNECT_PAUSE)

    async def run(self, deliver: HandleInbound) -> None:
        while True:
            try:
                await self._stay_connected(deliver)
            except LoginRefused:
                raise
            except Offline as error:
                await self._retries.failed(error)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        check_address(to, self._name)
        target = self._target(to.chat)
        session = self._session
        if session is None:
            raise Offline("There is no connection to the IRC server.")
        text = post.text if post.markup is Markup.IRC else without_codes(post.text)
        message_id = await session.send(target, text, post.reply_to)
        if message_id:
            self._builder.sent(message_id)
        return Receipt(to, message_id or new_id("irc"))

    def last_seen_at(self) -> datetime | None:
        return self._last_seen.at

    def _target(self, chat: str) -> str:
        """Return the channel, or the current nickname of a person."""
        if f"#{chat}" in self._channels:
            return f"#{chat}"
        target = self._records.nick_of(chat.removesuffix(PERSON)) or chat.partition("!")[0]
        if not _TARGET.fullmatch(target):
            raise NotSent(f"{chat!r} is not a channel or nickname.")
        return target

    async def _stay_connected(self, deliver: HandleInbound) -> None:
        server, login = self._account()
        async with open_connection(server, self._last_seen.mark) as connection:
            welcome = await LoginDialog(connection, login).run()
            session = IrcSession(
                connection=connection,
                login=login,
                welcome=welcome,
                channels=self._channels,
                waiting=self._waiting,
                flood=self._flood,
                clock=self._clock,
            )
            self._session = session
            try:
                async with background_tasks() as group:
                    group.start_soon(session.read)
                    group.start_soon(session.keep_alive)
                    group.start_soon(self._records.keep_writing)
                    await self._receive(session, deliver)
            except ExceptionGroup as failures:
                raise first_error(failures) from None
            finally:
                self._session = None
                with anyio.CancelScope(shield=True):
                    await self._records.write()

    async def _receive(self, session: IrcSession, deliver: HandleInbound) -> None:
        since = self._records.missed_since
        self._records.begin(self._clock.now())
        await self._take_waiting(session, len(self._waiting), deliver)
        await session.enter()
        if since is not None:
            for line in await session.missed(since, self._clock.now()):
                await self._take(session, Received(line, replayed=True), deliver)
        await self._take_waiting(session, len(self._waiting), deliver)
        self._records.caught_up()
        self._retries.succeeded()
        while True:
            await session.wait()
            await self._take_waiting(session, 1, deliver)

    async def _take_waiting(self, session: IrcSession, count: int, deliver: HandleInbound) -> None:
        for _ in range(count):
            await self._take(session, self._waiting[0], deliver)
            self._waiting.popleft()

    async def _take(self, session: IrcSession, received: Received, deliver: HandleInbound) -> None:
        line = received.line
        message_id, at = line.tags.get("msgid", ""), time_of(line) or self._clock.now()
        if message_id and self._records.is_handled(message_id):
            return
        if received.replayed and not (message_id and self._records.is_missed(at)):
            return
        inbound = None
        with self._unreadable.skipping(line):
            inbound = self._builder.message(line, session.welcome, session.nick)
        if inbound is not None:
            await deliver(inbound)
        self._records.handled(message_id, at)


def _channel_and_key(entry: str) -> tuple[str, str]:
    name, _, key = entry.strip().partition(" ")
    return (name if name[:1] in "#&+!" else f"#{name}"), key.strip()


def checked_options(deps: ChannelDeps) -> IrcOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(IrcOptions, deps, MANIFEST, own=MANIFEST.variables)
    password = options.nickserv_password or deps.settings.token or deps.settings.api_key
    return structs.replace(options, nickserv_password=password.strip())


def account_of(
    options: IrcOptions, name: str, env: Mapping[str, str]
) -> tuple[IrcServer, IrcLogin]:
    """Return the server and the login. Raises `ConfigError` if the options cannot be used."""
    if not options.server.strip():
        raise ConfigError(
            f"{name} needs IRC_SERVER (server).", hint="Set it with: hermes gateway setup irc"
        )
    if not re.fullmatch(NICKNAME, options.nickname):
        raise ConfigError(
            f"{options.nickname!r} is not a nickname.", hint="Correct IRC_NICKNAME (nickname)."
        )
    server = _server(options, ProxySettings(options.proxy_url, "IRC_PROXY", env))
    login = _login(options)
    has_secret = bool(login.password or login.server_password)
    if has_secret and not server.use_tls and not stays_here(server.host, server.proxy):
        raise ConfigError(
            f"The password would be sent to {server.host} without encryption.",
            hint="Set IRC_USE_TLS=true; the port is usually 6697.",
        )
    return server, login


def _server(options: IrcOptions, settings: ProxySettings) -> IrcServer:
    """Read the server's address. Raises `ConfigError` for a port that does not exist."""
    host, port, use_tls = options.server.strip(), options.port, options.use_tls
    if parsed := re.fullmatch(SERVER, host):
        host = parsed["ipv6"] or parsed["host"]
        if parsed["scheme"]:
            use_tls = parsed["scheme"] == "ircs"
            port = port if use_tls else _PLAIN_PORT
        port = int(parsed["port"] or port)
    if not 0 < port <= _MAX_PORT:
        raise ConfigError(
            f"{port} is not a port.", hint="Correct IRC_SERVER (server) or IRC_PORT (port)."
        )
    return IrcServer(
        host=host,
        port=port,
        use_tls=use_tls,
        client_cert=options.client_cert,
        proxy=socket_proxy(MANIFEST.label, host, settings),
    )


def _login(options: IrcOptions) -> IrcLogin:
    password = options.sasl_password or options.nickserv_password
    mechanism = options.sasl_mechanism
    if mechanism == "auto":
        mechanism = "plain" if password else "external" if options.client_cert else "none"
    return IrcLogin(
        nickname=options.nickname,
        server_password=options.server_password,
        mechanism="" if mechanism == "none" else mechanism.upper(),
        username=options.sasl_username or options.nickname,
        password=password,
    )


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[IrcChannel]:
    options = checked_options(deps)
    server, _ = account_of(options, deps.name, deps.current_env())
    path = deps.home / "irc" / f"{f'account-{deps.account}' if deps.account else 'network'}.json"
    account = f"{options.nickname}@{server.host}:{server.port}"
    records = await run_sync(IrcRecords, path, account)
    yield IrcChannel(
        name=deps.name,
        account=lambda: account_of(checked_options(deps), deps.name, deps.current_env()),
        options=options,
        records=records,
        builder=InboundBuilder(
            name=deps.name,
            server=server.host,
            rooms={_channel_and_key(one)[0] for one in options.channel},
            trust_nicknames=options.trust_nicknames,
            records=records,
        ),
        clock=deps.clock,
        unreadable=unreadable_updates(deps),
    )
