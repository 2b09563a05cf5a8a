"""What holds for every route of the page: logins, tokens, profiles, errors, followed lists."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from hermes.app.build import open_app
from hermes.app.options import AppOptions
from hermes.config.home import profile_home
from hermes.config.profiles import create_profile
from hermes.learning.memory import MemoryOperation, MemoryRequest, MemoryTarget
from hermes.ports.ledger import Author
from hermes.schema.messages import Text, User
from hermes.session.conversation import SessionOptions
from hermes.web.context import Route, WebContext
from hermes.web.html import Html, h
from hermes.web.live_lists import send_changed
from hermes.web.pages import all_routes
from hermes.web.texts import text
from support.web_client import PAGE, Client, web_client

PUBLIC = {
    "GET /login", "GET /login/state", "GET /auth/callback", "POST /login/link",
    "POST /login/password", "POST /login/passkey/options", "POST /login/passkey",
    "POST /login/oidc/begin", "POST /login/oidc",
}  # fmt: skip


def routes_of(one: Client) -> list[Route]:
    return all_routes(one.web.server.context, lambda: pytest.fail("not asked for"))


def address(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "x", path)


async def test_every_page_needs_a_login_and_every_change_a_token(tmp_path: Path):
    async with web_client(tmp_path) as one:
        routes = routes_of(one)
        assert {f"{route.method} {route.path}" for route in routes if route.public} == PUBLIC
        assert len(routes) > 60
        for route in [one for one in routes if not one.public]:
            for path in (address(route.path), f"/p/default{address(route.path)}"):
                url = one.web.url + path
                async with one.http.request(route.method, url, json={}) as answer:
                    assert answer.status == 401, path
                if route.method == "GET":
                    continue
                async with one.http.request(route.method, url, json={}, cookies=one.cookie) as sent:
                    assert sent.status == 403, path
                    assert text("bad_csrf") in await sent.text(), path


async def fail(_: web.Request) -> web.Response:
    raise web.HTTPUnsupportedMediaType


async def test_any_error_status_is_answered_with_our_headers(tmp_path: Path):
    async with web_client(tmp_path, more=[Route("GET", "/fails", fail)]) as one:
        for headers in ({}, PAGE):
            url = f"{one.web.url}/fails"
            async with one.http.get(url, cookies=one.cookie, headers=headers) as answer:
                assert answer.status == 415
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                assert "The request is not valid." in await answer.text()


async def remember(one: Client, words: str) -> None:
    operation = MemoryOperation(action="add", content=words)
    target = MemoryTarget.MEMORY
    request = MemoryRequest(target=target, operations=(operation,), by=Author.PERSON)
    await one.web.app.learning.memory_store.change(request)


async def test_profile_shows_nothing_of_another_one(tmp_path: Path):
    async with web_client(tmp_path) as one:
        create_profile(tmp_path, "work")
        options = AppOptions(workspace=str(tmp_path / "workspace"), source="web")
        home, env = profile_home(tmp_path, "work"), one.web.app.env
        async with open_app(home, env, options) as app:
            one.web.server.attach("work", app)
            conversation = one.web.app.new_conversation(SessionOptions(source="web"))
            await conversation.begin_with([User("u1", (Text("private words"),))])
            await remember(one, "private words")
            session = conversation.session.id
            for path in ("/sessions", "/learning", f"/chat/{session}"):
                assert "private words" in (await one.get(path))[1], path
                assert "private words" not in (await one.get(f"/p/work{path}"))[1], path
            assert (await one.get(f"/p/work/chat/{session}"))[0] == 404
            body = {"text": "hi", "session": session}
            assert (await one.post("/p/work/chat/send", body))[0] in {400, 404}
            assert (await one.get("/p/nobody/sessions"))[0] == 404
            one.web.server.detach("work")


class FollowedList:
    """A list of one text; `looked` is set when the server has rendered it."""

    def __init__(self) -> None:
        self.text = "first"
        self.looked = asyncio.Event()
        self.context: WebContext | None = None

    async def send(self, request: web.Request) -> web.StreamResponse:
        assert self.context is not None
        return await send_changed(self.context, request, self._render)

    async def _render(self) -> Html:
        self.looked.set()
        return h("p", self.text)

    async def ask(self, one: Client, tag: str = "") -> tuple[int, str, str]:
        """Status, tag and text of the answer."""
        self.looked.clear()
        url, headers = f"{one.web.url}/followed", {"If-None-Match": tag} if tag else {}
        async with one.http.get(url, cookies=one.cookie, headers=headers) as answer:
            return answer.status, answer.headers.get("ETag", ""), await answer.text()


@asynccontextmanager
async def followed_list(folder: Path) -> AsyncGenerator[tuple[Client, FollowedList]]:
    followed = FollowedList()
    route = Route("GET", "/followed", followed.send)
    async with web_client(folder, more=[route]) as one:
        followed.context = one.web.server.context
        yield one, followed


async def test_followed_list_is_answered_when_it_changes(tmp_path: Path):
    async with followed_list(tmp_path) as (one, followed):
        status, tag, content = await followed.ask(one)
        assert (status, content) == (200, "<p>first</p>")
        held = asyncio.create_task(followed.ask(one, tag))
        await asyncio.sleep(0)
        await followed.looked.wait()
        followed.text = "second"
        status, new, content = await held
        assert (status, content) == (200, "<p>second</p>")
        assert new != tag


async def test_followed_list_ends_with_the_login(tmp_path: Path):
    async with followed_list(tmp_path) as (one, followed):
        login = one.web.logins.find(one.token)
        assert login is not None
        _, tag, _ = await followed.ask(one)
        held = asyncio.create_task(followed.ask(one, tag))
        await asyncio.sleep(0)
        await followed.looked.wait()
        one.web.server.context.end_login(login.id)
        assert (await held)[0] == 401
