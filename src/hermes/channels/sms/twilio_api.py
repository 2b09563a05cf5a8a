"""Calls of Twilio's REST API, and the signature of its webhooks."""

import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import SplitResult, urlencode, urlsplit

import msgspec
from msgspec import Struct

from hermes.channels.account import BadToken, BotToken
from hermes.channels.http_client import (
    HttpAnswer,
    HttpBody,
    HttpClient,
    open_http_client,
    retry_after,
)
from hermes.channels.proxies import ProxySettings
from hermes.channels.sms import SmsOptions
from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import NotSent, TargetGone, UnknownOutcome
from hermes.schema.errors import HermesError

T = TypeVar("T")

API = "/2010-04-01/Accounts"
PAGE_SIZE = 200
MAX_PAGES = 50
DOWNLOAD_SECONDS = 15.0
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
UNREACHABLE = frozenset({21211, 21214, 21408, 21610, 21612, 21614})
"""The number is invalid, cannot receive messages from ours, or has opted out."""
_AUTHENTICATION = 20003


class _Refusal(Struct, frozen=True, kw_only=True):
    code: int = 0
    message: str = ""


class SmsMessage(Struct, frozen=True, kw_only=True):
    """A message as the API lists it."""

    sid: str
    body: str | None = ""
    from_: str | None = msgspec.field(default=None, name="from")
    direction: str = ""
    num_media: str = "0"
    date_sent: str | None = None
    messaging_service_sid: str | None = None

    @property
    def sent_at(self) -> datetime:
        """Return when it was sent; without a readable time it counts as very old."""
        try:
            return parsedate_to_datetime(self.date_sent or "")
        except ValueError:
            return LONG_AGO


class _Sent(Struct, frozen=True):
    sid: str


class ReceivedMessages(Struct, frozen=True):
    """Messages to the agent's number, oldest first, and Twilio's time of the list."""

    messages: tuple[SmsMessage, ...]
    listed_at: datetime


class _MessagePage(Struct, frozen=True, kw_only=True):
    messages: tuple[SmsMessage, ...] = ()
    next_page_uri: str | None = None


class MediaItem(Struct, frozen=True, kw_only=True):
    """A file of a message; `uri` is its metadata's path."""

    sid: str
    content_type: str = ""
    uri: str = ""


class _MediaPage(Struct, frozen=True, kw_only=True):
    media_list: tuple[MediaItem, ...] = ()


class Account(Struct, frozen=True, kw_only=True):
    """The account that the login belongs to; a trial can only write to verified numbers."""

    friendly_name: str = ""
    status: str = ""
    type: str = ""


class PhoneNumber(Struct, frozen=True, kw_only=True):
    """A number of the account, and where its messages are posted."""

    phone_number: str = ""
    sms_url: str | None = ""
    sms_method: str | None = ""
    capabilities: Mapping[str, bool] = {}


class _NumberPage(Struct, frozen=True, kw_only=True):
    incoming_phone_numbers: tuple[PhoneNumber, ...] = ()


