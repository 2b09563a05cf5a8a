"""What every page has, in a real Chromium: command palette, notifications, installation, themes."""

from pathlib import Path

import msgspec
import pytest

from hermes.schema.messages import Text, User
from hermes.session.conversation import SessionOptions
from support.chromium import Page, open_window
from support.web_page import WebHarness, web_harness

pytestmark = pytest.mark.slow

READY = "document.readyState === 'complete'"
NOTIFICATIONS = """
    window.Notification = class extends EventTarget {
        static permission = 'granted';
        constructor(title, options) {
            super();
            (window.sent ??= []).push([title, options.body]);
        }
    };
    document.hasFocus = () => false;
"""
"""A stand-in for the browser's notifications, which a headless one does not show."""


PHONE = """
    window.Notification = new Proxy(Notification, {
        construct() { throw new TypeError('Illegal constructor'); },
    });
    document.hasFocus = () => false;
"""
"""Browsers of phones have notifications, but not this way."""
SHOWN = """new Promise((done) => {
    const look = async () => {
        const worker = await navigator.serviceWorker.getRegistration('/static/');
        if ((await worker?.getNotifications())?.length) done();
        else setTimeout(look, 20);
    };
    look();
})"""
TAPPED = """(async () => {
    const [notification] = await registration.getNotifications();
    const { title, body, tag } = notification;
    const opened = new Promise((done) => clients.openWindow = async (url) => done(url));
    dispatchEvent(new NotificationEvent('notificationclick', { notification }));
    return [title, body, tag, await opened];
})()"""


HOLDS = """new Promise((done) => {
    const look = async () => {
        const { held } = await navigator.locks.query();
        if (held.some((one) => one.name === 'hermes-notify')) done();
        else setTimeout(look, 20);
    };
    look();
})"""
"""A page is the one that notifies."""


async def session_of(web: WebHarness, title: str) -> str:
    conversation = web.app.new_conversation(SessionOptions(source="web"))
    await conversation.begin_with([User("u1", (Text(title),))])
    return conversation.session.id


async def choose(page: Page, words: str) -> None:
    """Find an entry of the palette by its words."""
    await page.press("k", control=True)
    await page.wait("document.activeElement?.closest('.palette')")
    await page.type(words)
    await page.press("Enter")


async def test_palette_finds_pages_sessions_and_buttons(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        session = await session_of(web, "Plans for the garden")
        page = await window.page()
        await web.log_in(page, "/usage")
        for words, path in (("mcp serv", "/settings/mcp"), ("plans gard", f"/chat/{session}"),
                            ("logs", "/logs")):  # fmt: skip
            await choose(page, words)
            await page.wait(f"location.pathname === '{path}' && {READY}")
        await page.press("k", control=True)
        await page.wait("document.activeElement?.closest('.palette')")
        selected = "document.querySelector('.palette [aria-selected=true]').textContent"
        first = await page.run(selected)
        await page.press("ArrowDown")
        second = await page.run(selected)
        assert first != second
        described = "document.activeElement.getAttribute('aria-activedescendant')"
        shown = await page.run(f"document.getElementById({described}).textContent")
        assert shown == second
        await page.press("Escape")
        await page.wait("!document.querySelector('.palette[open]')")
        await choose(page, "light or dark")
        await page.wait("document.documentElement.dataset.theme === 'dark'")
        await page.goto(f"{web.url}/usage")
        assert await page.run("document.documentElement.dataset.theme") == "dark"


async def test_finished_work_is_notified_once_it_took_a_while(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        session = await session_of(web, "Plans for the garden")
        page, other = await window.page(), await window.page()
        for one in (page, other):
            await one.call("Page.addScriptToEvaluateOnNewDocument", source=NOTIFICATIONS)
        await web.log_in(page, "/usage")
        await page.run("localStorage.setItem('hermes-notify', 'on')")
        for one in (page, other):
            await one.goto(f"{web.url}/usage")
            await page.run(HOLDS)
        feed = web.server.context.profiles["default"].feed
        ended: dict[str, object] = {"session": session, "running": False, "seconds": 6.0}
        feed.publish("activity", {**ended, "seconds": 4.0})
        feed.publish("activity", ended)
        # A session that the menu does not list.
        feed.publish("activity", {**ended, "session": "other", "name": "An old one"})
        feed.publish("pending", {"count": 2, "label": "May I?", "session": session})
        for one in (page, other):
            await one.wait("document.querySelector('#pending').textContent === '2'")
        await page.wait("window.sent?.length === 3")
        assert await page.run("window.sent") == [
            ["Hermes has finished", "Plans for the garden"],
            ["Hermes has finished", "An old one"],
            ["Hermes has a question", "May I?"],
        ]
        assert not await other.run("window.sent"), "one of the open pages is enough"


async def test_phone_shows_a_notification_that_opens_the_session(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        session = await session_of(web, "Plans for the garden")
        await window.grant(web.url, "notifications")
        page = await window.page()
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=PHONE)
        await web.log_in(page, "/usage")
        workers = "navigator.serviceWorker.getRegistrations().then((found) => found.length)"
        assert await page.run(workers) == 0
        await page.run("document.querySelector('[data-action=notify]').click()")
        await page.wait("document.querySelector('[data-action=notify][aria-pressed=true]')")
        await page.run(HOLDS)
        feed = web.server.context.profiles["default"].feed
        feed.publish("pending", {"count": 1, "label": "May I?", "session": session})
        await page.run(SHOWN)
        worker = await window.worker()
        shown = await worker.run(TAPPED)
        address = f"{web.url}/chat/{session}"
        assert shown == ["Hermes has a question", "May I?", session, address]
        assert page.errors == []


async def test_page_can_be_installed(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        found = await page.call("Page.getAppManifest")
        assert found["errors"] == []
        assert msgspec.json.decode(found["data"])["display"] == "standalone"
        problems = (await page.call("Page.getInstallabilityErrors"))["installabilityErrors"]
        # The windows of the tests are private ones, which install nothing.
        assert [one["errorId"] for one in problems] in ([], ["in-incognito"])
