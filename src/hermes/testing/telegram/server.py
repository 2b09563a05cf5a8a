"""Serve the emulated Bot API over HTTP, with faults, long polling and webhooks."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import aiohttp
import anyio
import msgspec
from aiohttp import web
from msgspec import structs

from hermes.kit.http_server import shut_down_server
from hermes.testing.fake_openai.server import listen
from hermes.testing.platform.model import FakeModelServer
from hermes.testing.platform.state import CallFault
from hermes.testing.telegram.methods import ApiError, Call, Methods, UploadedFile
from hermes.testing.telegram.state import EmulatedBot, EmulatedTelegram, Json

LOOPBACK = "127.0.0.1"
MAX_BODY = 64 * 1024 * 1024
MAX_WAIT = 50
MAX_CONNECTIONS = 40
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - only its name
OTHER_POLLER = (
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is "
    "running"
)
WEBHOOK_ACTIVE = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete "
    "the webhook first"
)


class TelegramServer:
    """Serves `telegram`, and a `model` that a gateway can use.

    `failing` are errors of all calls of a method; `reject_markup` refuses every text with markup.
    """

    def __init__(self, telegram: EmulatedTelegram) -> None:
        self.telegram = telegram
        self.model = FakeModelServer()
        self.reject_markup = False
        self.runner = web.AppRunner(self.app(), handler_cancellation=True, shutdown_timeout=0.5)
        self.url = ""
        self.failing: dict[str, ApiError] = {}
        self._methods = Methods(telegram)
        self._changed = anyio.Event()
        self._unsure: set[str] = set()
        telegram.on_change = self.changed

    def changed(self) -> None:
        """Wake everything that waits for a change."""
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    async def acknowledged(self) -> None:
        """Wait until the bot has confirmed all updates."""
        await self.until(lambda: not self.telegram.unacknowledged())

    async def stop_listening(self) -> None:
        await shut_down_server(self.runner)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get("/file/bot{token}/{path:.*}", self._file)
        app.router.add_route("*", "/bot{token}/{method}", self._handle)
        app.router.add_routes(self.model.routes())
        return app

    async def _file(self, request: web.Request) -> web.Response:
        if request.match_info["token"] not in self.telegram.bots:
            return _error(ApiError(401, "Unauthorized"))
        files = dict(self.telegram.files.values())
        data = files.get(request.match_info["path"])
        return web.Response(status=404) if data is None else web.Response(body=data)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        try:
            bot = self._bot(request.match_info["token"])
            call = await _read_call(request, bot)
            self.telegram.calls.append(method)
            if method.lower() == "getupdates":
                return await self._get_updates(request, call)
            self._check_failing(method, call)
            return self._with_faults(request, method, call)
        except ApiError as error:
            return _error(error)

    def _check_failing(self, method: str, call: Call) -> None:
        if (error := self.failing.get(method)) is not None:
            raise error
        if self.reject_markup and call.text("parse_mode"):
            raise ApiError(400, "Bad Request: can't parse entities: rejected by the test")

    def _bot(self, token: str) -> EmulatedBot:
        if token not in self.telegram.bots:
            name, _, secret = token.partition(":")
            malformed = not name.isdecimal() or not secret
            raise ApiError(404, "Not Found") if malformed else ApiError(401, "Unauthorized")
        return self.telegram.bots[token]

    def _with_faults(self, request: web.Request, method: str, call: Call) -> web.StreamResponse:
        match self._fault(method):
            case CallFault.NONE:
                return _result(self._methods.call(method, call))
            case CallFault.REFUSED:
                raise ApiError(400, "Bad Request: the emulator refused the call")
            case CallFault.THROTTLED:
                raise ApiError(429, "Too Many Requests: retry after 1", retry_after=1)
            case CallFault.DROPPED:
                return _cut(request)
            case CallFault.LOST_REPLY:
                self._methods.call(method, call)
                return _cut(request)

    def _fault(self, method: str) -> CallFault:
        """Two unknown outcomes in a row would make the gateway give the answer up."""
        if not method.lower().startswith(("send", "edit")):
            return CallFault.NONE
        fault = self.telegram.faults.draw(self.telegram.chance)
        unsure = fault in {CallFault.DROPPED, CallFault.LOST_REPLY}
        if unsure and method in self._unsure:
            fault = CallFault.NONE
        (self._unsure.add if unsure else self._unsure.discard)(method)
        return fault

    async def _get_updates(self, request: web.Request, call: Call) -> web.StreamResponse:
        bot = call.bot
        if bot.webhook:
            raise ApiError(409, WEBHOOK_ACTIVE)
        bot.polls += 1
        own = bot.polls
        # The request that waits is ended by the new one.
        self.changed()
        self._methods.allow(call)
        limit = max(1, min(call.number("limit", 100), 100))
        offset, seconds = call.number("offset"), min(call.number("timeout"), MAX_WAIT)
        updates = self.telegram.updates_from(bot, offset, limit)
        with anyio.move_on_after(seconds):
            while not updates:
                await self._changed.wait()
                if bot.polls != own:
                    raise ApiError(409, OTHER_POLLER)
                updates = self.telegram.updates_from(bot, offset, limit)
        faults, chance = self.telegram.faults, self.telegram.chance
        if updates and chance.random() < faults.cut_poll:
            return _cut(request)
        if chance.random() < faults.repeated:
            # As if an acknowledgment had been lost.
            updates += chance.choices(self.telegram.updates_sent, k=3)
        if faults.shuffled:
            chance.shuffle(updates)
        return _result(updates)

    async def send_webhooks(self) -> None:
        """Post the updates of bots with a webhook, several at a time, until each is accepted."""
        async with aiohttp.ClientSession() as session:
            while True:
                for bot in self.telegram.bots.values():
                    while bot.webhook and bot.updates:
                        async with anyio.create_task_group() as group:
                            for update in [*bot.updates][:MAX_CONNECTIONS]:
                                group.start_soon(self._post_update, session, bot, update)
                await self._changed.wait()

    async def _post_update(
        self, session: aiohttp.ClientSession, bot: EmulatedBot, update: Json
    ) -> None:
        headers = {SECRET_HEADER: str(bot.webhook["secret"]), "Content-Type": "application/json"}
        body = msgspec.json.encode(update)
        async with session.post(str(bot.webhook["url"]), data=body, headers=headers) as response:
            accepted = response.status < 300
        if accepted:
            bot.updates.remove(update)
            self.changed()
        else:
            bot.webhook["error"] = f"Wrong response from the webhook: {response.status}"
            await anyio.sleep(0.05)


async def _read_call(request: web.Request, bot: EmulatedBot) -> Call:
    """Values come from the query, a form or JSON."""
    values: dict[str, object] = dict(request.query)
    files: dict[str, UploadedFile] = {}
    if request.content_type == "application/json":
        body = await request.read()
        values |= msgspec.json.decode(body, type=dict[str, object]) if body else {}
    elif request.can_read_body:
        for name, value in (await request.post()).items():
            if isinstance(value, web.FileField):
                files[name] = UploadedFile(value.filename, value.file.read())
            elif isinstance(value, str):
                values[name] = value
    call = Call(bot, values, files)
    # A file may be uploaded under another name and referred to as attach://name.
    linked = {
        name: files[value.removeprefix("attach://")]
        for name, value in values.items()
        if isinstance(value, str) and value.removeprefix("attach://") in files
    }
    return structs.replace(call, files={**files, **linked})


def _result(value: object) -> web.Response:
    body = msgspec.json.encode({"ok": True, "result": value})
    return web.Response(body=body, content_type="application/json")


def _error(error: ApiError) -> web.Response:
    content: dict[str, object] = {
        "ok": False, "error_code": error.code, "description": str(error),
    }  # fmt: skip
    if error.parameters:
        content["parameters"] = error.parameters
    body = msgspec.json.encode(content)
    return web.Response(status=error.code, body=body, content_type="application/json")


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@asynccontextmanager
async def serve_telegram(
    telegram: EmulatedTelegram, *, port: int = 0
) -> AsyncGenerator[TelegramServer]:
    """Serve the emulator on loopback during the block; port 0 picks a free one."""
    server = TelegramServer(telegram)
    async with listen(server.runner, LOOPBACK, port) as server.url:
        yield server
