"""Open pages after a restart or an upgrade of the gateway: they go on, and keep what was typed."""

from pathlib import Path

import pytest

from hermes.learning.memory import MemoryOperation, MemoryRequest, MemoryTarget
from hermes.ports.ledger import Author
from hermes.schema.messages import Text, User
from hermes.session.conversation import SessionOptions
from support.chromium import Page, open_window
from support.web_page import WebHarness, web_harness

pytestmark = pytest.mark.slow

WATCH = """new MutationObserver(() => {
    window.wasOffline ||= document.body.classList.contains('offline');
}).observe(document.body, {attributes: true})"""
ONLINE_AGAIN = "window.wasOffline && !document.body.classList.contains('offline')"
NEW = "document.querySelector('#user-new textarea')"
ENTRY = "document.querySelector('#memory-0 textarea')"


async def remember(web: WebHarness, words: str) -> None:
    operation = MemoryOperation(action="add", content=words)
    target = MemoryTarget.MEMORY
    request = MemoryRequest(target=target, operations=(operation,), by=Author.AGENT)
    await web.app.learning.memory_store.change(request)


async def edit_entry(page: Page, words: str) -> None:
    await page.run("document.querySelector('#memory-0 details').open = true")
    await page.run(f"{ENTRY}.select()")
    await page.type(words)


async def load_with(page: Page, web: WebHarness, version: str) -> None:
    """The page has noted another version than the server's, and connects again."""
    await page.run(f"document.body.dataset.version = '{version}'; window.isOld = true; {WATCH}")
    web.drop_streams()


async def test_restarted_gateway_is_found_again_and_a_draft_stays(browser: str, tmp_path: Path):
    async with open_window(browser) as window, web_harness(tmp_path) as web:
        page = await window.page()
        await web.log_in(page)
        await page.wait("document.activeElement?.id === 'message'")
        await page.type("half a thought")
        await page.run(f"window.isOld = true; {WATCH}")
        await web.restart()
        await page.wait(ONLINE_AGAIN)
        await page.type(", and the rest")
        assert await page.run("window.isOld"), "the page itself has not changed"
        await page.press("Enter")
        await page.wait("document.querySelector('.entry.assistant') && "
                        "!document.querySelector('[data-running]')")  # fmt: skip
        assert await page.text(".entry.user .text") == "half a thought, and the rest"


@pytest.mark.parametrize("is_new", [True, False])
async def test_each_tab_of_a_chat_keeps_its_own_input(browser: str, tmp_path: Path, is_new: bool):
    async with open_window(browser) as window, web_harness(tmp_path) as web:
        page, other = await window.page(), await window.page()
        await web.log_in(page)
        path = "/chat/new"
        if not is_new:
            conversation = web.app.new_conversation(SessionOptions(source="web"))
            await conversation.begin_with([User("u1", (Text("hi"),))])
            path = f"/chat/{conversation.session.id}"
        typed = {page: "tea in the first tab", other: "cake in the second tab"}
        for one, words in typed.items():
            await one.goto(f"{web.url}{path}")
            await one.wait("document.activeElement?.id === 'message'")
            await one.run("document.querySelector('#message').select()")
            await one.type(words)
        for one, words in typed.items():
            await one.goto(f"{web.url}{path}")
            await one.wait("document.activeElement?.id === 'message'")
            assert await one.run("document.querySelector('#message').value") == words


async def test_changed_content_is_reloaded_and_input_is_kept(browser: str, tmp_path: Path):
    async with open_window(browser) as window, web_harness(tmp_path) as web:
        await remember(web, "Tea at four.")
        page = await window.page()
        await web.log_in(page, "/learning")
        await edit_entry(page, "Tea at five.")
        await page.run(
            "document.querySelector('#user-new textarea').closest('details').open = true"
        )
        await page.run("document.querySelector('#user-new textarea').focus()")
        await page.type("The owner is called Noor.")
        await page.run(WATCH)
        await web.restart()
        await page.wait(ONLINE_AGAIN)
        await page.run("document.querySelector('#user-new [type=submit]').click()")
        await page.wait("document.querySelector('#user-0')")
        # Sending one form keeps the text in the other, and leaves none of its own.
        assert await page.run(f"{ENTRY}.value") == "Tea at five."
        assert await page.run(f"{NEW}.value") == ""
        await page.run("document.querySelector('#memory-0 [type=submit]').click()")
        await page.wait("document.querySelector('#memory-0 .words').textContent.includes('five')")


async def test_page_of_an_earlier_release_reloads_and_keeps_its_forms(browser: str, tmp_path: Path):
    async with open_window(browser) as window, web_harness(tmp_path) as web:
        await remember(web, "Tea at four.")
        page = await window.page()
        await web.log_in(page, "/learning")
        await edit_entry(page, "Tea at five.")
        await load_with(page, web, "earlier")
        await page.wait("!window.isOld && document.readyState === 'complete'")
        await page.wait(f"{ENTRY}?.value === 'Tea at five.'")
        assert await page.run(f"{ENTRY}.checkVisibility() && document.activeElement === {ENTRY}")
        assert await page.run("sessionStorage.length") == 0


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/settings/channels/telegram", "secret"),
        ("/settings/mcp", "secrets"),
        ("/settings?section=platforms", "value"),
    ],
)
async def test_page_with_a_typed_secret_reloads_once_it_is_gone(
    browser: str, tmp_path: Path, path: str, name: str
):
    async with open_window(browser) as window, web_harness(tmp_path) as web:
        page = await window.page()
        await web.log_in(page)
        await page.goto(f"{web.url}{path}")
        secret = f"document.querySelector('form[data-url] [name={name}]')"
        await page.run(f"(({secret}).closest('details') ?? {{}}).open = true; {secret}.focus()")
        await page.type("4242:secret")
        await load_with(page, web, "earlier")
        await page.wait(ONLINE_AGAIN)
        assert await page.run("window.isOld")
        assert "4242" not in await page.run("JSON.stringify([sessionStorage, localStorage])")
        await page.run(f"{secret}.value = ''")
        await page.wait("!window.isOld && document.readyState === 'complete'")
