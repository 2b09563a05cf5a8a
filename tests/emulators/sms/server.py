"""An emulator of Twilio's messaging API: it sends, lists and posts messages as documented."""

import base64
import random
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
from aiohttp import web
from msgspec import Struct, field

from emulators.http_emulator import HttpEmulator, json_response
from hermes.channels.sms.twilio_api import API, signature
from support.chat_platform.state import NO_FAULTS, FaultRates

ACCOUNT = "AC" + "0" * 32
TOKEN = "1" * 32
NUMBER = "+15550000001"
SERVICE = "MG" + "5" * 32
OWN = frozenset({NUMBER, SERVICE})
MAX_BODY = 1600
_NUMBER = re.compile(r"\+[1-9]\d{4,14}")
_ERRORS = {
    20003: (401, "Authenticate"),
    20404: (404, "The requested resource was not found"),
    20429: (429, "Too Many Requests"),
    21211: (400, "The 'To' number is not a valid phone number."),
    21602: (400, "Message body is required."),
    21606: (400, "The 'From' number is not a Twilio phone number of the account."),
    21610: (400, "Attempt to send to unsubscribed recipient"),
    21617: (400, "The concatenated message body exceeds the 1600 character limit."),
}
"""The documented error codes: status and message."""


class EmulatedMessage(Struct):
    sid: str
    sender: str
    to: str
    body: str
    sent_at: datetime
    service: str | None = None
    files: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def as_json(self) -> dict[str, object]:
        return {
            "sid": self.sid,
            "account_sid": ACCOUNT,
            # A messaging service chooses its number later.
            "from": None if self.sender == SERVICE else self.sender,
            "messaging_service_sid": self.service,
            "to": self.to,
            "body": self.body,
            "direction": "outbound-api" if self.sender in OWN else "inbound",
            "status": "queued" if self.sender in OWN else "received",
            "num_media": str(len(self.files)),
            "date_sent": format_datetime(self.sent_at),
        }


class EmulatedTwilio:
    """The messages of one account with one number, and who has opted out."""

    def __init__(self, faults: FaultRates = NO_FAULTS, seed: int = 0) -> None:
        self.faults = faults
        self.chance = random.Random(seed)  # noqa: S311 - faults of tests
        self.on_change: Callable[[], None] = lambda: None
        self.messages: list[EmulatedMessage] = []
        self.opted_out: set[str] = set()
        self.sms_url = ""
        self.trial = False
        self.page_size = 2
        self._time = datetime.now(UTC).replace(microsecond=0)

    def add(self, sender: str, to: str, body: str) -> EmulatedMessage:
        prefix = "SM" if sender in OWN else "MM"
        message = EmulatedMessage(
            f"{prefix}{len(self.messages):032x}", sender, to, body, self._time
        )
        self.messages.append(message)
        self.on_change()
        return message

    def pass_time(self, by: timedelta) -> None:
        self._time += by

    def sent(self, to: str) -> list[EmulatedMessage]:
        return [one for one in self.messages if one.sender in OWN and one.to == to]


