"""An emulator of the Cloud API: it checks and shows messages, and posts those of people."""

import hashlib
import hmac
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import cast

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct

from emulators.http_emulator import HttpEmulator, json_response
from support.chat_platform.state import NO_FAULTS, FaultRates

NUMBER_ID = "106540352242922"
TOKEN = "EAAtest-token-of-the-emulator"
SECRET = "0123456789abcdef0123456789abcdef"
VERIFY = "a word of our own"
MAX_TEXT = 4096
MAX_BUTTON_TEXT = 1024
MAX_CAPTION = 1024
MAX_BUTTONS = 3
MAX_BUTTON_TITLE = 20
MAX_BUTTON_ID = 256
MAX_ROWS = 10
MAX_ROW_TITLE = 24
MAX_ROW_ID = 200
_OFFICE = "application/vnd.openxmlformats-officedocument"
_FILES = {
    "audio": {"audio/aac", "audio/amr", "audio/mp4", "audio/mpeg", "audio/ogg", "audio/opus"},
    "document": {
        "application/msword", "application/pdf", "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint", "text/plain", f"{_OFFICE}.presentationml.presentation",
        f"{_OFFICE}.spreadsheetml.sheet", f"{_OFFICE}.wordprocessingml.document",
    },
    "image": {"image/jpeg", "image/png"},
    "sticker": {"image/webp"},
    "video": {"video/3gpp", "video/mp4"},
}  # fmt: skip
"""The documented types of files of each kind of message."""
_ERRORS = {
    4: (429, "Application request limit reached"),
    100: (400, "Invalid parameter"),
    190: (401, "Invalid OAuth access token - Cannot parse access token"),
    130429: (400, "Rate limit hit"),
    131009: (400, "Parameter value is not valid"),
    131026: (400, "Message undeliverable"),
    131047: (400, "Re-engagement message"),
    131056: (400, "(Business Account, Consumer Account) pair rate limit hit"),
}
"""The documented error codes: status and message."""

Json = dict[str, object]


class ShownMessage(Struct):
    """A message that a person sees, or an uploaded file that nobody sees yet."""

    id: str
    to: str
    fields: Json

    @property
    def text(self) -> str:
        kind = str(self.fields["type"])
        content = _table(self.fields, kind)
        if kind == "interactive":
            return str(_table(content, "body").get("text", ""))
        return str(content.get("body" if kind == "text" else "caption", ""))

    @property
    def choices(self) -> dict[str, str]:
        """Values and labels of what can be chosen."""
        action = _table(_table(self.fields, "interactive"), "action")
        buttons = [_table(one, "reply") for one in _tables(action, "buttons")]
        rows = [row for one in _tables(action, "sections") for row in _tables(one, "rows")]
        return {str(one["id"]): str(one["title"]) for one in (*buttons, *rows)}


class EmulatedWhatsApp:
    """The messages of one number, and the files of people and the agent."""

    def __init__(self, faults: FaultRates = NO_FAULTS, seed: int = 0) -> None:
        self.faults = faults
        self.chance = random.Random(seed)  # noqa: S311 - faults of tests
        self.on_change: Callable[[], None] = lambda: None
        self.tokens = {TOKEN}
        self.shown: list[ShownMessage] = []
        self.reactions: list[tuple[str, str]] = []
        self.typing: set[str] = set()
        self.files: dict[str, tuple[str, bytes]] = {}
        self.silent_for_a_day: set[str] = set()
        self._count = 0

    def new_id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count:06d}"

    def posts(self, to: str) -> list[ShownMessage]:
        return [one for one in self.shown if one.to == to]

    def message(self, sender: str, **content: object) -> Json:
        """A message of a person, as a webhook call contains it."""
        return {
            "from": sender,
            "id": self.new_id("wamid."),
            "timestamp": f"{time.time():.0f}",
            **content,
        }


