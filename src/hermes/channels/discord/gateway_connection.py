"""The connection to Discord's gateway: discord.py speaks the protocol, events pass unchanged.

A session is resumed after a lost connection and after a restart: Discord replays what was missed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import anyio
import discord
import msgspec
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from discord.http import HTTPClient, Route
from msgspec import Raw, Struct
from yarl import URL

from hermes.channels.account import BadToken
from hermes.channels.discord.objects import Frame, GatewayInfo, Ready
from hermes.channels.discord.rest_api import RestApi
from hermes.channels.proxies import Proxy
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.retry import Backoff
from hermes.ports.channel import Offline

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 30.0
CLOSE_TIMEOUT = 2.0
MAX_FAILURES = 5
"""Attempts in a row without an event, after which the channel is reopened."""
MAX_RESUMES = 3
"""Attempts in a row to resume a session without an event, after which a new one is begun."""
STAYS_RESUMABLE = 4000
"""A close code after which the session can be resumed."""
_NEW_SESSION = frozenset({4007, 4009})
"""Close codes after which Discord asks for a new session; discord.py would resume the old one."""
_FATAL = {
    4004: "Discord does not accept the bot token.",
    4013: "Discord does not know the requested intents.",
    4014: "The bot may not read messages: turn on Message Content Intent on the page Bot at "
    "https://discord.com/developers/applications",
}


class ResumePoint(Struct, frozen=True, kw_only=True):
    """Where to resume a session: after the last event that was handled."""

    session: str
    url: str
    sequence: int


class GatewayEvent(Struct, frozen=True, kw_only=True):
    """One event; session and number are the same when it is replayed."""

    session: str
    sequence: int
    name: str
    data: Raw


class GatewayConnection:
    """Receives events during `run`: `receive` gets each one at once, `has_room` pauses reading.

    `on_data` is called for everything that arrives, including acknowledged heartbeats.
    """

    def __init__(
        self,
        *,
        api: RestApi,
        token: str,
        intents: int,
        clock: Clock,
        heartbeat_timeout: float,
        proxy: Proxy,
        receive: Callable[[GatewayEvent], None],
        on_data: Callable[[], None],
        has_room: Callable[[], Awaitable[None]],
    ) -> None:
        self._api = api
        self._token = token
        self._intents = intents
        self._clock = clock
        self._heartbeat_timeout = heartbeat_timeout
        self._proxy = proxy
        self._receive = receive
        self._on_data = on_data
        self._has_room = has_room
        self._backoff = Backoff(base=0.5, cap=15.0)
        self._session = ""
        self._events = 0

    async def run(self, start: ResumePoint | None) -> None:
        """Stay connected. Raises `Offline` once that fails."""
        client = _Client(self._api, self._intents, self._heartbeat_timeout, self._proxy, self._read)
        try:
            await client.login(self._token)
            await self._stay_connected(client, start)
        finally:
            with anyio.CancelScope(shield=True):
                await client.end()

    async def _stay_connected(self, client: "_Client", start: ResumePoint | None) -> None:
        failures = 0
        info = None if start else await self._gateway()
        while True:
            before, reason = self._events, "it closed the connection"
            try:
                await self._connect(client, start, info)
            except ReconnectWebSocket as cut:
                resumable = cut.resume and client.close_code() not in _NEW_SESSION
                start = client.resume_point() or start if resumable else None
            except discord.ConnectionClosed as closed:
                if closed.code in _FATAL:
                    error = BadToken if closed.code == 4004 else Offline
                    raise error(_FATAL[closed.code]) from closed
                reason, start = f"close code {closed.code}", None
            except (OSError, aiohttp.ClientError, TimeoutError, *self._proxy.errors) as error:
                reason = str(error) or type(error).__name__
                start = client.resume_point() or start
            failures = 0 if self._events > before else failures + 1
            if failures >= MAX_FAILURES:
                raise Offline(f"Cannot connect to Discord: {reason}")
            if failures >= MAX_RESUMES:
                # Discord may reject the event number, or the address may no longer exist.
                start = None
            log.info("the gateway connection ended (%s); connecting again", reason)
            if failures:
                await self._clock.sleep(self._backoff.delay(failures))
            info = None if start else await self._gateway()

    async def _connect(
        self, client: "_Client", start: ResumePoint | None, info: GatewayInfo | None
    ) -> None:
        if start is not None:
            self._session = start.session
        await client.open(start, info)
        while True:
            await client.ws.poll_event()
            await self._has_room()

    async def _gateway(self) -> GatewayInfo:
        info = await self._api.gateway()
        limit = info.session_start_limit
        if limit.remaining <= 0:
            raise Offline(
                f"Discord allows no new sessions for this bot for {limit.reset_after // 1000} "
                "seconds."
            )
        return info

    def _read(self, text: str) -> None:
        """Pass an event on; called before discord.py looks at it."""
        self._on_data()
        try:
            frame = msgspec.json.decode(text, type=Frame)
            if frame.op != 0 or frame.t is None or frame.s is None:
                return
            if frame.t == "READY":
                self._session = msgspec.json.decode(frame.d, type=Ready).session_id
        except JSON_ERRORS as error:
            log.warning("a message from Discord's gateway could not be read: %s", error)
            return
        self._events += 1
        event = GatewayEvent(
            session=self._session, sequence=frame.s, name=frame.t, data=Raw(bytes(frame.d))
        )
        self._receive(event)


class _Http(HTTPClient):
    """Sends the requests that discord.py makes at login through our client."""

    def __init__(self, api: RestApi, proxy: Proxy) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop, proxy.connector(limit=0))
        self._api = api
        self._proxies = proxy

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        self.proxy = self._proxies.url_for(str(url))
        return await super().ws_connect(url, compress=compress)

    async def request(self, route: Route, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        path = route.url.removeprefix(Route.BASE)
        return await self._api.call_with_retries(route.method, path, object, kwargs.get("json"))


class _Client(discord.Client):
    """A client without caches and handlers: every frame goes to `read` instead."""

    def __init__(
        self,
        api: RestApi,
        intents: int,
        heartbeat_timeout: float,
        proxy: Proxy,
        read: Callable[[str], None],
    ) -> None:
        self._own_http = _Http(api, proxy)
        self._read = read
        wanted = discord.Intents.none()
        wanted.value = intents
        super().__init__(
            intents=wanted,
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            heartbeat_timeout=heartbeat_timeout,
            enable_debug_events=True,
        )

    def _get_state(self, **options: Any) -> Any:
        self.http = self._own_http
        state = super()._get_state(**options)
        # We parse events ourselves: one that discord.py cannot parse must not end the connection.
        state.parsers = {}
        return state

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        if event == "socket_raw_receive":
            self._read(args[0])

    async def open(self, start: ResumePoint | None, info: GatewayInfo | None) -> None:
        url = URL(start.url if start else info.url if info else "")
        # An invalidated session restarts at the address where it was opened.
        kind = type("_Socket", (DiscordWebSocket,), {"DEFAULT_GATEWAY": url})
        opening = kind.from_client(
            self,
            initial=start is None,
            gateway=url,
            session=start.session if start else None,
            sequence=start.sequence if start else None,
            resume=start is not None,
        )
        self.ws = await asyncio.wait_for(opening, CONNECT_TIMEOUT)

    def resume_point(self) -> ResumePoint | None:
        """Where to resume the session of this connection within this process."""
        # discord.py has no connection before the first one, whatever its types say.
        ws: DiscordWebSocket | None = getattr(self, "ws", None)
        if ws is None or not ws.session_id or ws.sequence is None:
            return None
        return ResumePoint(session=ws.session_id, url=str(ws.gateway), sequence=ws.sequence)

    def close_code(self) -> int | None:
        """The code with which Discord closed the latest connection."""
        ws: DiscordWebSocket | None = getattr(self, "ws", None)
        return None if ws is None else ws.socket.close_code

    async def end(self) -> None:
        """Close the connection so that the session can be resumed."""
        with anyio.move_on_after(CLOSE_TIMEOUT):
            ws: DiscordWebSocket | None = getattr(self, "ws", None)
            if ws is not None:
                await ws.close(code=STAYS_RESUMABLE)
        with anyio.move_on_after(CLOSE_TIMEOUT):
            await self.close()