class TwilioApi:
    """Calls of one account. Nothing is retried here."""

    def __init__(self, http: HttpClient, options: SmsOptions, token: BotToken) -> None:
        self._http = http
        self._options = options
        self._token = token
        self._base = options.base_url.rstrip("/")

    @property
    def _headers(self) -> Mapping[str, str]:
        login = f"{self._options.account_sid}:{self._token.value}".encode()
        return {"Authorization": f"Basic {base64.b64encode(login).decode()}"}

    async def account(self) -> Account:
        return await self._get(f"{self._path}.json", Account)

    async def number(self) -> PhoneNumber | None:
        """The agent's number; None if the account does not have it."""
        own = self._options.phone_number
        query = urlencode({"PhoneNumber": own})
        page = await self._get(f"{self._path}/IncomingPhoneNumbers.json?{query}", _NumberPage)
        return next(
            (number for number in page.incoming_phone_numbers if number.phone_number == own), None
        )

    async def send(self, to: str, text: str) -> str:
        """Send a message and return its id."""
        sender = "MessagingServiceSid" if self._is_service else "From"
        fields = {"To": to, sender: self._options.phone_number, "Body": text}
        body = HttpBody(
            urlencode(fields).encode(), {"Content-Type": "application/x-www-form-urlencoded"}
        )
        answer = await self._http.call(
            "POST", f"{self._base}{self._path}/Messages.json", body, self._headers
        )
        return self._decode(answer, _Sent).sid

    async def received_since(self, since: datetime) -> ReceivedMessages:
        """List the messages to the agent's number since then."""
        # The list can only be filtered by day.
        query: dict[str, object] = {"DateSent>": since.date().isoformat(), "PageSize": PAGE_SIZE}
        if not self._is_service:
            query["To"] = self._options.phone_number
        path = f"{self._path}/Messages.json?{urlencode(query)}"
        found: list[SmsMessage] = []
        listed_at: datetime | None = None
        for _ in range(MAX_PAGES):
            answer = await self._http.call("GET", self._base + path, headers=self._headers)
            listed_at = listed_at or _date(answer)
            page = self._decode(answer, _MessagePage, SmsMessage)
            recent = [message for message in page.messages if message.sent_at >= since]
            found += filter(self._is_for_us, recent)
            # The newest come first.
            if not page.next_page_uri or len(recent) < len(page.messages):
                return ReceivedMessages(tuple(found[::-1]), listed_at)
            path = page.next_page_uri
        raise UnknownOutcome("Twilio lists more messages than can be read.")

    def _is_for_us(self, message: SmsMessage) -> bool:
        own = self._options.phone_number
        ours = not self._is_service or message.messaging_service_sid == own
        return message.direction == "inbound" and bool(message.from_) and ours

    @property
    def _is_service(self) -> bool:
        return self._options.phone_number.startswith("MG")

    async def media_of(self, message: str) -> Sequence[MediaItem]:
        page = await self._get(f"{self._path}/Messages/{message}/Media.json", _MediaPage)
        return page.media_list

    async def download(self, url: str, *, max_bytes: int) -> bytes:
        """Return the content of a file of a message."""
        if _origin(urlsplit(url)) != _origin(urlsplit(self._base)):
            # The login must not be sent to another server.
            raise NotSent("The file is on another server.")
        return await self._http.download(
            url, max_bytes=max_bytes, headers=self._headers, seconds=DOWNLOAD_SECONDS
        )

    def media_url(self, item: MediaItem) -> str:
        return self._base + item.uri.removesuffix(".json")

    @property
    def _path(self) -> str:
        return f"{API}/{self._options.account_sid}"

    async def _get(self, path: str, kind: type[T]) -> T:
        answer = await self._http.call("GET", self._base + path, headers=self._headers)
        return self._decode(answer, kind)

    def _decode(self, answer: HttpAnswer, kind: type[T], item: type | None = None) -> T:
        if not answer.ok:
            raise self._error(answer)
        return self._http.decode(answer, kind, item)

    def _error(self, answer: HttpAnswer) -> HermesError:
        try:
            refusal = msgspec.json.decode(answer.body, type=_Refusal)
        except JSON_ERRORS:
            refusal = _Refusal()
        if answer.status == 401 or refusal.code == _AUTHENTICATION:
            return BadToken(
                "Twilio does not accept the account SID and the auth token.",
                hint="Copy both from https://console.twilio.com and run: hermes gateway setup sms",
            )
        text = refusal.message or f"status {answer.status}"
        if refusal.code in UNREACHABLE:
            return TargetGone(f"Twilio refused: {text}")
        return self._http.error(
            answer.status, text, wait=retry_after(answer.headers), all_chats=True
        )


def _date(answer: HttpAnswer) -> datetime:
    """Return Twilio's own time, because this machine's clock may differ."""
    try:
        return parsedate_to_datetime(answer.headers.get("Date", ""))
    except ValueError:
        return LONG_AGO


def _origin(url: SplitResult) -> tuple[str, str]:
    return url.scheme, url.netloc


def signature(token: str, url: str, fields: Sequence[tuple[str, str]]) -> str:
    """The signature of a webhook call: over its address and the sorted fields of its form."""
    signed = url + "".join(name + value for name, value in sorted(set(fields)))
    digest = hmac.new(token.encode(), signed.encode(), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def is_signed(token: str, url: str, fields: Sequence[tuple[str, str]], received: str) -> bool:
    """Whether the signature matches; Twilio signs the URL with or without its port."""
    return any(
        hmac.compare_digest(
            signature(token, spelling, fields).encode(), received.encode("utf-8", "surrogateescape")
        )
        for spelling in _spellings(url)
    )


def _spellings(url: str) -> list[str]:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    hosts = (host, f"{host}:{port}")
    return [url, *(parts._replace(netloc=netloc).geturl() for netloc in hosts)]


@asynccontextmanager
async def open_twilio(
    options: SmsOptions,
    token: BotToken,
    env: Mapping[str, str],
    unreadable: UnreadableUpdates | None = None,
) -> AsyncGenerator[TwilioApi]:
    settings = ProxySettings(options.proxy_url, "SMS_PROXY", env)
    async with open_http_client("Twilio", settings, unreadable=unreadable) as http:
        yield TwilioApi(http, options, token)
