"""The emulated gateway: hello, identify, resume, heartbeats, intents, and events in sessions."""

import contextlib
import zlib
from collections import deque
from collections.abc import Callable

import anyio
import msgspec
from aiohttp import WSMsgType, web
from msgspec import Struct, field

from emulators.discord.state import EmulatedBot, EmulatedDiscord, Json

DISPATCH, HEARTBEAT, IDENTIFY, RESUME = 0, 1, 2, 6
RECONNECT, INVALID_SESSION, HELLO, ACK = 7, 9, 10, 11
PRESENCE, VOICE_STATE, MEMBERS = 3, 4, 8
UNKNOWN_ERROR, UNKNOWN_OPCODE, DECODE_ERROR, NOT_AUTHENTICATED = 4000, 4001, 4002, 4003
WRONG_TOKEN, INVALID_VERSION = 4004, 4012
ALREADY_AUTHENTICATED, INVALID_SEQUENCE, RATE_LIMITED = 4005, 4007, 4008
INVALID_INTENTS, DISALLOWED_INTENTS = 4013, 4014
BROKEN_RULES = frozenset(
    {UNKNOWN_OPCODE, DECODE_ERROR, NOT_AUTHENTICATED, ALREADY_AUTHENTICATED, INVALID_SEQUENCE,
     RATE_LIMITED, INVALID_VERSION, INVALID_INTENTS}
)  # fmt: skip
"""The codes with which a connection is closed that broke a rule."""
HEARTBEAT_MS = 41_250
MISSED_HEARTBEATS = 2
"""Intervals without a heartbeat; how much Discord tolerates is not documented."""
IDENTIFY_SECONDS = 5.0
VERSIONS = frozenset({"", "6", "7", "8", "9", "10"})
MAX_SENT, SENT_SECONDS = 120, 60.0
MAX_PAYLOAD = 4096
MAX_REPLAYED = 10_000
PRIVILEGED_MEMBERS, PRIVILEGED_PRESENCES, PRIVILEGED_CONTENT = 1 << 1, 1 << 8, 1 << 15
ALL_INTENTS = (1 << 26) - 1
CONTENT_FLAGS = 1 << 18 | 1 << 19
_GUILDS, _GUILD_MESSAGES, _GUILD_REACTIONS = 1 << 0, 1 << 9, 1 << 10
_DIRECT_MESSAGES, _DIRECT_REACTIONS = 1 << 12, 1 << 13


class EmulatedSession(Struct):
    """Events of a bot that stay replayable while the session lives."""

    id: str
    bot: EmulatedBot
    intents: int
    waiting: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    sent: deque[tuple[int, str, Json]] = field(default_factory=lambda: deque(maxlen=MAX_REPLAYED))
    sequence: int = 0
    connection: "GatewaySocket | None" = None


class EmulatedGateway:
    """Serves the sessions of `discord`. `deaf` connections get nothing any more, not even ACKs."""

    def __init__(self, discord: EmulatedDiscord) -> None:
        self.discord = discord
        self.url = ""
        self.heartbeat_ms = HEARTBEAT_MS
        self.identify_seconds = IDENTIFY_SECONDS
        self.sessions: dict[str, EmulatedSession] = {}
        self.sockets: set[GatewaySocket] = set()
        self.identified = self.resumed = self.invalidated = self.heartbeats = 0
        self.close_codes: list[int] = []
        self.violations: list[str] = []
        discord.on_event = self.publish

    async def handle(self, request: web.Request) -> web.StreamResponse:
        response = web.WebSocketResponse()
        await response.prepare(request)
        compressed = request.query.get("compress") == "zlib-stream"
        socket = GatewaySocket(self, response, request, compressed=compressed)
        self.sockets.add(socket)
        try:
            await socket.serve()
        finally:
            self.sockets.discard(socket)
            if response.close_code is not None:
                self.close_codes.append(response.close_code)
            was_clean = response.close_code in {1000, 1001} and not socket.refused
            if was_clean and socket.session is not None:
                self.sessions.pop(socket.session.id, None)
        return response

    def publish(self, name: str, data: Json) -> None:
        for session in self.sessions.values():
            if _wanted(name, data, session.intents):
                reads = bool(session.intents & PRIVILEGED_CONTENT)
                shown = visible_content(data, session.bot, reads=reads)
                session.waiting.append((name, shown))
                if session.connection is not None:
                    session.connection.wake()

    def end_sessions(self, bot: EmulatedBot) -> None:
        """The emulator keeps one session for each bot; a new one replaces it."""
        for key in [key for key, one in self.sessions.items() if one.bot is bot]:
            del self.sessions[key]

    def deafen(self) -> None:
        for socket in self.sockets:
            socket.deaf = True

    def cut(self) -> None:
        """Break all connections, as a failing network does."""
        for socket in [*self.sockets]:
            socket.abort()

    def forget_sessions(self) -> None:
        """As after an outage: the next resume is refused."""
        self.sessions.clear()

    def ask_for_heartbeat(self) -> None:
        for socket in self.sockets:
            socket.put({"op": HEARTBEAT, "d": None})

    def ask_to_reconnect(self) -> None:
        for socket in self.sockets:
            socket.put({"op": RECONNECT, "d": None})


