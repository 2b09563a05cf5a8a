"""Socket Mode: connections, envelopes, acknowledgment within three seconds, redelivery."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct, field

from emulators.slack.state import EmulatedSlack, Json, table

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 10
ACKNOWLEDGE_SECONDS = 3.0
MAX_RETRIES = 3


class Envelope(Struct):
    """What was sent; `response` is the payload of its acknowledgment."""

    id: str
    kind: str
    payload: Json
    attempt: int = 0
    reason: str = ""
    acknowledged: bool = False
    given_up: bool = False
    response: object = None

    @property
    def chat(self) -> str:
        event = table(self.payload.get("event"))
        return str(event.get("channel") or self.payload.get("channel_id") or "")

    @property
    def identity(self) -> str:
        return str(self.payload.get("event_id") or self.id)

    def frame(self) -> Json:
        frame: Json = {
            "envelope_id": self.id, "type": self.kind, "payload": self.payload,
            "accepts_response_payload": self.kind != "events_api",
        }  # fmt: skip
        if self.kind == "events_api":
            frame |= {"retry_attempt": self.attempt, "retry_reason": self.reason}
        return frame


class Connection(Struct):
    """One websocket; `unacknowledged` by envelope id."""

    socket: web.WebSocketResponse
    transport: asyncio.Transport | None
    unacknowledged: dict[str, Envelope] = field(default_factory=dict[str, Envelope])
    timers: "set[asyncio.Task[None]]" = field(default_factory=set)
    closing: bool = False


class SocketMode:
    """Gives each envelope to one of the open connections.

    Without one, it is lost, as after Slack's last retry. `changed` is called at each change.
    """

    def __init__(self, slack: EmulatedSlack, changed: Callable[[], None]) -> None:
        self._slack = slack
        self._changed = changed
        self.connections: list[Connection] = []
        self.envelopes: dict[str, Envelope] = {}
        self.tickets: set[str] = set()
        self.refuse_with = ""
        """The reason with which new connections are ended, such as `link_disabled`."""
        self.opened = 0
        self.cut = 0
        self.lost = 0
        self.redelivered = 0
        self.violations: list[str] = []
        self._waiting: list[Envelope] = []
        self._tasks: set[asyncio.Task[None]] = set()
        slack.on_envelope = self.send

    @property
    def open(self) -> list[Connection]:
        return [one for one in self.connections if not one.closing]

    def unacknowledged(self) -> int:
        return sum(
            not one.acknowledged and not one.given_up for one in self.envelopes.values()
        ) + len(self._waiting)

    def send(self, kind: str, payload: Json) -> str:
        """Send an envelope soon; some are sent twice, and chats are mixed if faults say so."""
        envelope = self._envelope(kind, payload)
        faults, chance = self._slack.faults, self._slack.chance
        if not self.open:
            self._lose(envelope)
            return envelope.id
        if not self._waiting:
            self._start(self._flush())
        self._waiting.append(envelope)
        if kind == "events_api" and chance.random() < faults.repeated:
            self._waiting.append(self._envelope(kind, payload))
        return envelope.id

    def _envelope(self, kind: str, payload: Json) -> Envelope:
        envelope = Envelope(self._slack.number("env-"), kind, payload)
        self.envelopes[envelope.id] = envelope
        return envelope

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for envelope in self._mixed(waiting):
            await self._give(envelope)

    def _mixed(self, envelopes: list[Envelope]) -> list[Envelope]:
        """Mix the chats, but keep the order within each."""
        if not self._slack.faults.shuffled:
            return envelopes
        queues: dict[str, deque[Envelope]] = {}
        for one in envelopes:
            queues.setdefault(one.chat, deque()).append(one)
        chats = [chat for chat, queue in queues.items() for _ in queue]
        self._slack.chance.shuffle(chats)
        return [queues[chat].popleft() for chat in chats]

    async def _give(self, envelope: Envelope) -> None:
        """Give an envelope to a connection; while several are open, to any of them."""
        if not (candidates := self.open):
            self._lose(envelope)
            return
        connection = self._slack.chance.choice(candidates)
        connection.unacknowledged[envelope.id] = envelope
        timer = asyncio.create_task(self._expire(connection, envelope))
        connection.timers.add(timer)
        timer.add_done_callback(connection.timers.discard)
        try:
            await connection.socket.send_str(msgspec.json.encode(envelope.frame()).decode())
        except (ConnectionError, RuntimeError):
            return
        self._changed()
        if self._slack.chance.random() < self._slack.faults.cut_poll:
            self.cut += 1
            await self._end(connection)

    async def _expire(self, connection: Connection, envelope: Envelope) -> None:
        await self._slack.clock.sleep(ACKNOWLEDGE_SECONDS)
        if envelope.id in connection.unacknowledged:
            self.violations.append(f"{envelope.kind}: not acknowledged in {ACKNOWLEDGE_SECONDS} s")
        self._retry(connection, envelope, "timeout")

    def _lose(self, envelope: Envelope) -> None:
        self.lost += 1
        envelope.given_up = True
        self._changed()

    def _retry(self, connection: Connection, envelope: Envelope, reason: str) -> None:
        """Send an unacknowledged event again, in a new envelope."""
        if connection.unacknowledged.pop(envelope.id, None) is None:
            return
        envelope.given_up = True
        if envelope.kind != "events_api" or envelope.attempt >= MAX_RETRIES or not self.open:
            self.lost += 1
        else:
            self.redelivered += 1
            again = self._envelope(envelope.kind, envelope.payload)
            again.attempt, again.reason = envelope.attempt + 1, reason
            self._start(self._give(again))
        self._changed()

    # Connections

    def ticket(self, url: str) -> str:
        """A new address; it can be used once."""
        ticket = self._slack.number("ticket-")
        self.tickets.add(ticket)
        return f"{url}?ticket={ticket}&app_id=A0EMU"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self.tickets:
            return web.Response(status=401)
        self.tickets.discard(ticket)
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        if self.refuse_with or len(self.open) >= MAX_CONNECTIONS:
            reason = self.refuse_with or "too_many_websockets"
            await socket.send_json({"type": "disconnect", "reason": reason, "debug_info": {}})
            await socket.close()
            return socket
        connection = Connection(socket, request.transport)
        self.connections.append(connection)
        self.opened += 1
        await socket.send_json(
            {
                "type": "hello", "num_connections": len(self.open),
                "connection_info": {"app_id": "A0EMU"},
                "debug_info": {"host": "emulator", "approximate_connection_time": 18060},
            }
        )  # fmt: skip
        self._changed()
        try:
            await self._read(connection)
        finally:
            self._close(connection)
        return socket

    async def _read(self, connection: Connection) -> None:
        async for message in connection.socket:
            if message.type == aiohttp.WSMsgType.PING:
                await connection.socket.pong(message.data)
            if message.type != aiohttp.WSMsgType.TEXT:
                continue
            answer: Json = msgspec.json.decode(message.data)
            identity = str(answer.get("envelope_id", ""))
            if (envelope := connection.unacknowledged.pop(identity, None)) is not None:
                envelope.acknowledged = True
                envelope.response = answer.get("payload")
                self._changed()

    def _close(self, connection: Connection) -> None:
        connection.closing = True
        for timer in connection.timers:
            timer.cancel()
        if connection in self.connections:
            self.connections.remove(connection)
        for envelope in [*connection.unacknowledged.values()]:
            self._retry(connection, envelope, "connection_closed")
        self._changed()

    async def _end(self, connection: Connection) -> None:
        """Break the connection without a word."""
        connection.closing = True
        if connection.transport is not None:
            connection.transport.abort()

    async def disconnect(self, reason: str) -> None:
        """Tell the oldest connection that it will end, and give it no more envelopes.

        After `link_disabled` there is no other one.
        """
        for connection in self.open if reason == "link_disabled" else self.open[:1]:
            connection.closing = reason == "link_disabled"
            body = {"type": "disconnect", "reason": reason, "debug_info": {"host": "emulator"}}
            await connection.socket.send_json(body)
            if connection.closing:
                await connection.socket.close()

    async def break_all(self) -> None:
        for connection in self.open:
            await self._end(connection)

    def _start(self, work: "asyncio.Future[None] | object") -> None:
        task = asyncio.ensure_future(work)  # pyright: ignore[reportArgumentType, reportUnknownVariableType, reportCallIssue]
        self._tasks.add(task)  # pyright: ignore[reportUnknownArgumentType]
        task.add_done_callback(self._tasks.discard)  # pyright: ignore[reportUnknownMemberType]