class WhatsAppServer(HttpEmulator):
    """Serves `whatsapp`; `failing` is the code of the error of all sent messages."""

    def __init__(self, whatsapp: EmulatedWhatsApp) -> None:
        routes = [
            web.post("/v20.0/{number}/messages", self._messages),
            web.post("/v20.0/{number}/media", self._upload),
            web.get("/v20.0/{id}", self._get),
            web.get("/v20.0/{id}/subscribed_apps", self._apps),
            web.get("/v20.0/{app}/subscriptions", self._subscriptions),
            web.get("/download/{id}", self._download),
        ]
        super().__init__(whatsapp, routes)
        self.whatsapp = whatsapp
        self.failing = 0
        self.callback_url = ""

    async def post(self, to: str, *messages: Json, secret: str = SECRET, **value: object) -> int:
        """Call the webhook and return the status; Meta repeats a call that fails."""
        metadata = {"display_phone_number": "15550001111", "phone_number_id": NUMBER_ID}
        contacts = [
            {"wa_id": one["from"], "profile": {"name": "Ann"}} for one in messages if "from" in one
        ]
        content = {
            "messaging_product": "whatsapp",
            "metadata": metadata,
            "contacts": contacts,
            "messages": messages,
            **value,
        }
        change = {"field": "messages", "value": content}
        body = msgspec.json.encode(
            {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]}
        )
        signed = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signed}", "Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(to, data=BytesIO(body), headers=headers) as response,
        ):
            return response.status

    def _refused(self, request: web.Request) -> web.Response | None:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or token not in self.whatsapp.tokens:
            return _error(190)
        return None

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        if (refused := self._refused(request)) is not None:
            return refused
        fields = msgspec.json.decode(await request.read(), type=dict[str, object])
        if (
            request.match_info["number"] != NUMBER_ID
            or fields.get("messaging_product") != "whatsapp"
        ):
            return _error(100)
        if fields.get("status") == "read":
            if "typing_indicator" in fields:
                self.whatsapp.typing.add(str(fields["message_id"]))
            self.changed()
            return json_response({"success": True})
        if code := self.failing or _invalid(fields, self.whatsapp):
            return _error(code)
        self.calls.append(str(fields["type"]))
        return await self.with_faults(
            request,
            str(fields["to"]),
            lambda: self._show(fields),
            refused=_error(131009),
            throttled=_error(130429),
        )

    def _show(self, fields: Json) -> web.Response:
        whatsapp, to = self.whatsapp, str(fields["to"])
        sent = whatsapp.new_id("wamid.bot")
        if fields["type"] == "reaction":
            reaction = _table(fields, "reaction")
            whatsapp.reactions.append((str(reaction["message_id"]), str(reaction["emoji"])))
        else:
            whatsapp.shown.append(ShownMessage(sent, to, fields))
        whatsapp.on_change()
        contacts = [{"input": to, "wa_id": to}]
        return json_response(
            {"messaging_product": "whatsapp", "contacts": contacts, "messages": [{"id": sent}]}
        )

    async def _upload(self, request: web.Request) -> web.Response:
        if (refused := self._refused(request)) is not None:
            return refused
        form = await request.post()
        file = form.get("file")
        if form.get("messaging_product") != "whatsapp" or not isinstance(file, web.FileField):
            return _error(100)
        kinds = {str(form.get("type")), file.content_type}
        if len(kinds) > 1 or not any(kinds <= types for types in _FILES.values()):
            return _error(100)
        media = self.whatsapp.new_id("")
        self.whatsapp.files[media] = (str(form["type"]), file.file.read())
        return json_response({"id": media})

    async def _get(self, request: web.Request) -> web.Response:
        if (refused := self._refused(request)) is not None:
            return refused
        wanted = request.match_info["id"]
        if wanted == NUMBER_ID:
            self.calls.append("number")
            self.changed()
            return json_response(
                {"display_phone_number": "+1 555-000-1111", "verified_name": "Hermes",
                 "quality_rating": "GREEN"}
            )  # fmt: skip
        if wanted not in self.whatsapp.files:
            return _error(100)
        kind, data = self.whatsapp.files[wanted]
        url = f"{self.url}/download/{wanted}"
        size = str(len(data))
        return json_response({"url": url, "mime_type": kind, "file_size": size, "id": wanted})

    async def _apps(self, request: web.Request) -> web.Response:
        return self._refused(request) or json_response({"data": []})

    async def _subscriptions(self, request: web.Request) -> web.Response:
        """Only the app itself may ask, with its id and secret."""
        expected = f"Bearer {request.match_info['app']}|{SECRET}"
        if request.headers.get("Authorization") != expected:
            return _error(190)
        found = {
            "object": "whatsapp_business_account",
            "callback_url": self.callback_url,
            "active": True,
            "fields": [{"name": "messages", "version": "v20.0"}],
        }
        return json_response({"data": [found] if self.callback_url else []})

    async def _download(self, request: web.Request) -> web.Response:
        if (refused := self._refused(request)) is not None:
            return refused
        kind, data = self.whatsapp.files[request.match_info["id"]]
        return web.Response(body=data, content_type=kind)