class GatewaySocket:
    """One connection."""

    def __init__(
        self,
        gateway: EmulatedGateway,
        response: web.WebSocketResponse,
        request: web.Request,
        *,
        compressed: bool,
    ) -> None:
        self.deaf = False
        self.refused = False
        self._gateway = gateway
        self._discord = gateway.discord
        self._socket = response
        self._request = request
        self._packer = zlib.compressobj() if compressed else None
        self.session: EmulatedSession | None = None
        self._out: deque[Json] = deque()
        self._woken = anyio.Event()
        self._received: deque[float] = deque()
        self._heartbeat_at = self._discord.clock.monotonic()

    def wake(self) -> None:
        self._woken.set()

    def put(self, frame: Json) -> None:
        self._out.append(frame)
        self.wake()

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()

    async def serve(self) -> None:
        if self._request.query.get("v", "") not in VERSIONS:
            await self._close(INVALID_VERSION, "Invalid API version.")
            return
        self.put({"op": HELLO, "d": {"heartbeat_interval": self._gateway.heartbeat_ms}})
        async with anyio.create_task_group() as group:
            group.start_soon(self._write)
            group.start_soon(self._watch_heartbeats)
            try:
                async for message in self._socket:
                    if message.type not in {WSMsgType.TEXT, WSMsgType.BINARY}:
                        break
                    await self._receive(message.data)
            finally:
                if self.session is not None and self.session.connection is self:
                    self.session.connection = None
                group.cancel_scope.cancel()

    async def _watch_heartbeats(self) -> None:
        """End the connection of a client that is silent; its session can be continued."""
        clock, most = self._discord.clock, self._gateway.heartbeat_ms / 1000 * MISSED_HEARTBEATS
        while (left := self._heartbeat_at + most - clock.monotonic()) > 0:
            await clock.sleep(left)
        # The task that reads ends the group as soon as closing begins.
        with anyio.CancelScope(shield=True):
            await self._close(UNKNOWN_ERROR, "No heartbeat.")

    async def _receive(self, data: str | bytes) -> None:
        now = self._discord.clock.monotonic()
        while self._received and self._received[0] <= now - SENT_SECONDS:
            self._received.popleft()
        self._received.append(now)
        if len(self._received) > MAX_SENT:
            await self._close(RATE_LIMITED, "You are being rate limited.")
            return
        if len(data) > MAX_PAYLOAD:
            await self._close(DECODE_ERROR, "Payload too large.")
            return
        try:
            frame = msgspec.json.decode(data, type=dict[str, object])
        except msgspec.MsgspecError:
            await self._close(DECODE_ERROR, "Error while decoding payload.")
            return
        body = frame.get("d")
        match frame.get("op"):
            case 1:
                self._gateway.heartbeats += 1
                self._heartbeat_at = now
                self.put({"op": ACK})
                self._discord.on_change()
            case 2:
                await self._identify(_table(body))
            case 6:
                await self._resume(_table(body))
            case 3 | 4 | 8:
                if self.session is None:
                    await self._close(NOT_AUTHENTICATED, "Not authenticated.")
            case _:
                await self._close(UNKNOWN_OPCODE, "Unknown opcode.")

    async def _identify(self, body: Json) -> None:
        if self.session is not None:
            await self._close(ALREADY_AUTHENTICATED, "Already authenticated.")
            return
        bot = self._discord.bots.get(str(body.get("token", "")))
        if bot is None:
            await self._close(WRONG_TOKEN, "Authentication failed.")
            return
        intents = body.get("intents")
        if not isinstance(intents, int) or not 0 <= intents <= ALL_INTENTS:
            await self._close(INVALID_INTENTS, "Invalid intent(s).")
            return
        reads = bool(bot.flags & CONTENT_FLAGS)
        if intents & PRIVILEGED_CONTENT and not reads:
            await self._close(DISALLOWED_INTENTS, "Disallowed intent(s).")
            return
        if intents & (PRIVILEGED_MEMBERS | PRIVILEGED_PRESENCES):
            await self._close(DISALLOWED_INTENTS, "Disallowed intent(s).")
            return
        if not await self._may_start(bot):
            return
        self._gateway.identified += 1
        session = EmulatedSession(f"session-{self._discord.snowflake()}", bot, intents)
        self._gateway.end_sessions(bot)
        self._gateway.sessions[session.id] = session
        self._attach(session)
        self._welcome(session)

    async def _may_start(self, bot: EmulatedBot) -> bool:
        """Count a start of a session; after the last one, the token is reset."""
        if bot.starts_left <= 0:
            self._gateway.end_sessions(bot)
            self._discord.bots.pop(bot.token, None)
            await self._close(WRONG_TOKEN, "Authentication failed.")
            return False
        now = self._discord.clock.monotonic()
        too_early = now < bot.started_at + self._gateway.identify_seconds
        if self._discord.limited and too_early:
            self._gateway.invalidated += 1
            self.put({"op": INVALID_SESSION, "d": False})
            self._discord.on_change()
            return False
        bot.started_at = now
        bot.starts_left -= 1
        return True

    def _welcome(self, session: EmulatedSession) -> None:
        discord = self._discord
        session.waiting.append(("READY", {
            "v": 10, "user": session.bot.user, "session_id": session.id, "session_type": "normal",
            "resume_gateway_url": self._gateway.url, "private_channels": [],
            "guilds": [{"id": one, "unavailable": True} for one in discord.guilds],
            "application": {"id": session.bot.application, "flags": session.bot.flags},
            "relationships": [], "presences": [], "geo_ordered_rtc_regions": [],
        }))  # fmt: skip
        if session.intents & _GUILDS:
            for number in discord.guilds:
                session.waiting.append(("GUILD_CREATE", _guild_event(discord, number)))
        self.wake()

    async def _resume(self, body: Json) -> None:
        session = self._gateway.sessions.get(str(body.get("session_id", "")))
        number = body.get("seq")
        if body.get("token") not in self._discord.bots:
            await self._close(WRONG_TOKEN, "Authentication failed.")
            return
        if session is None or session.bot.token != body.get("token"):
            self._gateway.invalidated += 1
            self.put({"op": INVALID_SESSION, "d": False})
            return
        if not isinstance(number, int) or number > session.sequence:
            await self._close(INVALID_SEQUENCE, "Invalid seq.")
            return
        self._gateway.resumed += 1
        self._attach(session)
        for sequence, name, data in session.sent:
            if sequence > number:
                self._out.append({"op": DISPATCH, "s": sequence, "t": name, "d": data})
        session.waiting.insert(0, ("RESUMED", {"_trace": []}))
        self.wake()

    def _attach(self, session: EmulatedSession) -> None:
        if session.connection is not None:
            session.connection.abort()
        session.connection = self
        self.session = session
        self._discord.on_change()

    async def _write(self) -> None:
        while True:
            await self._woken.wait()
            self._woken = anyio.Event()
            self._take_events()
            while self._out and not self.deaf:
                frame = self._out.popleft()
                if not await self._send(frame):
                    return
                if frame["op"] == INVALID_SESSION:
                    # Discord waits for the client to close.
                    continue
                if frame["op"] == DISPATCH and self._is_unlucky():
                    self.abort()
                    return

    def _is_unlucky(self) -> bool:
        discord = self._discord
        if discord.chance.random() >= discord.faults.cut_poll:
            return False
        if discord.chance.random() < 0.3 and self.session is not None:
            self._gateway.sessions.pop(self.session.id, None)
        return True

    def _take_events(self) -> None:
        """Number what has happened; chats may be mixed, but each keeps its order."""
        session = self.session
        if session is None or session.connection is not self:
            return
        events, session.waiting = session.waiting, []
        faults, chance = self._discord.faults, self._discord.chance
        if faults.shuffled:
            events = _mixed(events, chance.random)
        for name, data in events:
            self._number(session, name, data)
            if name == "MESSAGE_CREATE" and chance.random() < faults.repeated:
                self._number(session, name, data)

    def _number(self, session: EmulatedSession, name: str, data: Json) -> None:
        session.sequence += 1
        session.sent.append((session.sequence, name, data))
        self._out.append({"op": DISPATCH, "s": session.sequence, "t": name, "d": data})

    async def _send(self, frame: Json) -> bool:
        data = msgspec.json.encode({"op": 0, "d": None, "s": None, "t": None, **frame})
        try:
            if self._packer is None:
                await self._socket.send_str(data.decode())
            else:
                packed = self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)
                await self._socket.send_bytes(packed)
        except (ConnectionError, RuntimeError):
            return False
        return True

    async def _close(self, code: int, text: str) -> None:
        self.refused = True
        self._gateway.close_codes.append(code)
        if code in BROKEN_RULES:
            self._gateway.violations.append(f"{code} {text}")
        with contextlib.suppress(ConnectionError, RuntimeError):
            await self._socket.close(code=code, message=text.encode())


