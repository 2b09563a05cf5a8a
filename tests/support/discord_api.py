"""Calls of the emulated Discord as its documentation describes them, without an SDK."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import BytesIO

import aiohttp
import msgspec
from msgspec import Struct

from emulators.discord.server import DiscordServer, serve_discord
from hermes.testing.clock import FakeClock
from support.discord import ANN, TOKEN, emulator

Json = dict[str, object]
DIRECT_MESSAGES, GUILD_MESSAGES, MESSAGE_CONTENT, GUILD_MEMBERS = 1 << 12, 1 << 9, 1 << 15, 1 << 1


class Answer(Struct):
    status: int
    body: object
    headers: dict[str, str]

    @property
    def table(self) -> Json:
        return msgspec.convert(self.body, Json)

    @property
    def code(self) -> int:
        return int(str(self.table.get("code", 0)))

    @property
    def wrong(self) -> set[str]:
        """The fields that were refused."""
        return set(msgspec.convert(self.table.get("errors", {}), Json))


class Api(Struct, frozen=True):
    """Calls the emulator as the documentation says."""

    server: DiscordServer
    session: aiohttp.ClientSession
    clock: FakeClock

    @property
    def direct(self) -> str:
        return self.server.discord.direct(ANN)

    async def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        token: str = f"Bot {TOKEN}",
        **more: str,
    ) -> Answer:
        """Make a request; `more` are headers."""
        headers = {"Authorization": token, **more}
        url = f"{self.server.api_url}{path}"
        async with self.session.request(method, url, json=body, headers=headers) as response:
            data = await response.read() if response.content_type.endswith("json") else b""
            return Answer(
                response.status, msgspec.json.decode(data or b"{}"), dict(response.headers)
            )

    async def send(self, **fields: object) -> Answer:
        return await self("POST", f"/channels/{self.direct}/messages", fields)

    async def upload(self, count: int, size: int = 1, **fields: object) -> Answer:
        form = aiohttp.FormData()
        body = msgspec.json.encode(fields).decode()
        form.add_field("payload_json", body, content_type="application/json")
        for number in range(count):
            form.add_field(f"files[{number}]", BytesIO(bytes(size)), filename=f"{number}.bin")
        url = f"{self.server.api_url}/channels/{self.direct}/messages"
        headers = {"Authorization": f"Bot {TOKEN}"}
        async with self.session.post(url, data=form, headers=headers) as response:
            return Answer(response.status, await response.json(), {})


class Socket(Struct, frozen=True):
    """A connection to the gateway without compression."""

    socket: aiohttp.ClientWebSocketResponse

    async def send(self, op: int, body: object = None) -> None:
        await self.socket.send_json({"op": op, "d": body})

    async def identify(self, intents: int = DIRECT_MESSAGES, token: str = TOKEN) -> None:
        await self.send(2, {"token": token, "intents": intents, "properties": {}})

    async def frame(self) -> Json:
        return msgspec.convert(await self.socket.receive_json(), Json)

    async def event(self, name: str) -> Json:
        while True:
            frame = await self.frame()
            if frame["t"] == name:
                return msgspec.convert(frame["d"], Json)

    async def close_code(self) -> int | None:
        while True:
            message = await self.socket.receive()
            if message.type is aiohttp.WSMsgType.CLOSE:
                # The attribute `close_code` may tell of the closing handshake instead.
                return int(message.data)
            if message.type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}:
                return None


@asynccontextmanager
async def open_api() -> AsyncGenerator[Api]:
    clock = FakeClock()
    headers = {"User-Agent": "DiscordBot (https://test.invalid, 1)"}
    async with (
        serve_discord(emulator(clock=clock)) as server,
        aiohttp.ClientSession(headers=headers) as session,
    ):
        yield Api(server, session, clock)


@asynccontextmanager
async def open_gateway(api: Api) -> AsyncGenerator[Socket]:
    async with api.session.ws_connect(api.server.gateway.url) as socket:
        one = Socket(socket)
        hello = await one.frame()
        assert hello["op"] == 10
        assert "heartbeat_interval" in msgspec.convert(hello["d"], Json)
        yield one
