"""Logins with an OpenID Connect provider: real tokens are accepted, and every forged one is not."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from hermes.config.schema import Config
from hermes.config.sections.general import Dashboard, DashboardOauth, OidcLogin
from hermes.schema.errors import ConfigError
from hermes.testing.clock import FakeClock
from hermes.web.logins import MAX_FAILURES, Logins, Proof
from hermes.web.oidc import FAILURE_LIFETIME, OidcClient, OidcRejected
from hermes.web.pending_logins import PendingLogins
from hermes.web.server import WebServer
from hermes.web.settings import OidcSettings, read_settings
from support.chromium import open_window
from support.oidc_provider import CLIENT, Claims, OidcProvider, oidc_provider, unsigned
from support.web_client import Client, web_client

Answer = dict[str, str]


@asynccontextmanager
async def provider_and_client(
    path: Path, **settings: Any
) -> AsyncGenerator[tuple[OidcProvider, Client]]:
    async with oidc_provider() as provider:
        options = {"allowed_emails": frozenset({"me@example.org"})} | settings
        oidc = OidcSettings(issuer=provider.url, client_id=CLIENT, **options)
        async with web_client(path, oidc=oidc) as one:
            yield provider, one


async def begin(provider: OidcProvider, one: Client) -> tuple[Answer, dict[str, str]]:
    """Log in at the provider; returns what it sends back, and the browser's cookie."""
    status, answer, cookies = await one.send("/login/oidc/begin", {})
    assert status == 200
    return provider.approve(answer["url"]), cookies


async def log_in(provider: OidcProvider, one: Client) -> int:
    answer, cookies = await begin(provider, one)
    status, _, made = await one.send("/login/oidc", answer, cookies=cookies)
    assert (status == 200) == (f"hermes_{one.web.server.port}" in made)
    return status


async def test_user_of_the_provider_is_logged_in(tmp_path: Path):
    async with provider_and_client(tmp_path, client_secret="s:1") as (provider, one):
        assert await log_in(provider, one) == 200
        login = one.web.logins.sessions()[-1]
        assert (login.proof.method, login.proof.who) == ("oidc", "me@example.org")
        assert "me@example.org" in (await one.get("/system"))[1]
        assert provider.requests[0]["auth"].startswith("Basic ")
        assert "client_secret" not in provider.requests[0]


def other_audience(claims: Claims) -> Claims:
    return claims | {"aud": "somebody-else"}


def foreign_party(claims: Claims) -> Claims:
    return claims | {"aud": [CLIENT, "somebody-else"], "azp": "somebody-else"}


def expired(claims: Claims) -> Claims:
    return claims | {"iat": claims["iat"] - 7200, "exp": claims["iat"] - 3600}


def endless(claims: Claims) -> Claims:
    return {name: value for name, value in claims.items() if name != "exp"}


def not_yet(claims: Claims) -> Claims:
    return claims | {"nbf": claims["iat"] + 3600}


def other_issuer(claims: Claims) -> Claims:
    return claims | {"iss": "https://evil.example"}


def other_nonce(claims: Claims) -> Claims:
    return claims | {"nonce": "x" * 43}


def no_nonce(claims: Claims) -> Claims:
    return {name: value for name, value in claims.items() if name != "nonce"}


def other_person(claims: Claims) -> Claims:
    return claims | {"email": "you@example.org"}


def unconfirmed(claims: Claims) -> Claims:
    return claims | {"email_verified": False}


@pytest.mark.parametrize(
    "change",
    [
        other_audience, foreign_party, expired, endless, not_yet, other_issuer, other_nonce,
        no_nonce, other_person, unconfirmed,
    ],
)  # fmt: skip
async def test_token_with_wrong_claims_is_refused(
    tmp_path: Path, change: Callable[[Claims], Claims]
):
    async with provider_and_client(tmp_path) as (provider, one):
        provider.change = change
        assert await log_in(provider, one) == 403
        assert len(one.web.logins.sessions()) == 1


async def test_token_with_a_wrong_signature_is_refused(tmp_path: Path):
    async with provider_and_client(tmp_path) as (provider, one):
        other = OidcProvider()
        other.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        for sign in (unsigned, other.signed, provider.signed_with_public_key, lambda _: "no token"):
            provider.sign = sign
            assert await log_in(provider, one) == 403
        provider.sign = provider.signed
        assert await log_in(provider, one) == 200


async def test_state_counts_once_and_in_the_browser_that_began(tmp_path: Path):
    async with provider_and_client(tmp_path) as (provider, one):
        answer, cookies = await begin(provider, one)
        assert (await one.send("/login/oidc", answer))[0] == 403
        # The attempt without the cookie has used it up.
        assert (await one.send("/login/oidc", answer, cookies=cookies))[0] == 403
        mine, cookies = await begin(provider, one)
        theirs, _ = await begin(provider, one)
        assert (await one.send("/login/oidc", theirs, cookies=cookies))[0] == 403
        assert (await one.send("/login/oidc", mine | {"state": "x"}, cookies=cookies))[0] == 403
        assert (await one.send("/login/oidc", mine, cookies=cookies))[0] == 200
        assert (await one.send("/login/oidc", mine, cookies=cookies))[0] == 403
        assert len(provider.requests) == 1


