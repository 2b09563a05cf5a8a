"""Log in with the OAuth device flow (RFC 8628), and renew the tokens.

A refresh token often works only once, so renewals hold a lock across processes, and check first
whether another process has renewed the token meanwhile.
"""

import asyncio
import os
import secrets
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.files import try_lock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.models.auth_file import OAUTH, AuthFile, Credential
from hermes.models.endpoint import read_all
from hermes.models.error_body import redacted_message
from hermes.models.http_client import HttpClient, default_tls
from hermes.models.settings import DeviceLogin
from hermes.schema.errors import Unauthorized, Unreachable

RENEW_BEFORE = 120.0
"""Seconds before its expiry at which a token is renewed."""
MAX_LOGIN_SECONDS = 1800.0
HTTP_TIMEOUT = 30.0
_MAX_RESPONSE = 256 * 1024
_HEADERS = {
    "accept": "application/json",
    "content-type": "application/x-www-form-urlencoded",
    "accept-encoding": "identity",
}
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class DeviceCode(Struct, kw_only=True):
    """The code to show to the user, and the state of the pending login."""

    device_code: str
    user_code: str
    verification_uri: str = ""
    verification_uri_complete: str = ""
    expires_in: float = 600.0
    interval: float = 5.0
    verifier: str = ""


class OAuthTokens(Struct, kw_only=True):
    access_token: str = ""
    refresh_token: str | None = None
    expires_in: float | None = None
    error: str = ""
    error_description: str = ""


_Response = TypeVar("_Response", DeviceCode, OAuthTokens)


class OAuthClient:
    def __init__(self, file: AuthFile, clock: Clock, timeout: float = HTTP_TIMEOUT) -> None:
        self._file = file
        self._clock = clock
        self._timeout = timeout

    async def begin(self, login: DeviceLogin) -> DeviceCode:
        form = {"client_id": login.client_id, "scope": login.scope}
        verifier = ""
        if login.pkce:
            verifier = secrets.token_urlsafe(48)
            digest = urlsafe_b64encode(sha256(verifier.encode()).digest())
            form |= {
                "code_challenge": digest.rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            }
        code = await self._post(login.device_url, form, DeviceCode)
        code.verifier = verifier
        return code

    async def wait_for_approval(self, login: DeviceLogin, code: DeviceCode) -> OAuthTokens:
        """Poll until the user approves; raise `Unauthorized` if that does not happen."""
        form = {
            "grant_type": _DEVICE_GRANT,
            "device_code": code.device_code,
            "client_id": login.client_id,
        }
        if code.verifier:
            form["code_verifier"] = code.verifier
        interval = max(code.interval, 1.0)
        end = self._clock.monotonic() + min(code.expires_in, MAX_LOGIN_SECONDS)
        while self._clock.monotonic() + interval <= end:
            await self._clock.sleep(interval)
            tokens = await self._post(login.token_url, form, OAuthTokens)
            match tokens.error:
                case "":
                    return tokens
                case "authorization_pending":
                    continue
                case "slow_down":
                    interval += 5.0
                case _:
                    raise _declined_error(tokens)
        raise Unauthorized("the login was not approved in time", hint="Start it again.")

    async def save(self, provider: str, tokens: OAuthTokens, label: str = "") -> Credential:
        now = self._clock.now()
        credential = Credential(
            label=label,
            auth_type=OAUTH,
            source="device_code",
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            expires_at=now.timestamp() + tokens.expires_in if tokens.expires_in else None,
        )
        return await run_sync(partial(self._file.add, provider, credential, now))

    async def renewed_if_expiring(
        self, provider: str, credential: Credential, login: DeviceLogin
    ) -> Credential:
        """Return the credential, renewed if it is about to expire."""
        if not self._is_expiring(credential):
            return credential
        async with self._renewal_lock():
            known = await run_sync(self._file.credentials, provider)
            current = next((one for one in known if one.id == credential.id), credential)
            if not self._is_expiring(current):
                return current
            return await self._renewed(provider, current, login)

    async def _renewed(self, provider: str, old: Credential, login: DeviceLogin) -> Credential:
        form = {
            "grant_type": "refresh_token",
            "refresh_token": old.refresh_token or "",
            "client_id": login.client_id,
        }
        tokens = await self._post(login.token_url, form, OAuthTokens)
        if tokens.error:
            raise _declined_error(tokens, f"Log in again: hermes auth add {provider} --oauth")
        now = self._clock.now()
        fields: Mapping[str, object] = {
            "access_token": tokens.access_token,
            "refresh_token": tokens.refresh_token or old.refresh_token,
            "expires_at": now.timestamp() + tokens.expires_in if tokens.expires_in else None,
            "last_refresh": now.isoformat(),
            "last_status": None,
            "last_error_reset_at": None,
        }
        await run_sync(partial(self._file.update, provider, old.id, now, **fields))
        return msgspec.convert(msgspec.structs.asdict(old) | dict(fields), Credential)

    def _is_expiring(self, credential: Credential) -> bool:
        expires = credential.expires
        if expires is None or not credential.refresh_token:
            return False
        return expires - RENEW_BEFORE <= self._clock.now().timestamp()

    async def _post(self, url: str, form: Mapping[str, str], kind: type[_Response]) -> _Response:
        """Return the response, whatever its status. Raises `Unauthorized` if it is invalid."""
        body = urlencode({name: value for name, value in form.items() if value}).encode()
        client = HttpClient(connect=self._timeout, tls=default_tls)
        try:
            async with asyncio.timeout(self._timeout):
                response = await client.send("POST", url, _HEADERS, [body], idle=self._timeout)
                body = await read_all(response, _MAX_RESPONSE, self._timeout)
        except (OSError, ValueError) as error:
            raise Unreachable(f"cannot log in at {url}: {error or type(error).__name__}") from error
        finally:
            await client.aclose()
        shown = redacted_message(body[:2000].decode("utf-8", "replace"))
        no_tokens = f"{url} returned no tokens: {shown}"
        try:
            decoded = msgspec.json.decode(body, type=kind, strict=False)
        except JSON_ERRORS as error:
            raise Unauthorized(no_tokens) from error
        if isinstance(decoded, OAuthTokens) and not (decoded.access_token or decoded.error):
            raise Unauthorized(no_tokens)
        return decoded

    @asynccontextmanager
    async def _renewal_lock(self) -> AsyncGenerator[None]:
        """Allow one renewal at a time on this machine."""
        path = self._file.path.with_name("auth-renewal.lock")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end = self._clock.monotonic() + 2 * self._timeout
            while not try_lock(handle):
                if self._clock.monotonic() >= end:
                    raise Unreachable("another process is renewing the login and has not finished")
                await self._clock.sleep(0.05)
            yield
        finally:
            os.close(handle)


def _declined_error(tokens: OAuthTokens, hint: str = "Start the login again.") -> Unauthorized:
    reason = redacted_message(tokens.error_description or tokens.error)
    return Unauthorized(f"the login was declined: {reason}", hint=hint)
