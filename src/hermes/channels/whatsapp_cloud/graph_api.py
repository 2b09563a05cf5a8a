"""Calls to the Graph API for one phone number."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from hermes.channels.account import BadToken, BotToken
from hermes.channels.http_client import (
    UPLOAD_TIMEOUT,
    HttpAnswer,
    HttpBody,
    HttpClient,
    Upload,
    form_body,
    json_body,
    open_http_client,
)
from hermes.channels.proxies import ProxySettings
from hermes.channels.whatsapp_cloud import WhatsAppOptions
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import NotSent, Offline, TargetGone, Throttled, UnknownOutcome
from hermes.schema.errors import HermesError

T = TypeVar("T")

PRODUCT = "whatsapp"
MEDIA_HOST = "lookaside.fbsbx.com"
"""Meta's file servers; the access token is sent to no other server."""
BAD_TOKEN = frozenset({0, 190})
BUSY = {4: 60.0, 80007: 60.0, 130429: 5.0, 131048: 60.0}
"""Limits of the whole account, and the seconds to wait; the API does not say how long."""
BUSY_CHAT = {131056: 6.0}
UNREACHABLE = {
    131026: "the number is not on WhatsApp, or its app is too old",
    131030: "a test number can only write to numbers on its list of recipients",
    131047: "the person has not written for 24 hours",
}


class _Error(Struct, frozen=True, kw_only=True):
    code: int = 0
    message: str = ""


class _Refusal(Struct, frozen=True):
    error: _Error = _Error()


class _Id(Struct, frozen=True):
    id: str


class _Sent(Struct, frozen=True):
    messages: tuple[_Id, ...]


class _MediaUrl(Struct, frozen=True, kw_only=True):
    url: str
    file_size: int | str = 0


class PhoneNumber(Struct, frozen=True, kw_only=True):
    """The agent's number as Meta knows it."""

    display_phone_number: str = ""
    verified_name: str = ""
    code_verification_status: str = ""
    quality_rating: str = ""
    platform_type: str = ""


class SubscribedApps(Struct, frozen=True):
    """The apps that get the messages of an account."""

    data: tuple[object, ...] = ()


class _Field(Struct, frozen=True):
    name: str = ""


class _Subscription(Struct, frozen=True, kw_only=True):
    object: str = ""
    callback_url: str = ""
    active: bool = True
    fields: tuple[_Field, ...] = ()


class _Subscriptions(Struct, frozen=True):
    data: tuple[_Subscription, ...] = ()


class GraphApi:
    """Nothing is retried here."""

    def __init__(self, http: HttpClient, options: WhatsAppOptions, token: BotToken) -> None:
        self._http = http
        self._token = token
        self._number = options.phone_number_id
        self._origin = options.base_url.rstrip("/")
        self._base = f"{self._origin}/{options.api_version}"

    async def number(self) -> PhoneNumber:
        return await self._call("GET", self._number, PhoneNumber)

    async def subscribed_apps(self, account: str) -> SubscribedApps:
        return await self._call("GET", f"{account}/subscribed_apps", SubscribedApps)

    async def callback_url(self, app: str, secret: str) -> str:
        """Return the URL to which Meta posts messages; empty if there is none."""
        headers = {"Authorization": f"Bearer {app}|{secret}"}
        answer = await self._http.call("GET", f"{self._base}/{app}/subscriptions", headers=headers)
        if not answer.ok:
            raise self._error(answer)
        for subscription in self._http.decode(answer, _Subscriptions).data:
            names = {field.name for field in subscription.fields}
            if (
                subscription.object == "whatsapp_business_account"
                and subscription.active
                and "messages" in names
            ):
                return subscription.callback_url
        return ""

    async def send(self, fields: Mapping[str, object]) -> str:
        """Send a message of any kind and return its id."""
        body = json_body({"messaging_product": PRODUCT, **fields})
        sent = await self._call("POST", f"{self._number}/messages", _Sent, body)
        return sent.messages[0].id

    async def mark(self, fields: Mapping[str, object]) -> None:
        """Mark a message as read; with an indicator, show that an answer is being written."""
        body = json_body({"messaging_product": PRODUCT, "status": "read", **fields})
        await self._call("POST", f"{self._number}/messages", object, body)

    async def upload(self, name: str, media_type: str, data: bytes) -> str:
        """Upload a file and return its id; no one sees it before it is sent."""
        body = form_body(
            {"messaging_product": PRODUCT, "type": media_type},
            [Upload("file", name, media_type, data)],
        )
        try:
            answer = await self._call(
                "POST", f"{self._number}/media", _Id, body, seconds=UPLOAD_TIMEOUT
            )
        except UnknownOutcome as error:
            raise Offline(f"The file {name} could not be uploaded: {error}") from error
        return answer.id

    async def download(self, media: str, *, max_bytes: int) -> bytes:
        """Return the content of a file that someone sent."""
        found = await self._call("GET", media, _MediaUrl)
        size = str(found.file_size)
        if size.isdecimal() and int(size) > max_bytes:
            raise NotSent("The file is too large.")
        place = urlsplit(found.url)
        own = f"{place.scheme}://{place.netloc}" == self._origin
        if not own and (place.scheme, place.hostname) != ("https", MEDIA_HOST):
            raise NotSent("The file is on another server.")
        return await self._http.download(found.url, max_bytes=max_bytes, headers=self._headers)

    @property
    def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._token.value}"}

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: HttpBody | None = None,
        *,
        seconds: float = 20.0,
    ) -> T:
        answer = await self._http.call(
            method, f"{self._base}/{path}", body, self._headers, seconds=seconds
        )
        if not answer.ok:
            raise self._error(answer)
        return self._http.decode(answer, kind)

    def _error(self, answer: HttpAnswer) -> HermesError:
        try:
            error = msgspec.json.decode(answer.body, type=_Refusal).error
        except JSON_ERRORS:
            error = _Error()
        code, text = error.code, error.message or f"status {answer.status}"
        if answer.status == 401 or (code in BAD_TOKEN and error.message):
            return BadToken(
                "WhatsApp does not accept the access token.",
                hint="Create one that does not expire, and run: "
                "hermes gateway setup whatsapp_cloud",
            )
        if code in BUSY:
            message = f"WhatsApp is limiting requests: {text}"
            return Throttled(message, wait=BUSY[code], all_chats=True)
        if code in BUSY_CHAT:
            return Throttled(f"WhatsApp is limiting requests: {text}", wait=BUSY_CHAT[code])
        if code in UNREACHABLE:
            return TargetGone(f"WhatsApp refused: {UNREACHABLE[code]}.")
        return self._http.error(answer.status, text)


@asynccontextmanager
async def open_graph_api(
    options: WhatsAppOptions, token: BotToken, env: Mapping[str, str]
) -> AsyncGenerator[GraphApi]:
    settings = ProxySettings(options.proxy_url, "WHATSAPP_CLOUD_PROXY", env)
    async with open_http_client("WhatsApp", settings) as http:
        yield GraphApi(http, options, token)
