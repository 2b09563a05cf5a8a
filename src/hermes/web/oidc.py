"""Log in with an OpenID Connect provider: authorization code with PKCE, state and nonce."""

import base64
import hashlib
import hmac
import secrets
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct, field

from hermes.config.values import as_list
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.web.pending_logins import PendingLogins
from hermes.web.settings import OidcSettings, is_safe_url

T = TypeVar("T")

ALGORITHMS = frozenset({
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
})  # fmt: skip
"""Signatures with a public key; never `none`, and never a shared secret."""
CLOCK_SKEW = 60
DISCOVERY_LIFETIME = 600.0
FAILURE_LIFETIME = 10.0
"""Time after which an unusable provider is asked again."""
MAX_ANSWER = 1_000_000
TIMEOUT = aiohttp.ClientTimeout(total=15)
EVERYBODY = "*"


class OidcRejected(Exception):
    """The login is refused; the text is for the log."""


class Provider(Struct, frozen=True):
    """The provider's metadata."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class Claims(Struct, frozen=True):
    """The checked claims of an ID token."""

    sub: str
    nonce: str = ""
    azp: str = ""
    aud: str | tuple[str, ...] = ()
    email: str = ""
    email_verified: object = False
    groups: object = ()

    @property
    def confirmed_email(self) -> str:
        """The verified address; some providers send the flag as text."""
        confirmed = self.email_verified is True or self.email_verified == "true"
        return self.email.lower() if confirmed else ""

    @property
    def group_names(self) -> frozenset[str]:
        found = as_list(self.groups) or [self.groups]
        return frozenset(one for one in found if isinstance(one, str))


class _Tokens(Struct, frozen=True):
    id_token: str


class _Keys(Struct, frozen=True):
    keys: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class _Header(Struct, frozen=True):
    alg: str
    kid: str = ""


class _Begun(Struct, frozen=True):
    """The stored part of a login in progress, which is not enough to finish it."""

    browser_digest: str
    redirect_uri: str


class _Secrets(Struct, frozen=True):
    """The secrets of one login, all derived from the cookie of the browser that began it."""

    browser: str

    @property
    def digest(self) -> str:
        return self._derived("digest")

    @property
    def nonce(self) -> str:
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        return self._derived("verifier")

    def _derived(self, purpose: str) -> str:
        # A cookie may contain any bytes.
        key = self.browser.encode(errors="replace")
        return hmac.digest(key, purpose.encode(), "sha256").hex()


class Redirect(Struct, frozen=True):
    """Where to send the browser, and the secret that it must return in a cookie."""

    url: str
    browser: str


class OidcClient:
    def __init__(self, settings: OidcSettings, clock: Clock, begun: PendingLogins) -> None:
        self._settings = settings
        self._clock = clock
        self._begun = begun
        self._found: tuple[float, Provider | OidcRejected] | None = None
        self._discovering = anyio.Lock()

    async def begin(self, address: str, redirect_uri: str) -> Redirect:
        """Start a login. Raises `OidcRejected` if the provider cannot be used."""
        async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
            provider = await self._provider(http)
        own = _Secrets(secrets.token_urlsafe(32))
        encoded = msgspec.json.encode(_Begun(own.digest, redirect_uri)).decode()
        challenge = hashlib.sha256(own.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._settings.scopes,
            "state": await run_sync(self._begun.add, address, encoded),
            "nonce": own.nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in provider.authorization_endpoint else "?"
        return Redirect(f"{provider.authorization_endpoint}{joint}{urlencode(query)}", own.browser)

    async def finish(self, *, state: str, code: str, browser: str) -> str:
        """Finish the login and return the user's name. Raises `OidcRejected`."""
        stored, own = await run_sync(self._begun.take, state), _Secrets(browser)
        pending = msgspec.json.decode(stored, type=_Begun) if stored is not None else None
        if pending is None or not hmac.compare_digest(pending.browser_digest, own.digest):
            raise OidcRejected("the login was not started in this browser, or took too long")
        async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
            provider = await self._provider(http)
            token = await self._exchange(http, provider, code, pending.redirect_uri, own.verifier)
            keys = await _fetch(http, provider.jwks_uri, _Keys)
        claims = check_token(token, keys.keys, provider.issuer, self._settings.client_id)
        if not hmac.compare_digest(claims.nonce.encode(), own.nonce.encode()):
            raise OidcRejected("the token belongs to another login")
        if not is_allowed(claims, self._settings):
            raise OidcRejected(f"{claims.email or claims.sub!r} is not allowed by the settings")
        return claims.confirmed_email or claims.sub

    async def _provider(self, http: aiohttp.ClientSession) -> Provider:
        """Return the provider's metadata; failures are cached briefly, too."""
        async with self._discovering:
            if (known := self._remembered()) is None:
                try:
                    known = await self._discover(http)
                except OidcRejected as error:
                    known = error
                self._found = self._clock.monotonic(), known
        if isinstance(known, OidcRejected):
            raise OidcRejected(str(known))
        return known

    def _remembered(self) -> Provider | OidcRejected | None:
        if self._found is None:
            return None
        at, known = self._found
        lifetime = DISCOVERY_LIFETIME if isinstance(known, Provider) else FAILURE_LIFETIME
        return known if self._clock.monotonic() - at < lifetime else None

    async def _discover(self, http: aiohttp.ClientSession) -> Provider:
        issuer = self._settings.issuer.rstrip("/")
        found = await _fetch(http, f"{issuer}/.well-known/openid-configuration", Provider)
        if found.issuer.rstrip("/") != issuer:
            raise OidcRejected(f"the provider calls itself {found.issuer!r}")
        for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            if not is_safe_url(url):
                raise OidcRejected(f"the provider uses an address without encryption: {url!r}")
        return found

    async def _exchange(
        self,
        http: aiohttp.ClientSession,
        provider: Provider,
        code: str,
        redirect_uri: str,
        verifier: str,
    ) -> str:
        settings = self._settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
            "client_id": settings.client_id,
        }
        headers = {"Accept": "application/json"}
        if settings.client_secret:
            if "client_secret_basic" in provider.token_endpoint_auth_methods_supported:
                pair = f"{quote(settings.client_id)}:{quote(settings.client_secret)}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            else:
                form["client_secret"] = settings.client_secret
        try:
            async with http.post(
                provider.token_endpoint, data=form, headers=headers, allow_redirects=False
            ) as response:
                return (await _decoded(response, _Tokens)).id_token
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OidcRejected(f"the provider does not answer: {error}") from error


