"""Logging in and out in a real Chromium: links, passwords, other sites, other tabs."""

from pathlib import Path

import pytest
from aiohttp.web import Request, Response

from hermes.web.context import Route
from hermes.web.passwords import hash_password
from support.chromium import Page, open_window
from support.web_page import web_harness

pytestmark = pytest.mark.slow

PASSWORD = "a long password"
READY = "document.readyState === 'complete'"


def at(path: str, search: str = "") -> str:
    return f"location.pathname === '{path}' && location.search === '{search}' && {READY}"


async def fill(page: Page, name: str, words: str) -> None:
    await page.run(f"document.querySelector('[name={name}]').select()")
    await page.type(words)


async def test_link_is_opened_where_the_login_page_is_shown(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await page.goto(f"{web.url}/usage?days=7")
        await page.wait(at("/login", "?next=/usage%3Fdays%3D7"))
        address = await page.run("location.href")
        # Only the fragment is new, so that the browser loads nothing.
        await page.run("location.hash = '#wrong'")
        await page.wait("document.querySelector('#message').textContent !== ''")
        await page.run(f"location.href = '{address}#{web.logins.new_link()}'")
        await page.wait(at("/usage", "?days=7"))
        assert await page.run("document.cookie") == "", "scripts do not see the cookie"


async def test_password_logs_in_and_logging_out_ends_all_tabs(browser: str, tmp_path: Path):
    settings = {"username": "me", "password_hash": hash_password(PASSWORD)}
    async with web_harness(tmp_path, **settings) as web, open_window(browser) as window:
        page, other = await window.page(), await window.page()
        await page.goto(f"{web.url}/learning")
        await page.wait(at("/login", "?next=/learning"))
        await fill(page, "username", "me")
        await fill(page, "password", "wrong")
        await page.press("Enter")
        await page.wait("document.querySelector('#message').textContent !== ''")
        await fill(page, "password", PASSWORD)
        await page.press("Enter")
        await page.wait(at("/learning"))

        await other.goto(f"{web.url}/learning")
        await other.wait("document.querySelector('command-palette')")
        await other.run("document.querySelector('#user-new').open = true")
        await other.run("document.querySelector('#user-new textarea').focus()")
        await other.type("The owner is called Noor.")
        await page.goto(f"{web.url}/system")
        for one in (page, other):
            await one.run("sessionStorage.setItem('hermes-forms-/learning', '[]')")
        await page.run("document.querySelector('[data-action=logout]').click()")
        await page.wait(at("/login"))
        await other.wait("location.pathname === '/login'")
        for one in (page, other):
            assert await one.run("localStorage.length + sessionStorage.length") == 0
        assert web.logins.sessions() == ()


async def test_revoked_tab_asks_for_a_login_and_keeps_its_input(browser: str, tmp_path: Path):
    async with (
        web_harness(tmp_path) as web,
        open_window(browser) as window,
        open_window(browser) as elsewhere,
    ):
        page, owner = await window.page(), await elsewhere.page()
        await web.log_in(page, "/learning")
        await page.run("document.querySelector('#user-new').open = true")
        await page.run("document.querySelector('#user-new textarea').focus()")
        await page.type("The owner is called Noor.")
        await web.log_in(owner, "/system")
        names = "[...document.querySelectorAll('#logins b')].map(e => e.textContent)"
        assert all("Chrome" in one for one in await owner.run(names))
        await owner.click("#logins [data-action=post]")
        await owner.wait("document.querySelectorAll('#logins > li').length === 1")
        await page.wait(at("/login", "?next=%2Flearning"))
        await page.run(f"location.hash = '{web.logins.new_link()}'")
        await page.wait("document.querySelector('#user-new textarea')?.value.includes('Noor')")


async def show_link(request: Request) -> Response:
    """A page of another site: the same server under another name."""
    target = f"http://localhost:{request.url.port}/usage?days=7"
    return Response(text=f"<a href='{target}'>usage</a>", content_type="text/html")


async def test_link_on_another_site_needs_no_new_login(browser: str, tmp_path: Path):
    foreign = [Route("GET", "/foreign", show_link, public=True)]
    async with web_harness(tmp_path, more=foreign) as web, open_window(browser) as window:
        page, local = await window.page(), web.url.replace("127.0.0.1", "localhost")
        await page.goto(f"{local}/login#{web.logins.new_link()}")
        await page.wait(at("/chat/new"))
        page.requests.clear()
        await page.goto(f"{web.url}/foreign")
        await page.click("a")
        await page.wait(at("/usage", "?days=7"))
        # The cookie was not sent with the request of the other site.
        assert any("/login?next=" in one for one in page.requests.values())


async def test_error_is_a_page_with_a_way_back(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await page.goto(f"{web.url}/nothing/here")
        assert await page.text("h1") == "404"
        assert await page.run("document.compatMode") == "CSS1Compat"
        assert await page.run("getComputedStyle(document.body).display") == "grid"
        await page.click("main a")
        await page.wait(at("/chat/new"))