def _mixed(events: list[tuple[str, Json]], draw: Callable[[], float]) -> list[tuple[str, Json]]:
    queues: dict[str, deque[tuple[str, Json]]] = {}
    fixed = [one for one in events if "channel_id" not in one[1]]
    for one in events:
        if "channel_id" in one[1]:
            queues.setdefault(str(one[1]["channel_id"]), deque()).append(one)
    mixed: list[tuple[str, Json]] = []
    while queues:
        chat = [*queues][int(draw() * len(queues))]
        mixed.append(queues[chat].popleft())
        if not queues[chat]:
            del queues[chat]
    return [*fixed, *mixed]


def _wanted(name: str, data: Json, intents: int) -> bool:
    in_guild = "guild_id" in data
    if name.startswith("MESSAGE_REACTION"):
        return bool(intents & (_GUILD_REACTIONS if in_guild else _DIRECT_REACTIONS))
    if name.startswith("MESSAGE"):
        return bool(intents & (_GUILD_MESSAGES if in_guild else _DIRECT_MESSAGES))
    if name.startswith(("GUILD", "CHANNEL", "THREAD")):
        return bool(intents & _GUILDS)
    return True


def visible_content(data: Json, bot: EmulatedBot, *, reads: bool) -> Json:
    """Without the intent, content is only in direct messages, mentions and own messages."""
    if "content" not in data or "guild_id" not in data or reads:
        return dict(data)
    named = [_table(one)["id"] for one in _list(data.get("mentions"))]
    if bot.id in named or _table(data.get("author")).get("id") == bot.id:
        return dict(data)
    return {**data, "content": "", "attachments": [], "embeds": [], "components": []}


def _guild_event(discord: EmulatedDiscord, number: str) -> Json:
    own = [one for one in discord.channels.values() if one.get("guild_id") == number]
    threads = [one for one in own if one["type"] == 11]
    bots = {bot.id for bot in discord.bots.values()}
    return {
        **discord.guilds[number],
        "joined_at": "2026-01-01T00:00:00+00:00", "large": False, "unavailable": False,
        "member_count": 2, "voice_states": [], "presences": [], "stage_instances": [],
        "guild_scheduled_events": [], "soundboard_sounds": [], "roles": [], "emojis": [],
        "stickers": [], "features": [], "members": [], "premium_tier": 0, "nsfw_level": 0,
        "verification_level": 0, "default_message_notifications": 0,
        "explicit_content_filter": 0, "mfa_level": 0, "system_channel_flags": 0,
        "preferred_locale": "en-US", "premium_progress_bar_enabled": False,
        "channels": [one for one in own if one["type"] != 11],
        "threads": [
            {**one, "member": {"flags": 0}} if one.get("owner_id") in bots else dict(one)
            for one in threads
        ],
    }  # fmt: skip


def _table(value: object) -> Json:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]
