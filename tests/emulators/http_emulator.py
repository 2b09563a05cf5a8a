"""What the HTTP emulators of platforms share: listening, changes, a log of calls, and faults.

Another process can control an emulator: `PUT /emulator/faults` takes the rates of `FaultRates` as
JSON, and `GET /emulator/calls` returns the log.
"""

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, Self

import anyio
import msgspec
from aiohttp import web

from hermes.kit.http_server import shut_down_server
from hermes.testing.fake_openai.server import listen
from support.chat_platform.model import FakeModelServer
from support.chat_platform.state import CallFault, FaultRates

LOOPBACK = "127.0.0.1"
MAX_BODY = 128 * 1024 * 1024


class EmulatedPlatform(Protocol):
    """The state of a platform: `on_change` is called when anything changes."""

    faults: FaultRates
    chance: random.Random
    on_change: Callable[[], None]


class HttpEmulator:
    """Serves a platform, and a `model` that a gateway can use.

    `unconfirmed` are the changes whose confirmation was lost, by their numbers in `changes`.
    """

    def __init__(self, platform: EmulatedPlatform, routes: Sequence[web.RouteDef]) -> None:
        self.model = FakeModelServer()
        self.url = ""
        self.calls: list[str] = []
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_put("/emulator/faults", self._set_faults)
        app.router.add_get("/emulator/calls", self._list_calls)
        app.router.add_routes(routes)
        app.router.add_routes(self.model.routes())
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
        self._platform = platform
        self._changed = anyio.Event()
        self._unsure: set[str] = set()
        self.unconfirmed: list[int] = []
        self.faults: Counter[str] = Counter()
        platform.on_change = self.changed

    @property
    def changes(self) -> Sequence[object]:
        """What the bot has posted, again at each change."""
        return ()

    def changed(self) -> None:
        """Wake everything that waits for a change."""
        self._changed.set()
        self._changed = anyio.Event()

    async def next_change(self) -> None:
        await self._changed.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncGenerator[Self]:
        """Serve on loopback during the block; port 0 picks a free one."""
        async with listen(self.runner, LOOPBACK, port) as self.url:
            yield self

    async def stop_listening(self) -> None:
        await shut_down_server(self.runner)

    async def with_faults(
        self,
        request: web.Request,
        name: str,
        perform: Callable[[], web.Response],
        *,
        refused: web.Response,
        throttled: web.Response,
    ) -> web.StreamResponse:
        """Perform a call that sends or edits something, unless it meets with a fault."""
        rates, chance = self._platform.faults, self._platform.chance
        if rates.delay:
            await anyio.sleep(chance.random() * rates.delay)
        match self._fault(name):
            case CallFault.NONE:
                return perform()
            case CallFault.REFUSED:
                return refused
            case CallFault.THROTTLED:
                return throttled
            case CallFault.DROPPED:
                return cut(request)
            case CallFault.LOST_REPLY:
                before = len(self.changes)
                perform()
                self.unconfirmed += range(before, len(self.changes))
                return cut(request)

    def _fault(self, name: str) -> CallFault:
        """Two unknown outcomes in a row would make the gateway give the answer up."""
        fault = self._platform.faults.draw(self._platform.chance)
        unsure = fault in {CallFault.DROPPED, CallFault.LOST_REPLY}
        if unsure and name in self._unsure:
            fault = CallFault.NONE
        (self._unsure.add if unsure else self._unsure.discard)(name)
        if fault is not CallFault.NONE:
            self.faults[fault.name] += 1
        return fault

    async def _set_faults(self, request: web.Request) -> web.Response:
        self._platform.faults = msgspec.json.decode(await request.read(), type=FaultRates)
        return json_response({})

    async def _list_calls(self, request: web.Request) -> web.Response:
        return json_response(self.calls)


def json_response(
    value: object, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    # Some clients compare the type as a whole, so it must not name a charset.
    named = {**(headers or {}), "Content-Type": "application/json"}
    return web.Response(status=status, body=msgspec.json.encode(value), headers=named)


def cut(request: web.Request) -> web.StreamResponse:
    """End the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
