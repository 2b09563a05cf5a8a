"""Make, use and remove passkeys."""

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kit.text import one_line
from hermes.schema.errors import UsageError
from hermes.web.context import LOGIN, Route, WebContext, json_response, read_json
from hermes.web.logins import Passkey, Proof
from hermes.web.pages.login import open_login, refuse_login, request_host
from hermes.web.passkeys import (
    ALGORITHMS,
    NewPasskey,
    PasskeyAnswer,
    PasskeyRejected,
    Site,
    challenge_of,
    check_answer,
    check_available,
    registered_key,
)
from hermes.web.pending_logins import PendingLogins
from hermes.web.texts import text

if TYPE_CHECKING:
    from hermes.web.middleware import WebMiddleware

LOGIN_PURPOSE = ""
"""Marks a challenge for a login; one for a new passkey has the id of the owner's login."""
MAX_NAME = 60


class Removal(Struct, frozen=True):
    id: str


def routes(context: WebContext, middleware: "Callable[[], WebMiddleware]") -> list[Route]:
    handlers = _PasskeyHandlers(context, middleware)
    return [
        Route("POST", "/login/passkey/options", handlers.login_options, public=True),
        Route("POST", "/login/passkey", handlers.log_in, public=True),
        Route("POST", "/passkeys/options", handlers.new_options),
        Route("POST", "/passkeys", handlers.add),
        Route("POST", "/passkeys/remove", handlers.remove),
    ]


class _PasskeyHandlers:
    def __init__(self, context: WebContext, middleware: "Callable[[], WebMiddleware]") -> None:
        self._context = context
        self._middleware = middleware
        self._challenges = PendingLogins(context.logins.folder, "passkey", context.clock)

    async def login_options(self, request: web.Request) -> web.Response:
        host = request_host(request)
        check_available(host)
        address = self._context.client_address(request)
        challenge = await run_sync(self._challenges.add, address, LOGIN_PURPOSE)
        return json_response({"challenge": challenge, "rpId": host, "userVerification": "required"})

    async def log_in(self, request: web.Request) -> web.Response:
        # Signatures cannot be guessed, so that attempts are not limited, as with links.
        answer = await read_json(request, PasskeyAnswer)
        check_available(request_host(request))
        try:
            await self._use_challenge(answer.client_data, LOGIN_PURPOSE)
            passkey = self._find(answer.id)
            count = check_answer(passkey, answer, self._site(request))
        except PasskeyRejected as error:
            reason = f"passkey: {error}"
            return refuse_login(self._context, request, reason, text("login_failed"))
        if not self._context.logins.count_passkey(passkey, count):
            reason = "passkey: removed or used meanwhile"
            return refuse_login(self._context, request, reason, text("login_failed"))
        proof = Proof("passkey", passkey.id)
        return open_login(self._context, self._middleware(), request, proof)

    async def new_options(self, request: web.Request) -> web.Response:
        _check_may_add(request)
        host, logins = request_host(request), self._context.logins
        check_available(host)
        address, purpose = self._context.client_address(request), request[LOGIN].id
        known = [passkey.id for passkey in logins.passkeys() if passkey.host == host]
        return json_response({
            "challenge": await run_sync(self._challenges.add, address, purpose),
            "rp": {"id": host, "name": "Hermes"},
            "user": {"id": logins.owner(), "name": "Hermes", "displayName": "Hermes"},
            "pubKeyCredParams": [{"type": "public-key", "alg": number} for number in ALGORITHMS],
            "excludeCredentials": [{"type": "public-key", "id": one} for one in known],
            "authenticatorSelection": {
                "residentKey": "required", "requireResidentKey": True,
                "userVerification": "required",
            },
            "attestation": "none",
        })  # fmt: skip

    async def add(self, request: web.Request) -> web.Response:
        _check_may_add(request)
        created = await read_json(request, NewPasskey)
        check_available(request_host(request))
        try:
            await self._use_challenge(created.client_data, request[LOGIN].id)
            key = registered_key(created, self._site(request))
        except PasskeyRejected as error:
            raise UsageError(f"{text('bad_request')} ({error})") from error
        passkey = Passkey(
            id=created.id,
            host=request_host(request),
            public_key=base64.b64encode(key).decode(),
            algorithm=created.algorithm,
            name=one_line(created.name, MAX_NAME) or text("method_passkey"),
            created=self._context.clock.now(),
        )
        if not self._context.logins.add_passkey(passkey):
            raise UsageError(text("passkey_known"))
        return json_response({})

    async def remove(self, request: web.Request) -> web.Response:
        """Remove the passkey, and log out the browsers that used it."""
        body = await read_json(request, Removal)
        for login in self._context.logins.remove_passkey(body.id):
            self._context.end_login(login)
        return json_response({})

    async def _use_challenge(self, client_data: str, purpose: str) -> None:
        if await run_sync(self._challenges.take, challenge_of(client_data)) != purpose:
            raise PasskeyRejected("unknown or used challenge")

    def _find(self, identity: str) -> Passkey:
        for passkey in self._context.logins.passkeys():
            if passkey.id == identity:
                return passkey
        raise PasskeyRejected("unknown passkey")

    def _site(self, request: web.Request) -> Site:
        return Site(self._middleware().origin(request), request_host(request))


def _check_may_add(request: web.Request) -> None:
    """Reject logins through a provider: they expire, but a passkey made by one would not."""
    if request[LOGIN].proof.method == "oidc":
        raise UsageError(text("passkey_oidc"))
