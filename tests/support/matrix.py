"""A Matrix channel on a real Synapse, through a proxy that can fail, and a person's client."""

import asyncio
import itertools
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
from aiohttp import web
from msgspec import Struct
from yarl import URL

from emulators.http_emulator import cut
from hermes.channels.matrix.channel import MatrixChannel, open_channel
from hermes.kit.clock import Clock
from hermes.ports.channel import ChannelDeps
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from hermes.testing.fake_openai.server import listen
from support.channel_deps import Admits, admit_all, new_deps
from support.chat_platform.model import FakeModelServer
from support.chat_platform.state import CallFault, FaultRates
from support.gateway_process import GatewaySpec
from support.kill_run import write_home
from support.matrix_person import Person
from support.synapse import Homeserver, register

PASSWORD = "correct horse"
_numbers = itertools.count(1)
_DROPPED = {"transfer-encoding", "content-encoding", "content-length", "connection"}


class Proxy:
    """Forwards to the homeserver. `fail` may answer a request instead; `since` rewinds syncs."""

    def __init__(self, server: Homeserver, seed: int = 0) -> None:
        self._server = server
        self.rates = FaultRates()
        self.faults: Counter[str] = Counter()
        self._chance = random.Random(seed)  # noqa: S311 - must be repeatable
        self._unsure: set[str] = set()
        self.fail: Callable[[web.Request], web.StreamResponse | None] = lambda request: None
        self.since = ""
        """The token that the next sync gets instead of its own."""
        self.tokens: list[str] = []
        """The tokens with which the channel has synced."""
        self.to_devices: list[tuple[str, bytes]] = []
        """What the channel has sent to other devices: the type of the event and its body."""
        self.synced = asyncio.Event()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if (answer := self.fail(request)) is not None:
            return answer
        fault = self._fault(request)
        if fault is CallFault.THROTTLED:
            limited = {"errcode": "M_LIMIT_EXCEEDED", "error": "slow", "retry_after_ms": 50}
            return web.json_response(limited, status=429)
        if fault is CallFault.DROPPED:
            return cut(request)
        url = URL(self._server.url + request.raw_path, encoded=True)
        if request.path.endswith("/sync"):
            url = self._sync_url(url)
        data = await request.read()
        if "/sendToDevice/" in request.path:
            self.to_devices.append((request.path.split("/")[5], data))
        headers = {k: v for k, v in request.headers.items() if k.lower() not in {"host", *_DROPPED}}
        async with self._http.request(
            request.method, url, data=data or None, headers=headers, allow_redirects=False
        ) as found:
            body = await found.read()
            if fault is CallFault.LOST_REPLY:
                return cut(request)
            kept = {k: v for k, v in found.headers.items() if k.lower() not in _DROPPED}
            return web.Response(status=found.status, body=body, headers=kept)

    def _fault(self, request: web.Request) -> CallFault:
        """Two unknown outcomes in a row would make the gateway give the answer up."""
        if request.path.endswith("/sync"):
            fault = CallFault.DROPPED if self._draws(self.rates.cut_poll) else CallFault.NONE
        elif "/send/m.room." in request.path:
            fault = self.rates.draw(self._chance)
        else:
            fault = CallFault.NONE
        unsure = fault in {CallFault.DROPPED, CallFault.LOST_REPLY}
        if unsure and request.path in self._unsure:
            fault = CallFault.NONE
        (self._unsure.add if unsure else self._unsure.discard)(request.path)
        if fault is not CallFault.NONE:
            self.faults[fault.name] += 1
        return fault

    def _draws(self, rate: float) -> bool:
        return self._chance.random() < rate

    def _sync_url(self, url: URL) -> URL:
        self.tokens.append(url.query.get("since", ""))
        if self._draws(self.rates.repeated) and len(self.tokens) > 2 and self.tokens[-2]:
            self.since = self.tokens[-2]
            self.faults["REPEATED"] += 1
        self.synced.set()
        self.synced = asyncio.Event()
        if self.since:
            url = url.update_query(since=self.since, timeout="0")
            self.since = ""
        return url

    async def next_sync(self) -> None:
        await self.synced.wait()

    def cut(self) -> None:
        """Close the connections."""
        for transport in list(self._runner.server.connections):
            transport.force_close()
            if transport.transport is not None:
                transport.transport.abort()

    async def stop_listening(self) -> None:
        await self._site.stop()
        self.cut()

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self.handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        port = self._site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as self._http:
            try:
                yield
            finally:
                await self._runner.cleanup()


