"""Serve the emulated Bot API over HTTP, with long polling and webhooks."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import anyio
import msgspec
from aiohttp import web
from msgspec import structs

from emulators.http_emulator import HttpEmulator, cut, json_response
from emulators.telegram.methods import ApiError, Call, Methods, UploadedFile
from emulators.telegram.state import EmulatedBot, EmulatedMessage, EmulatedTelegram, Json

MAX_WAIT = 50
MAX_CONNECTIONS = 40
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"
OTHER_POLLER = (
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is "
    "running"
)
WEBHOOK_ACTIVE = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete "
    "the webhook first"
)


BROKEN_RULES = re.compile(
    r"in the request$|wrong parameter|unallowed|unsupported|can't parse|is empty|non-empty"
    r"|is too long|Too Large|_INVALID$|_TOO_MUCH$"
)
"""Refusals of calls that a bot must not make; others depend on what people do."""


class TelegramServer(HttpEmulator):
    """Serves `telegram`.

    `failing` are errors of all calls of a method; `reject_markup` refuses every text with markup.
    `violations` are the calls that broke a rule.
    """

    def __init__(self, telegram: EmulatedTelegram) -> None:
        routes = [
            web.get("/file/bot{token}/{path:.*}", self._file),
            web.route("*", "/bot{token}/{method}", self._handle),
        ]
        super().__init__(telegram, routes)
        self.telegram = telegram
        self.reject_markup = False
        self.failing: dict[str, ApiError] = {}
        self.violations: list[str] = []
        self._methods = Methods(telegram)

    @property
    def changes(self) -> Sequence[EmulatedMessage]:
        return self.telegram.changes

    async def acknowledged(self) -> None:
        """Wait until the bot has confirmed all updates."""
        await self.until(lambda: not self.telegram.unacknowledged())

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
            self.calls.append(method)
            if method.lower() == "getupdates":
                return await self._get_updates(request, call)
            self._check_failing(method, call)
            return await self._perform(request, method, call)
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

    async def _perform(self, request: web.Request, method: str, call: Call) -> web.StreamResponse:
        if not method.lower().startswith(("send", "edit")):
            return _result(self._call(method, call))
        return await self.with_faults(
            request,
            method,
            lambda: _result(self._call(method, call)),
            refused=_error(ApiError(400, "Bad Request: the emulator refused the call")),
            throttled=_error(ApiError(429, "Too Many Requests: retry after 1", retry_after=1)),
        )

    def _call(self, method: str, call: Call) -> object:
        try:
            return self._methods.call(method, call)
        except ApiError as error:
            if BROKEN_RULES.search(str(error)):
                self.violations.append(f"{method}: {error}")
            raise

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
                await self.next_change()
                if bot.polls != own:
                    raise ApiError(409, OTHER_POLLER)
                updates = self.telegram.updates_from(bot, offset, limit)
        faults, chance = self.telegram.faults, self.telegram.chance
        if updates and chance.random() < faults.cut_poll:
            return cut(request)
        if chance.random() < faults.repeated:
            # As if an acknowledgment had been lost. Never a later update than the batch has: the
            # next offset would confirm what lies between, which the bot has not seen.
            last = max([offset - 1, *(int(str(one["update_id"])) for one in updates)])
            updates += self.telegram.earlier_updates(last, 3)
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
                await self.next_change()

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
    return json_response({"ok": True, "result": value})


def _error(error: ApiError) -> web.Response:
    content: dict[str, object] = {
        "ok": False, "error_code": error.code, "description": str(error),
    }  # fmt: skip
    if error.parameters:
        content["parameters"] = error.parameters
    return json_response(content, error.code)


@asynccontextmanager
async def serve_telegram(
    telegram: EmulatedTelegram, *, port: int = 0
) -> AsyncGenerator[TelegramServer]:
    """Serve the emulator on loopback during the block; port 0 picks a free one."""
    async with TelegramServer(telegram).serving(port) as server:
        yield server
