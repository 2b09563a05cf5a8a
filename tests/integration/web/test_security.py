"""What the server of the page refuses: no login, other hosts and origins, missing tokens."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from hermes.web.context import MAX_STREAMS
from hermes.web.logins import MAX_FAILURES
from hermes.web.passwords import hash_password
from support.certificate import write_certificate
from support.web_client import PAGE, Client, web_client

PASSWORD = "a long password"


async def test_only_the_login_page_is_public(tmp_path: Path):
    async with web_client(tmp_path) as one:
        url = one.web.url
        async with one.http.get(f"{url}/sessions", headers=PAGE, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "/login?next=/sessions")
        for path in ("/events", "/chat/commands", "/chat/files/" + "a" * 64):
            async with one.http.get(url + path) as response:
                assert response.status == 401
        async with one.http.post(f"{url}/chat/send", json={"text": "hi"}) as response:
            assert response.status == 401
        assert one.web.model.requests == []


async def test_every_answer_has_a_strict_policy(tmp_path: Path):
    async with web_client(tmp_path) as one:
        for path in ("/login", "/chat/new", "/static/app.js", "/nothing"):
            async with one.http.get(one.web.url + path, cookies=one.cookie) as response:
                policy = response.headers["Content-Security-Policy"]
                assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
                assert "unsafe" not in policy
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["X-Frame-Options"] == "DENY"


async def test_login_by_link_sets_a_cookie_that_scripts_cannot_read(tmp_path: Path):
    async with web_client(tmp_path) as one:
        body = {"token": one.web.logins.new_link()}
        async with one.http.post(f"{one.web.url}/login/link", json=body) as response:
            cookie = response.headers["Set-Cookie"]
            assert response.status == 200
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        async with one.http.post(f"{one.web.url}/login/link", json=body) as response:
            assert response.status == 403


async def test_login_by_password_is_limited(tmp_path: Path):
    settings = {"username": "me", "password_hash": hash_password(PASSWORD)}
    async with web_client(tmp_path, **settings) as one:
        url = f"{one.web.url}/login/password"

        async def log_in(username: str, password: str) -> int:
            body = {"username": username, "password": password}
            async with one.http.post(url, json=body) as response:
                return response.status

        assert await log_in("me", PASSWORD) == 200
        assert await log_in("you", PASSWORD) == 403
        for _ in range(9):
            assert await log_in("me", "guess") == 403
        assert await log_in("me", PASSWORD) == 429


@pytest.mark.parametrize(
    "headers",
    [
        {"X_CSRF_Token": ""},
        {"X_CSRF_Token": "0" * 64},
        {"Origin": "https://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Host": "evil.example"},
    ],
)
async def test_forged_request_is_refused(tmp_path: Path, headers: dict[str, str]):
    async with web_client(tmp_path) as one:
        status, _ = await one.post("/chat/send", {"text": "hi"}, **headers)
        assert status == 403
        assert one.web.model.requests == []


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
async def test_another_site_cannot_log_a_browser_in(tmp_path: Path, headers: dict[str, str]):
    async with web_client(tmp_path) as one:
        body, url = {"token": one.web.logins.new_link()}, f"{one.web.url}/login/link"
        async with one.http.post(url, json=body, headers=headers) as response:
            assert response.status == 403
            assert "Set-Cookie" not in response.headers
        # A form of another site can send only other kinds of bodies.
        sent = f'{{"token": "{body["token"]}", "x": "="}}'
        async with one.http.post(url, data=sent, headers={"Content-Type": "text/plain"}) as answer:
            assert answer.status == 400
        kind = {"Content-Type": "application/json"}
        async with one.http.post(url, data=b'{"token": "\xff"}', headers=kind) as answer:
            assert answer.status == 400, "invalid UTF-8"
        async with one.http.post(url, json=body) as response:
            assert response.status == 200, "the link was not used up"


async def test_images_of_a_host_need_the_consent_of_each_browser(tmp_path: Path):
    async with web_client(tmp_path) as one:
        other = Client(one.web, one.http)
        for host in ("*", "a.example; script-src *", "a.example 'unsafe-inline'", "", "a" * 300):
            assert (await one.post("/images", {"host": host}))[0] == 400, host
        assert (await one.post("/images", {"host": "pics.example"}))[0] == 200
        for browser, expected in ((one, "img-src 'self' https://pics.example;"),
                                  (other, "img-src 'self';")):  # fmt: skip
            url = f"{one.web.url}/usage"
            async with one.http.get(url, cookies=browser.cookie) as response:
                assert expected in response.headers["Content-Security-Policy"]


async def test_only_known_hosts_are_answered(tmp_path: Path):
    settings = {"allowed_hosts": frozenset({"box.example"}), "trusted_proxies": ("127.0.0.1",)}
    async with web_client(tmp_path, **settings) as one:
        for host, expected in (("localhost", 200), ("box.example:9119", 403), ("evil.example", 403),
                               ("127.0.0.1.evil.example", 403)):  # fmt: skip
            assert (await one.get("/login", Host=host))[0] == expected
        # Under a public name, the connection comes from a proxy, which has to encrypt its own.
        encrypted = {"Host": "box.example", "X-Forwarded-Proto": "https"}
        assert (await one.get("/login", **encrypted))[0] == 200


async def test_logged_out_and_revoked_browsers_lose_access(tmp_path: Path):
    async with web_client(tmp_path) as one:
        other = Client(one.web, one.http)
        login = one.web.logins.find(other.token)
        assert login is not None
        async with one.http.get(f"{one.web.url}/events", cookies=other.cookie) as stream:
            await stream.content.readline()
            # Below the path of a profile, as the page sends it.
            assert (await one.post("/p/default/logins/revoke", {"id": login.id}))[0] == 200
            await stream.content.read()
        assert (await other.get("/events", Accept="text/event-stream"))[0] == 401
        assert (await one.post("/logout", {}))[0] == 200
        assert (await one.post("/chat/send", {"text": "hi"}))[0] == 401


async def test_upload_is_limited_and_served_without_effect(tmp_path: Path):
    async with web_client(tmp_path, max_upload=1000) as one:
        url = f"{one.web.url}/chat/files?name=a.html"
        headers = {"X-CSRF-Token": one.csrf, "Content-Type": "text/html"}
        for size, expected in ((1001, 413), (900, 200)):
            sent = one.http.post(url, data=b"<" * size, headers=headers, cookies=one.cookie)
            async with sent as response:
                assert response.status == expected
                answer = await response.json()
        file = f"{one.web.url}/chat/files/{answer['digest']}"
        async with one.http.get(file, cookies=one.cookie) as response:
            assert response.content_type == "application/octet-stream"
            assert response.headers["Content-Disposition"] == "attachment"
            assert "sandbox" in response.headers["Content-Security-Policy"]


async def test_secrets_are_not_sent_to_the_page(tmp_path: Path):
    oauth = "oauth: {self_hosted: {client_secret: the-client-secret}}"
    config = f"dashboard: {{basic_auth: {{username: me, password_hash: scrypt$secret}}, {oauth}}}\n"
    async with web_client(tmp_path, config=config) as one:
        for path in ("/settings?section=dashboard", "/settings?section=.env", "/settings?q=key"):
            status, page = await one.get(path)
            assert status == 200
            assert "scrypt$secret" not in page
            assert "the-client-secret" not in page
            assert "sk-none" not in page
        assert "password_hash" in (await one.get("/settings?section=dashboard"))[1]
        name = "dashboard.basic_auth.password_hash"
        for value in ("", "[redacted]"):
            assert (await one.post("/settings", {"name": name, "value": value}))[0] == 400
        assert "scrypt$secret" in (tmp_path / "config.yaml").read_text()
        assert (await one.post("/settings", {"name": name, "delete": True}))[0] == 200
        assert "scrypt$secret" not in (tmp_path / "config.yaml").read_text()
        body = {"name": "agent.max_turns", "value": "7"}
        assert (await one.post("/settings", body))[0] == 200
        assert "max_turns: 7" in (tmp_path / "config.yaml").read_text()
        status, message = await one.post("/settings", {"name": "agent.max_turns", "value": "x"})
        assert (status, "max_turns" in message) == (400, True)


async def test_event_streams_are_limited_per_login(tmp_path: Path):
    async with web_client(tmp_path) as one, AsyncExitStack() as stack:
        url = f"{one.web.url}/events"
        for _ in range(MAX_STREAMS):
            opening = one.http.get(url, cookies=one.cookie)
            stream = await stack.enter_async_context(opening)
            await stream.content.readline()
        async with one.http.get(url, cookies=one.cookie) as response:
            assert response.status == 429
        other = Client(one.web, one.http)
        async with one.http.get(url, cookies=other.cookie) as response:
            assert response.status == 200


async def test_proxy_names_the_address_that_is_limited(tmp_path: Path):
    settings = {"username": "me", "password_hash": "unknown", "trusted_proxies": ("127.0.0.1",)}
    async with web_client(tmp_path, **settings) as one:
        url, body = f"{one.web.url}/login/password", {"username": "me", "password": "guess"}

        async def log_in(forwarded: str) -> int:
            headers = {"X-Forwarded-For": forwarded}
            async with one.http.post(url, json=body, headers=headers) as response:
                return response.status

        # What the client itself wrote comes first, and does not count.
        for number in range(MAX_FAILURES):
            assert await log_in(f"10.0.0.{number}, 192.0.2.1") == 403
        assert await log_in("10.0.0.99, 192.0.2.1") == 429
        assert await log_in("192.0.2.2") == 403


async def test_with_tls_cookies_are_secure_and_plain_http_is_not_answered(tmp_path: Path):
    certificate, key = write_certificate(tmp_path)
    settings = {"tls_cert": str(certificate), "tls_key": str(key)}
    async with web_client(tmp_path, **settings) as one:
        with pytest.raises(aiohttp.ClientError):
            await one.get("/login")
        trust = ssl.create_default_context(cafile=certificate)
        body = {"token": one.web.logins.new_link()}
        url = f"https://localhost:{one.web.server.port}/login/link"
        async with one.http.post(url, json=body, ssl=trust) as response:
            assert response.status == 200
            cookie = response.headers["Set-Cookie"]
            assert "max-age" in response.headers["Strict-Transport-Security"]
        assert cookie.startswith("__Host-hermes=")
        assert all(
            one in cookie for one in ("; Secure", "; HttpOnly", "; Path=/", "SameSite=Strict")
        )


async def test_only_a_trusted_proxy_can_mark_a_connection_as_encrypted(tmp_path: Path):
    settings = {"allowed_hosts": frozenset({"box.example"})}
    claim = {"Host": "box.example", "X-Forwarded-Proto": "https"}
    for proxies, expected in (((), 403), (("10.0.0.1",), 403), (("127.0.0.1",), 200)):
        async with web_client(tmp_path, trusted_proxies=proxies, **settings) as one:
            assert (await one.get("/login", **claim))[0] == expected


async def test_two_hosts_in_a_request_are_refused(tmp_path: Path):
    async with web_client(tmp_path) as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.web.server.port)
        writer.write(b"GET /login HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        await writer.drain()
        assert (await reader.readline()).split()[1] in {b"400", b"403"}
        writer.close()


async def test_upload_without_a_length_is_limited_too(tmp_path: Path):
    async with web_client(tmp_path, max_upload=1000) as one:

        async def chunks() -> AsyncGenerator[bytes]:
            for _ in range(100):
                yield b"<" * 100

        url = f"{one.web.url}/chat/files?name=a.txt"
        headers = {"X-CSRF-Token": one.csrf}
        async with one.http.post(url, data=chunks(), headers=headers, cookies=one.cookie) as answer:
            assert answer.status == 413
