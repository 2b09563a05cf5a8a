"""A browser of the web page, as far as HTTP is concerned."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from support.web_page import WebHarness, web_harness

PAGE = {"Accept": "text/html"}


class Client:
    """It is logged in; `send` sends exactly what it is given."""

    def __init__(self, web: WebHarness, http: aiohttp.ClientSession) -> None:
        self.web = web
        self.http = http
        opened = web.logins.open_session("test", "127.0.0.1")
        self.token, self.csrf = opened.token, opened.csrf
        self.cookie = {f"hermes_{web.server.port}": self.token}

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        url, more = f"{self.web.url}{path}", {**PAGE, **headers}
        async with self.http.get(url, headers=more, cookies=self.cookie) as response:
            return response.status, await response.text()

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, str]:
        sent = {"X-CSRF-Token": self.csrf}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"{self.web.url}{path}"
        async with self.http.post(url, json=body, headers=sent, cookies=self.cookie) as response:
            return response.status, await response.text()

    async def send(
        self, path: str, body: object, *, cookies: dict[str, str] | None = None, **headers: str
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Status, answer and new cookies; as a browser that is not logged in."""
        url = f"{self.web.url}{path}"
        async with self.http.post(url, json=body, headers=headers, cookies=cookies) as response:
            made = {name: one.value for name, one in response.cookies.items()}
            return response.status, await response.json(), made


@asynccontextmanager
async def web_client(path: Path, **settings: object) -> AsyncGenerator[Client]:
    jar = aiohttp.DummyCookieJar()
    async with (
        web_harness(path, **settings) as web,
        aiohttp.ClientSession(cookie_jar=jar) as http,
    ):
        yield Client(web, http)
