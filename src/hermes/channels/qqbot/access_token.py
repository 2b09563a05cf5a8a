"""Get access tokens with the app's secret; they are valid for two hours and renewed in time."""

from collections.abc import Callable

import anyio

from hermes.channels.account import BadToken
from hermes.channels.http_client import HttpClient, json_body
from hermes.channels.qqbot.objects import AccessToken
from hermes.kit.clock import Clock
from hermes.ports.channel import NotSent, Offline, UnknownOutcome

EARLY = 50.0
"""Seconds before the end: QQ gives a new token only in the last minute of the old one."""


class AccessTokens:
    """`secret` returns the app's current id and secret."""

    def __init__(
        self, http: HttpClient, url: str, secret: Callable[[], tuple[str, str]], clock: Clock
    ) -> None:
        self._http = http
        self._url = url
        self._secret = secret
        self._clock = clock
        self._lock = anyio.Lock()
        self._value = ""
        self._until = 0.0

    async def current(self, refused: str = "") -> str:
        """Return a valid token; `refused` is one that QQ no longer accepts."""
        async with self._lock:
            soon = self._clock.monotonic() + EARLY
            if not self._value or self._value == refused or self._until <= soon:
                await self._renew()
            return self._value

    async def _renew(self) -> None:
        app, secret = self._secret()
        body = json_body({"appId": app, "clientSecret": secret})
        asked_at = self._clock.monotonic()
        try:
            answer = await self._http.call("POST", self._url, body)
            token = self._http.decode(answer, AccessToken)
        except UnknownOutcome as error:
            # Getting a token has no effect, so certainly nothing was sent.
            raise Offline(str(error)) from error
        if answer.status == 429 or answer.status >= 500:
            error = self._http.error(answer.status, token.message or f"status {answer.status}")
            raise error if isinstance(error, NotSent) else Offline(str(error))
        if not token.access_token:
            raise BadToken(
                f"QQ does not accept the app id and secret: {token.message or answer.status}",
                hint="Copy both from https://q.qq.com, development settings, and run: "
                "hermes gateway setup qqbot",
            )
        self._value = token.access_token
        self._until = asked_at + float(token.expires_in)