def check_token(token: str, keys: list[dict[str, Any]], issuer: str, client: str) -> Claims:
    """Check signature, issuer, audience and times of an ID token. Raises `OidcRejected`."""
    import jwt  # noqa: PLC0415 - an extra

    try:
        header = msgspec.convert(jwt.get_unverified_header(token), _Header)
        if header.alg not in ALGORITHMS:
            raise OidcRejected(f"the token uses the signature algorithm {header.alg!r}")
        key = jwt.PyJWK(_key_of(header, keys), algorithm=header.alg)
        found = jwt.decode(
            token,
            key,
            algorithms=[header.alg],
            audience=client,
            issuer=issuer,
            leeway=CLOCK_SKEW,
            options={"require": ["exp", "iat", "sub", "aud", "iss", "nonce"]},
        )
        claims = msgspec.convert(found, Claims)
    except (jwt.PyJWTError, msgspec.ValidationError, ValueError) as error:
        raise OidcRejected(f"the token is not valid: {error}") from error
    several = not isinstance(claims.aud, str) and len(claims.aud) > 1
    if (several or claims.azp) and claims.azp != client:
        raise OidcRejected("the token was made for another client")
    return claims


def _key_of(header: _Header, keys: list[dict[str, Any]]) -> dict[str, Any]:
    usable = [key for key in keys if key.get("use", "sig") == "sig" and key.get("kty") != "oct"]
    found = [one for one in usable if one.get("kid", "") == header.kid] if header.kid else usable
    if len(found) != 1 or found[0].get("alg", header.alg) != header.alg:
        raise OidcRejected("the provider has no key for the token")
    return found[0]


def is_allowed(claims: Claims, settings: OidcSettings) -> bool:
    """Whether one of the lists names the user; addresses count only if they were confirmed."""
    return (
        claims.sub in settings.allowed_subjects
        or EVERYBODY in settings.allowed_subjects
        or claims.confirmed_email in settings.allowed_emails
        or not settings.allowed_groups.isdisjoint(claims.group_names)
    )


async def _fetch(http: aiohttp.ClientSession, url: str, kind: type[T]) -> T:
    try:
        async with http.get(url, allow_redirects=False) as response:
            return await _decoded(response, kind)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OidcRejected(f"the provider does not answer at {url}: {error}") from error


async def _decoded(response: aiohttp.ClientResponse, kind: type[T]) -> T:
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > MAX_ANSWER:
            raise OidcRejected(f"the answer from {response.url} is too long")
    if response.status != HTTPStatus.OK:
        raise OidcRejected(f"{response.url} answered {response.status}: {bytes(data[:200])!r}")
    try:
        return msgspec.json.decode(data, type=kind)
    except JSON_ERRORS as error:
        raise OidcRejected(f"{response.url} gave an unexpected answer: {error}") from error
