"""An OpenID Connect provider that signs real tokens, and can be set to issue wrong ones."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CLIENT = "hermes"
Claims = dict[str, Any]


class OidcProvider:
    """`change` edits the claims before they are signed; `sign` replaces the signing."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.url = ""
        self.claims: Claims = {"sub": "u1", "email": "Me@example.org", "email_verified": True}
        self.change: Callable[[Claims], Claims] = lambda claims: claims
        self.sign: Callable[[Claims], str] = self.signed
        self.document: dict[str, str] = {}
        self.requests: list[dict[str, str]] = []
        self.discoveries = 0
        self._codes: dict[str, dict[str, str]] = {}

    def signed(self, claims: Claims, algorithm: str = "RS256") -> str:
        return jwt.encode(claims, self.key, algorithm, {"kid": "k1"})

    def signed_with_public_key(self, claims: Claims) -> str:
        """A token with `alg: HS256` whose shared secret is the public key, which everybody has."""
        public = self.key.public_key()
        secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        text = _encoded({"alg": "HS256", "kid": "k1"}, claims)
        return f"{text}.{_base64(hmac.digest(secret, text.encode(), 'sha256'))}"

    def public_jwk(self) -> dict[str, Any]:
        found = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return found | {"kid": "k1", "use": "sig"}

    def approve(self, url: str) -> dict[str, str]:
        """What a person who logs in at this address is sent back with."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        code = f"code-{len(self._codes)}"
        self._codes[code] = query
        return {"code": code, "state": query["state"]}

    async def discovery(self, _: web.Request) -> web.Response:
        self.discoveries += 1
        return web.json_response({
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        } | self.document)  # fmt: skip

    async def authorize(self, request: web.Request) -> web.Response:
        back = urlencode(self.approve(str(request.url)))
        raise web.HTTPFound(f"{request.query['redirect_uri']}?{back}")

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append(form | {"auth": request.headers.get("Authorization", "")})
        login = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            login is None
            or login["code_challenge"] != _base64(digest)
            or login["redirect_uri"] != form["redirect_uri"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300}
        claims |= {"nonce": login["nonce"]} | self.claims
        return web.json_response({"id_token": self.sign(self.change(claims))})

    async def keys(self, _: web.Request) -> web.Response:
        return web.json_response({"keys": [self.public_jwk()]})


def unsigned(claims: Claims) -> str:
    """A token with `alg: none`."""
    return _encoded({"alg": "none", "kid": "k1"}, claims) + "."


def _encoded(*parts: Claims) -> str:
    return ".".join(_base64(json.dumps(one).encode()) for one in parts)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@asynccontextmanager
async def oidc_provider() -> AsyncGenerator[OidcProvider]:
    provider = OidcProvider()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.discovery)
    app.router.add_get("/authorize", provider.authorize)
    app.router.add_post("/token", provider.token)
    app.router.add_get("/keys", provider.keys)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield provider
    finally:
        await runner.cleanup()
