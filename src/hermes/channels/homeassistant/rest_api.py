"""Calls of Home Assistant's REST API."""

from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec import Struct

from hermes.channels.account import BadToken, BotToken
from hermes.channels.http_client import HttpAnswer, HttpBody, HttpClient, json_body, retry_after
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import NotSent
from hermes.schema.errors import ConfigError, HermesError

T = TypeVar("T")

TITLE = "Hermes"


class _Refusal(Struct, frozen=True):
    message: str = ""


class Configuration(Struct, frozen=True, kw_only=True):
    """The configuration that Home Assistant reports."""

    location_name: str = ""
    version: str = ""


class RestApi:
    """Nothing is retried here."""

    def __init__(self, http: HttpClient, url: str, token: BotToken) -> None:
        self._http = http
        self._base = f"{url.rstrip('/')}/api"
        self._token = token

    async def configuration(self) -> Configuration:
        return await self._call("GET", "config", Configuration)

    async def notify(self, number: str, text: str) -> None:
        """Show a notification; one with the same id is replaced."""
        fields = {"notification_id": number, "title": TITLE, "message": text}
        await self.call_service("persistent_notification", "create", fields)

    async def call_service(self, domain: str, service: str, fields: Mapping[str, object]) -> None:
        await self._call("POST", f"services/{domain}/{service}", object, json_body(fields))

    async def _call(self, method: str, path: str, kind: type[T], body: HttpBody | None = None) -> T:
        headers = {"Authorization": f"Bearer {self._token.value}"}
        answer = await self._http.call(method, f"{self._base}/{path}", body, headers)
        if not answer.ok:
            raise self._error(answer, path)
        return self._http.decode(answer, kind)

    def _error(self, answer: HttpAnswer, path: str) -> HermesError:
        try:
            text = msgspec.json.decode(answer.body, type=_Refusal).message
        except JSON_ERRORS:
            text = ""
        if answer.status == 401:
            # The token may have been replaced: the next attempt uses the current one.
            with suppress(ConfigError):
                self._token.reload()
            return bad_token()
        # An unknown service is 400, also while Home Assistant starts and does not have it yet.
        if answer.status in {400, 404} and path.startswith("services/notify/"):
            name = f"notify.{path.rpartition('/')[2]}"
            return NotSent(f"Home Assistant refused {name}: is there such a service?")
        return self._http.error(
            answer.status, text or f"status {answer.status}", wait=retry_after(answer.headers)
        )


def bad_token() -> BadToken:
    return BadToken(
        "Home Assistant does not accept the token.",
        hint="Create a long-lived access token in your profile there, and run: "
        "hermes gateway setup homeassistant",
    )