class TwilioServer(HttpEmulator):
    """Serves `twilio`; `failing` is the code of the error of all sent messages."""

    def __init__(self, twilio: EmulatedTwilio) -> None:
        account = f"{API}/{{account}}"
        routes = [
            web.get(f"{account}.json", self._account),
            web.get(f"{account}/IncomingPhoneNumbers.json", self._numbers),
            web.get(f"{account}/Messages.json", self._list),
            web.post(f"{account}/Messages.json", self._send),
            web.get(f"{account}/Messages/{{sid}}/Media.json", self._media_list),
            web.get(f"{account}/Messages/{{sid}}/Media/{{number}}", self._media),
        ]
        super().__init__(twilio, routes)
        self.twilio = twilio
        self.failing = 0

    async def post(
        self, message: EmulatedMessage, to: str, *, token: str = TOKEN, **more: str
    ) -> int:
        """Call the webhook for a message and return the status; Twilio does not call again."""
        fields = {
            "MessageSid": message.sid,
            "AccountSid": ACCOUNT,
            "From": message.sender,
            "To": message.to,
            "Body": message.body,
            "NumMedia": str(len(message.files)),
            **more,
        }
        for number, (media_type, _) in enumerate(message.files):
            path = f"{API}/{ACCOUNT}/Messages/{message.sid}/Media/{number}"
            fields[f"MediaUrl{number}"] = self.url + path
            fields[f"MediaContentType{number}"] = media_type
        signed = signature(token, self.twilio.sms_url, list(fields.items()))
        headers = {"X-Twilio-Signature": signed}
        async with (
            aiohttp.ClientSession() as session,
            session.post(to, data=fields, headers=headers) as response,
        ):
            return response.status

    async def _account(self, request: web.Request) -> web.Response:
        if (refused := _refused(request)) is not None:
            return refused
        self._log("account")
        kind = "Trial" if self.twilio.trial else "Full"
        return json_response({"friendly_name": "Test", "status": "active", "type": kind})

    async def _numbers(self, request: web.Request) -> web.Response:
        if (refused := _refused(request)) is not None:
            return refused
        number = {
            "phone_number": NUMBER,
            "sms_url": self.twilio.sms_url,
            "sms_method": "POST",
            "capabilities": {"sms": True, "mms": True, "voice": False},
        }
        found = [number] if request.query.get("PhoneNumber", NUMBER) == NUMBER else []
        return json_response({"incoming_phone_numbers": found})

    async def _list(self, request: web.Request) -> web.Response:
        """Newest first, in pages; dates are whole days."""
        if (refused := _refused(request)) is not None:
            return refused
        to, since = request.query.get("To"), request.query.get("DateSent>", "")
        found = [
            one
            for one in reversed(self.twilio.messages)
            if (not to or one.to == to) and one.sent_at.date().isoformat() >= since
        ]
        self._log("list")
        page, size = int(request.query.get("Page", "0")), self.twilio.page_size
        shown = found[page * size : (page + 1) * size]
        more = len(found) > (page + 1) * size
        following = str(request.rel_url.update_query(Page=str(page + 1))) if more else None
        return json_response(
            {"messages": [one.as_json() for one in shown], "next_page_uri": following}
        )

    async def _send(self, request: web.Request) -> web.StreamResponse:
        if (refused := _refused(request)) is not None:
            return refused
        form = {name: str(value) for name, value in (await request.post()).items()}
        if code := self.failing or _invalid(form, self.twilio.opted_out):
            return _error(code)
        self._log("send")
        return await self.with_faults(
            request,
            form["To"],
            lambda: json_response(self.twilio.add(NUMBER, form["To"], form["Body"]).as_json(), 201),
            refused=_error(21606),
            throttled=_error(20429),
        )

    async def _media_list(self, request: web.Request) -> web.Response:
        if (refused := _refused(request)) is not None:
            return refused
        message = self._message(request)
        self._log("media")
        if self.failing:
            return _error(self.failing)
        found = [
            {"sid": f"ME{number}", "content_type": kind, "uri": f"{_bare(request)}/{number}.json"}
            for number, (kind, _) in enumerate(message.files)
        ]
        return json_response({"media_list": found})

    async def _media(self, request: web.Request) -> web.Response:
        if (refused := _refused(request)) is not None:
            return refused
        kind, data = self._message(request).files[int(request.match_info["number"])]
        return web.Response(body=data, content_type=kind)

    def _log(self, call: str) -> None:
        self.calls.append(call)
        self.changed()

    def _message(self, request: web.Request) -> EmulatedMessage:
        sid = request.match_info["sid"]
        return next(one for one in self.twilio.messages if one.sid == sid)


def _sender(form: Mapping[str, str]) -> str:
    return form.get("MessagingServiceSid") or form.get("From", "")


def _bare(request: web.Request) -> str:
    return request.path.removesuffix(".json")


def _refused(request: web.Request) -> web.Response | None:
    login = base64.b64encode(f"{ACCOUNT}:{TOKEN}".encode()).decode()
    if request.headers.get("Authorization") != f"Basic {login}":
        return _error(20003)
    return None if request.match_info["account"] == ACCOUNT else _error(20404)


def _invalid(form: Mapping[str, str], opted_out: set[str]) -> int:
    """The code of the error of a message that cannot be sent."""
    rules = (
        (21211, _NUMBER.fullmatch(form.get("To", "")) is None),
        (21606, _sender(form) not in OWN),
        (21602, not form.get("Body")),
        (21617, len(form.get("Body", "")) > MAX_BODY),
        (21610, form.get("To") in opted_out),
    )
    return next((code for code, broken in rules if broken), 0)


def _error(code: int) -> web.Response:
    status, message = _ERRORS[code]
    headers = {"Retry-After": "3"} if status == 429 else None
    body = {"code": code, "message": message, "status": status}
    return json_response(body, status, headers)


@asynccontextmanager
async def serve_twilio(twilio: EmulatedTwilio) -> AsyncGenerator[TwilioServer]:
    async with TwilioServer(twilio).serving() as server:
        yield server