def _table(of: Mapping[str, object], name: str) -> Json:
    found = of.get(name)
    return cast("Json", found) if isinstance(found, dict) else {}


def _tables(of: Mapping[str, object], name: str) -> list[Json]:
    found = of.get(name)
    return cast("list[Json]", found) if isinstance(found, list) else []


def _invalid(fields: Json, whatsapp: EmulatedWhatsApp) -> int:
    """The code of the error of a message that cannot be sent."""
    to, kind = str(fields.get("to", "")), str(fields.get("type", ""))
    if not to.isdecimal():
        return 131026
    if to in whatsapp.silent_for_a_day:
        return 131047
    content = _table(fields, kind)
    match kind:
        case "text":
            fits = 0 < len(str(content.get("body", ""))) <= MAX_TEXT
        case "interactive":
            fits = _interactive_fits(content)
        case "reaction":
            fits = bool(content.get("message_id"))
        case _:
            fits = _file_fits(kind, content, whatsapp)
    return 0 if fits else 131009


def _file_fits(kind: str, content: Json, whatsapp: EmulatedWhatsApp) -> bool:
    media_type, _ = whatsapp.files.get(str(content.get("id", "")), ("", b""))
    return (
        media_type in _FILES.get(kind, ())
        and len(str(content.get("caption", ""))) <= (0 if kind == "audio" else MAX_CAPTION)
        and (not content.get("voice") or media_type == "audio/ogg")
    )


def _interactive_fits(content: Json) -> bool:
    text = str(_table(content, "body").get("text", ""))
    action = _table(content, "action")
    if content.get("type") == "button":
        replies = [_table(one, "reply") for one in _tables(action, "buttons")]
        limits = (MAX_BUTTON_TEXT, MAX_BUTTONS, MAX_BUTTON_ID, MAX_BUTTON_TITLE)
    else:
        replies = [row for one in _tables(action, "sections") for row in _tables(one, "rows")]
        limits = (MAX_TEXT, MAX_ROWS, MAX_ROW_ID, MAX_ROW_TITLE)
    most_text, most, most_id, most_title = limits
    return (
        0 < len(text) <= most_text
        and 0 < len(replies) <= most
        and all(len(str(one["id"])) <= most_id for one in replies)
        and all(0 < len(str(one["title"])) <= most_title for one in replies)
        and len({one["title"] for one in replies}) == len(replies)
    )


def _error(code: int) -> web.Response:
    status, message = _ERRORS[code]
    error = {"message": f"(#{code}) {message}", "type": "OAuthException", "code": code}
    return json_response({"error": error}, status)


@asynccontextmanager
async def serve_whatsapp(whatsapp: EmulatedWhatsApp) -> AsyncGenerator[WhatsAppServer]:
    async with WhatsAppServer(whatsapp).serving() as server:
        yield server
