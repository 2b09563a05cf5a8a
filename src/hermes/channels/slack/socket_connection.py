"""Socket Mode: stay connected, pass envelopes on, replace a connection before Slack ends it."""

import logging
from collections.abc import Awaitable, Callable

import aiohttp
import anyio
import msgspec
from anyio.abc import TaskGroup

from hermes.channels.slack.objects import Frame
from hermes.channels.slack.web_api import WebAccess, WebApi
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.retry import Backoff
from hermes.ports.channel import Offline

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 30.0
CLOSE_TIMEOUT = 2.0
PING_SECONDS = 10.0
SILENCE_SECONDS = 30.0
"""Seconds of silence after which a connection is replaced."""
OVERLAP_SECONDS = 10.0
"""Seconds an old connection stays open beside its successor, to acknowledge its envelopes."""
MAX_FAILURES = 5
"""Attempts in a row without a connection, after which the channel is reopened."""
_ENDS_SOON = frozenset({"warning", "refresh_requested"})


class SocketLink:
    """One connection. `stale` is set once it must be replaced, `closed` when it has ended."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, clock: Clock) -> None:
        self._socket = socket
        self._clock = clock
        self._last_data_at = clock.monotonic()
        self.ready = anyio.Event()
        self.stale = anyio.Event()
        self.closed = anyio.Event()
        self.disabled = False
        self.connections = 0

    async def acknowledge(self, envelope: str, payload: object = None) -> None:
        """Confirm an envelope; without that, Slack sends it again."""
        body: dict[str, object] = {"envelope_id": envelope}
        if payload is not None:
            body["payload"] = payload
        try:
            await self._socket.send_str(msgspec.json.encode(body).decode())
        except (aiohttp.ClientError, OSError) as error:
            log.info("an envelope could not be acknowledged: %s", type(error).__name__)

    async def next_frame(self) -> Frame | None:
        """The next frame; None at the end. Pings are answered here."""
        while True:
            message = await self._socket.receive()
            match message.type:
                case aiohttp.WSMsgType.TEXT:
                    self._last_data_at = self._clock.monotonic()
                    try:
                        return msgspec.json.decode(message.data, type=Frame)
                    except JSON_ERRORS as error:
                        log.warning("a message of the socket could not be read: %s", error)
                case aiohttp.WSMsgType.PING:
                    self._last_data_at = self._clock.monotonic()
                    await self._socket.pong(message.data)
                    return Frame(type="ping")
                case aiohttp.WSMsgType.PONG:
                    self._last_data_at = self._clock.monotonic()
                    return Frame(type="pong")
                case _:
                    return None

    async def keep_pinging(self) -> None:
        """Close the connection if nothing arrives."""
        while self._clock.monotonic() - self._last_data_at < SILENCE_SECONDS:
            await self._socket.ping()
            await self._clock.sleep(PING_SECONDS)
        log.info("the socket is silent; connecting again")

    async def close(self) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
            await self._socket.close()


class SocketConnection:
    """Receives envelopes during `run`: `receive` gets each one at once, `has_room` pauses reading.

    `connected` is called for each new connection, with whether there was an outage; `on_data` for
    everything that arrives afterwards.
    """

    def __init__(
        self,
        *,
        api: WebApi,
        web: WebAccess,
        clock: Clock,
        receive: Callable[[Frame, SocketLink], None],
        connected: Callable[[bool], None],
        on_data: Callable[[], None],
        has_room: Callable[[], Awaitable[None]],
    ) -> None:
        self._api = api
        self._session = web.session
        self._clock = clock
        self._proxy = web.proxy
        self._receive = receive
        self._connected = connected
        self._on_data = on_data
        self._has_room = has_room
        self._backoff = Backoff(base=0.5, cap=15.0)
        self._open_links = 0

    async def run(self) -> None:
        """Stay connected. Raises `Offline` once that fails."""
        async with anyio.create_task_group() as group:
            quick_ends = 0
            while True:
                link = await self._connect(group)
                opened = self._clock.monotonic()
                if link.connections > self._open_links:
                    log.warning(
                        "another program is connected with the same app token and receives some of "
                        "the messages"
                    )
                await link.stale.wait()
                if link.disabled:
                    raise Offline(
                        "Socket Mode is turned off for the app.",
                        hint="Turn it on at https://api.slack.com/apps on the page Socket Mode.",
                    )
                is_quick = self._clock.monotonic() - opened < OVERLAP_SECONDS
                quick_ends = quick_ends + 1 if is_quick else 0
                if quick_ends > 1:
                    await self._clock.sleep(self._backoff.delay(quick_ends))

    async def _connect(self, group: TaskGroup) -> SocketLink:
        """Open a connection; the one before it may still be open."""
        failures = 0
        while True:
            link: SocketLink | None = None
            try:
                url = await self._api.socket_address()
                with anyio.fail_after(CONNECT_TIMEOUT):
                    socket = await self._session.ws_connect(
                        url, autoping=False, max_msg_size=0, proxy=self._proxy.url_for(url)
                    )
                    link = SocketLink(socket, self._clock)
                    group.start_soon(self._serve, link)
                    await link.ready.wait()
                if not link.closed.is_set() or link.disabled:
                    return link
                reason = "it closed the connection"
            except (OSError, aiohttp.ClientError, TimeoutError, *self._proxy.errors) as error:
                # Not the error's own text: it may contain the URL and its ticket.
                reason = type(error).__name__
                if link is not None:
                    link.stale.set()
            failures += 1
            if failures >= MAX_FAILURES:
                raise Offline(f"Cannot connect to Slack: {reason}")
            await self._clock.sleep(self._backoff.delay(failures))

    async def _serve(self, link: SocketLink) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, link, group)
                await self._read(link)
                group.cancel_scope.cancel()
        finally:
            self._open_links -= link.connections > 0
            link.closed.set()
            link.stale.set()
            link.ready.set()
            await link.close()

    async def _watch(self, link: SocketLink, group: TaskGroup) -> None:
        """Close the connection when it is silent, or some time after it should be replaced."""
        async with anyio.create_task_group() as watchers:
            watchers.start_soon(self._ping, link, group)
            await link.stale.wait()
            await self._clock.sleep(OVERLAP_SECONDS)
            watchers.cancel_scope.cancel()
            group.cancel_scope.cancel()

    async def _ping(self, link: SocketLink, group: TaskGroup) -> None:
        try:
            await link.keep_pinging()
        except (aiohttp.ClientError, OSError):
            log.debug("the socket is closed")
        group.cancel_scope.cancel()

    async def _read(self, link: SocketLink) -> None:
        try:
            while (frame := await link.next_frame()) is not None:
                if frame.type == "hello":
                    link.connections = max(frame.num_connections, 1)
                    self._open_links += 1
                    self._connected(self._open_links == 1)
                    link.ready.set()
                self._on_data()
                if frame.type == "disconnect":
                    log.info("Slack is closing the connection (%s)", frame.reason)
                    link.disabled = frame.reason == "link_disabled"
                    if frame.reason not in _ENDS_SOON:
                        return
                    link.stale.set()
                elif frame.envelope_id:
                    self._receive(frame, link)
                    await self._has_room()
        except (aiohttp.ClientError, OSError) as error:
            log.info("the socket failed: %s", type(error).__name__)
