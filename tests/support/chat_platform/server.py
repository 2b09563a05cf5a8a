"""Serve the fake platform over HTTP: a gateway API and an API for the people in chats."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
from aiohttp import web
from msgspec import Struct

from hermes.testing.fake_openai.server import listen
from support.chat_platform.model import FakeModelServer
from support.chat_platform.state import NO_FAULTS, CallFault, FakePlatform, FaultRates, Update

BATCH = 100
MAX_BODY = 64 * 1024 * 1024
LOOPBACK = "127.0.0.1"


class Posting(Struct, frozen=True):
    chat: str = ""
    text: str = ""
    reply_to: str | None = None
    buttons: dict[str, str] = {}
    files: dict[str, bytes] = {}


class Typing(Struct, frozen=True):
    chat: str
    on: bool


class Reaction(Struct, frozen=True):
    chat: str
    message: str
    sign: str


class WriteRequest(Struct, frozen=True):
    person: str
    text: str
    reply_to: str | None = None


class Updates(Struct, frozen=True):
    updates: list[Update]


class PlatformServer:
    """Serves the `platform` and its `model`.

    `hold` blocks calls of one kind until `release`.
    """

    def __init__(self, platform: FakePlatform) -> None:
        self.platform = platform
        self.model = FakeModelServer()
        self.url = ""
        self._changed = anyio.Event()
        self._held: dict[str, anyio.Event] = {}
        self._blocked: Counter[str] = Counter()
        self._doubtful: set[tuple[str, str]] = set()

    def say(
        self, account: str, chat: str, person: str, text: str, reply_to: str | None = None
    ) -> None:
        self.platform.say(account, chat, person, text, reply_to)
        self.changed()

    def change(
        self, account: str, chat: str, person: str, change: str, target: str, value: str = ""
    ) -> None:
        self.platform.change(account, chat, person, change, target, value)
        self.changed()

    def changed(self) -> None:
        """Wake everything that waits for a change to the platform."""
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the platform is true."""
        while not condition():
            await self._changed.wait()

    def hold(self, kind: str) -> None:
        """Block calls of this kind: `posts`, `edits`, `typing` or `signs`."""
        self._held[kind] = anyio.Event()

    def held(self, kind: str) -> int:
        """The number of calls of this kind that are blocked."""
        return self._blocked[kind]

    def release(self, kind: str) -> None:
        self._held.pop(kind).set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY)
        app.add_routes(
            [
                *self.model.routes(),
                web.get("/{account}/updates", self._updates),
                web.post("/{account}/posts", self._post),
                web.put("/{account}/posts/{post}", self._edit),
                web.post("/{account}/typing", self._typing),
                web.post("/{account}/signs", self._sign),
                web.post("/{account}/chats/{chat}", self._say),
                web.get("/{account}/chats/{chat}", self._look),
            ]
        )
        return app

    async def _updates(self, request: web.Request) -> web.StreamResponse:
        feed = self.platform.feed(request.match_info["account"])
        cursor, wait = int(request.query.get("cursor", "0")), float(request.query.get("wait", "0"))
        before = len(feed.updates)
        found = feed.after(cursor, BATCH)
        if len(feed.updates) != before:
            self.changed()
        with anyio.move_on_after(wait):
            while not (found := feed.after(cursor, BATCH)):
                await self._changed.wait()
        if found and self.platform.chance.random() < self.platform.fault_rates.cut_poll:
            return _cut(request)
        return _json(Updates(found))

    async def _post(self, request: web.Request) -> web.StreamResponse:
        account = request.match_info["account"]
        posting = msgspec.json.decode(await request.read(), type=Posting)

        def do() -> web.Response:
            shown = self.platform.post(account, posting.chat, posting.text, posting.reply_to)
            shown.buttons, shown.files = posting.buttons, posting.files
            self.changed()
            return _json({"id": shown.id})

        return await self._with_faults(request, "posts", do)

    async def _edit(self, request: web.Request) -> web.StreamResponse:
        account, post = request.match_info["account"], request.match_info["post"]
        posting = msgspec.json.decode(await request.read(), type=Posting)

        def do() -> web.Response:
            done = self.platform.edit(account, post, posting.text)
            self.changed()
            return _json({"id": post}) if done else web.Response(status=404)

        return await self._with_faults(request, "edits", do)

    async def _typing(self, request: web.Request) -> web.StreamResponse:
        typing = msgspec.json.decode(await request.read(), type=Typing)
        chat = (request.match_info["account"], typing.chat)

        def do() -> web.Response:
            (self.platform.typing.add if typing.on else self.platform.typing.discard)(chat)
            return _json({})

        return await self._with_faults(request, "typing", do)

    async def _sign(self, request: web.Request) -> web.StreamResponse:
        sign = msgspec.json.decode(await request.read(), type=Reaction)

        def do() -> web.Response:
            self.platform.reactions.append((sign.message, sign.sign))
            return _json({})

        return await self._with_faults(request, "signs", do)

    async def _say(self, request: web.Request) -> web.Response:
        written = msgspec.json.decode(await request.read(), type=WriteRequest)
        account, chat = request.match_info["account"], request.match_info["chat"]
        self.say(account, chat, written.person, written.text, written.reply_to)
        return _json({})

    async def _look(self, request: web.Request) -> web.Response:
        lines = self.platform.lines(request.match_info["account"], request.match_info["chat"])
        after, wait = int(request.query.get("after", "0")), float(request.query.get("wait", "0"))
        with anyio.move_on_after(wait):
            while len(lines) <= after:
                await self._changed.wait()
        return _json(lines[after:])

    async def _with_faults(
        self, request: web.Request, kind: str, do: Callable[[], web.Response]
    ) -> web.StreamResponse:
        platform, rates = self.platform, self.platform.fault_rates
        platform.calls += 1
        if kind in self._held:
            self._blocked[kind] += 1
            try:
                await self._held[kind].wait()
            finally:
                self._blocked[kind] -= 1
        if rates.delay:
            await anyio.sleep(platform.chance.random() * rates.delay)
        match self._draw_fault((request.match_info["account"], kind)):
            case CallFault.NONE:
                return do()
            case CallFault.REFUSED:
                return web.Response(status=409, text="The platform refused the call.")
            case CallFault.THROTTLED:
                return _json({"wait": rates.wait}, status=429)
            case CallFault.DROPPED:
                return _cut(request)
            case CallFault.LOST_REPLY:
                do()
                return _cut(request)

    def _draw_fault(self, place: tuple[str, str]) -> CallFault:
        """Choose a fault; two uncertain outcomes in a row would get the answer parked."""
        fault = self.platform.fault_rates.draw(self.platform.chance)
        doubtful = fault in {CallFault.DROPPED, CallFault.LOST_REPLY}
        if doubtful and place in self._doubtful:
            fault = CallFault.NONE
        (self._doubtful.add if doubtful else self._doubtful.discard)(place)
        return fault


def _json(value: object, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json")


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@asynccontextmanager
async def serve_platform(
    fault_rates: FaultRates = NO_FAULTS, seed: int = 0, port: int = 0
) -> AsyncGenerator[PlatformServer]:
    """Serve the platform on loopback during the block; port 0 picks a free one."""
    server = PlatformServer(FakePlatform(fault_rates, seed))
    runner = web.AppRunner(server.app(), handler_cancellation=True, shutdown_timeout=0.5)
    async with listen(runner, LOOPBACK, port) as server.url:
        yield server