def new_user(server: Homeserver, name: str) -> str:
    """Register an account with a name that no other test has."""
    local = f"{name}-{os.getpid()}-{next(_numbers)}"
    return register(server, local, PASSWORD)["user_id"]


@contextmanager
def running_person(server: Homeserver, name: str) -> Generator[Person]:
    one = Person(server, new_user(server, name))
    try:
        one.start(PASSWORD)
        yield one
    finally:
        one.stop()


def matrix_home(
    folder: Path, url: str, model: str, agent: str, people: Sequence[str]
) -> GatewaySpec:
    """The home of a gateway for the account."""
    variables = {
        "MATRIX_HOMESERVER": url,
        "MATRIX_USER_ID": agent,
        "MATRIX_PASSWORD": PASSWORD,
        "MATRIX_ALLOWED_USERS": ",".join(people),
    }
    return write_home(
        folder, "matrix", model_url=model, extra={}, variables=variables, people=people
    )


@asynccontextmanager
async def serve_model() -> AsyncGenerator[str]:
    """The model that gateways of tests use."""
    app = web.Application()
    app.router.add_routes(FakeModelServer().routes())
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    async with listen(runner, "127.0.0.1", 0) as url:
        yield url


async def agent_devices(ann: Person, agent: str) -> None:
    """Wait until the agent has a device: clients give keys only to those that they know."""
    with anyio.fail_after(60):
        while not await ann.do(ann.devices_of(agent)):  # noqa: ASYNC110 - the server is asked
            await anyio.sleep(0.05)


def channel_deps(
    folder: Path,
    url: str,
    user: str,
    extra: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> ChannelDeps:
    variables = {
        "MATRIX_HOMESERVER": url,
        "MATRIX_USER_ID": user,
        "MATRIX_PASSWORD": PASSWORD,
        "MATRIX_ALLOW_ALL_USERS": "true",
        **(env or {}),
    }
    return new_deps("matrix", folder, extra=extra or {}, env=variables, clock=clock, admits=admits)


class MatrixBench(Struct, frozen=True):
    """A channel and a person who shares a room with the agent."""

    channel: MatrixChannel
    proxy: Proxy
    ann: Person
    user: str
    room: str
    blobs: FileBlobs

    @property
    def home(self) -> Address:
        return Address("matrix", self.room)

    async def acknowledged(self, event: str) -> None:
        await self.ann.read_by(event, self.user)


@asynccontextmanager
async def matrix_bench(
    server: Homeserver,
    ann: Person,
    user: str,
    folder: Path,
    *,
    room: str = "",
    extra: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    admits: Admits = admit_all,
    **room_settings: Any,
) -> AsyncGenerator[MatrixBench]:
    """A channel in a room of Ann's, which the agent has joined if it is a new one."""
    proxy = Proxy(server)
    async with proxy.serving():
        deps = channel_deps(folder, proxy.url, user, extra, env, clock, admits=admits)
        async with open_channel(deps) as channel:
            # Logged in before: people must know the device when they write.
            await channel._device.ready()
            if not room:
                room = await asyncio.to_thread(ann.create_room, user, **room_settings)
                await channel._api.join(room)
                await ann.joined(room, user)
            yield MatrixBench(channel, proxy, ann, user, room, FileBlobs(folder / "cache/blobs"))