async def test_login_is_finished_by_another_server_of_the_home(tmp_path: Path):
    async with provider_and_client(tmp_path) as (provider, one):
        answer, cookies = await begin(provider, one)
        settings, clock = one.web.server.context.settings, one.web.server.context.clock
        async with WebServer(settings, clock, Logins(one.web.logins.folder, clock)) as other:
            other.attach("default", one.web.app)
            name = f"hermes_{other.port}"
            brought = {f"{name}_oidc": next(iter(cookies.values()))}
            url = f"http://127.0.0.1:{other.port}/login/oidc"
            async with one.http.post(url, json=answer, cookies=brought) as response:
                assert response.status == 200
                assert name in response.cookies
        assert (await one.send("/login/oidc", answer, cookies=cookies))[0] == 403
        folder = one.web.logins.folder
        stored = "".join(path.read_text() for path in folder.iterdir())
        assert answer["state"] not in stored
        assert next(iter(cookies.values())) not in stored


async def test_failed_discovery_is_remembered_for_a_short_time(tmp_path: Path):
    async with oidc_provider() as provider:
        oidc = OidcSettings(issuer=provider.url, client_id=CLIENT)
        clock = FakeClock()
        client = OidcClient(oidc, clock, PendingLogins(tmp_path, "oidc", clock))
        provider.document = {"issuer": "https://evil.example"}
        for _ in range(3):
            with pytest.raises(OidcRejected, match=r"evil\.example"):
                await client.begin("10.0.0.1", "http://localhost/auth/callback")
        assert provider.discoveries == 1
        provider.document = {}
        clock.skip(FAILURE_LIFETIME)
        for _ in range(3):
            await client.begin("10.0.0.1", "http://localhost/auth/callback")
        assert provider.discoveries == 2


async def test_code_of_another_login_is_refused(tmp_path: Path):
    async with provider_and_client(tmp_path) as (provider, one):
        mine, cookies = await begin(provider, one)
        theirs, _ = await begin(provider, one)
        mixed = {"state": mine["state"], "code": theirs["code"]}
        assert (await one.send("/login/oidc", mixed, cookies=cookies))[0] == 403


async def test_failed_logins_do_not_lock_the_owner_out(tmp_path: Path):
    """State and cookie cannot be guessed; a limit would only let strangers block the owner."""
    async with provider_and_client(tmp_path) as (provider, one):
        for _ in range(MAX_FAILURES + 1):
            assert (await one.send("/login/oidc", {"state": "x", "code": "y"}))[0] == 403
        assert await log_in(provider, one) == 200


async def test_user_of_the_provider_cannot_add_a_passkey(tmp_path: Path):
    """It would outlive the account at the provider."""
    async with provider_and_client(tmp_path) as (_, one):
        opened = one.web.logins.open_session("t", "127.0.0.1", Proof("oidc", "me@example.org"))
        one.cookie = {f"hermes_{one.web.server.port}": opened.token}
        one.csrf = opened.csrf
        status, reply = await one.post("/passkeys/options", {})
        assert status == 400
        assert "Log in with a link" in reply


async def test_members_of_a_group_and_named_subjects_are_let_in(tmp_path: Path):
    lists: dict[str, Any] = {
        "allowed_emails": frozenset(), "allowed_groups": frozenset({"admins"}),
        "allowed_subjects": frozenset({"u7"}),
    }  # fmt: skip
    async with provider_and_client(tmp_path, **lists) as (provider, one):
        assert await log_in(provider, one) == 403
        for claims, expected in (
            ({"groups": ["staff", "admins"]}, 200), ({"groups": "admins"}, 200),
            ({"groups": ["staff"]}, 403), ({"groups": {"admins": True}}, 403), ({"sub": "u7"}, 200),
        ):  # fmt: skip
            provider.change = lambda given, more=claims: given | more
            assert await log_in(provider, one) == expected


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"x": ""},
    ],
)
async def test_provider_that_names_other_servers_is_refused(
    tmp_path: Path, document: dict[str, str]
):
    async with provider_and_client(tmp_path) as (provider, one):
        provider.document = document
        expected = 200 if "x" in document else 403
        assert (await one.send("/login/oidc/begin", {}))[0] == expected


@pytest.mark.parametrize(
    "given",
    [
        OidcLogin(issuer="https://id.example", client_id="x"),
        OidcLogin(issuer="http://id.example", client_id="x", allowed_emails=("me@example.org",)),
        OidcLogin(issuer="https://id.example", allowed_emails=("me@example.org",)),
        OidcLogin(client_id="x", allowed_emails=("me@example.org",)),
        OidcLogin(
            issuer="https://id.example", client_id="x", scopes="email", allowed_subjects=("*",)
        ),
    ],
)
def test_unsafe_or_unfinished_settings_are_refused(given: OidcLogin):
    with pytest.raises(ConfigError):
        read_settings(Config(dashboard=Dashboard(oauth=DashboardOauth(self_hosted=given))))


@pytest.mark.slow
async def test_browser_logs_in_at_the_provider_and_comes_back(browser: str, tmp_path: Path):
    async with provider_and_client(tmp_path) as (_, one), open_window(browser) as window:
        # The provider is at 127.0.0.1, which is another site.
        url = f"http://localhost:{one.web.server.port}"
        page = await window.page()
        await page.goto(f"{url}/login?next=/usage")
        await page.click("#oidc")
        await page.wait("location.pathname === '/usage' && document.readyState === 'complete'")
        assert await page.run("document.cookie") == ""
        await page.run("document.querySelector('[data-action=logout]').click()")
        await page.wait("location.pathname === '/login'")
        # The code of a link that somebody else sends does not log in.
        await page.goto(f"{url}/auth/callback?code=x&state=y")
        await page.wait("document.getElementById('message').textContent.length")
        assert await page.run("location.search") == ""
