"""Attacks in messages, judged in a real Chromium by what they do."""

from contextlib import suppress
from html import escape
from pathlib import Path

import pytest
from aiohttp.web import Request, Response

from hermes.testing.fake_openai.script import Reply, Script
from hermes.web.context import Route
from hermes.web.html import join
from hermes.web.markdown import LiveMarkdown
from support.chromium import BrowserError, Page, Window, open_window
from support.web_content import CANARY, store_messages
from support.web_page import IDLE, say, web_harness
from support.xss import CALL, attacks, scripts, without_sanitiser

pytestmark = pytest.mark.slow

BAD = "script, iframe, object, embed, form, style, link, meta, base, svg, input, hermes-chat"
WATCH = f"""(() => {{
    window.patches = window.bad = 0;
    new MutationObserver(() => {{
        if (document.querySelector('#log .md.live > *')) window.patches += 1;
        if (document.querySelector('#log :is({BAD})')) window.bad += 1;
    }}).observe(document.querySelector('#log'), {{childList: true, subtree: true}});
}})()"""
ACT = """Array.from(frames).forEach((frame) => {
    for (const one of frame.document.querySelectorAll('a, button, input')) {
        // Links open in another tab, which is a protection, too.
        one.removeAttribute('target');
        one.focus();
        one.click();
    }
})"""
"""Do what a person may do with what an attack shows."""


async def page_with_canary(window: Window) -> Page:
    """A page that notes in `ran` whether a script has run, and loads nothing from elsewhere."""
    page = await window.page()
    await page.call("Network.setBlockedURLs", urls=["*evil.example*"])
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=CANARY)
    return page


async def test_attacks_in_messages_do_not_run(browser: str, tmp_path: Path):
    found = attacks()
    assert len(found) > 200
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        session = await store_messages(web, found)
        page = await page_with_canary(window)
        await web.log_in(page, f"/chat/{session}")
        seen = set[str]()
        while len(seen) < len(found):
            seen |= set(await page.run("[...document.querySelectorAll('.user')].map(e => e.id)"))
            await page.run("document.querySelectorAll('#log a').forEach(a => a.focus())")
            await assert_log_is_clean(page)
            first = "document.querySelector('#log .entry').id"
            before = await page.run(first)
            if await page.run("!document.querySelector('[data-action=earlier]').hidden"):
                # Near the end, later messages would be loaded again and take their place.
                await page.run("document.querySelector('.scroll').scrollTo({top: 0})")
                await page.run("document.querySelector('[data-action=earlier]').click()")
                await page.wait(f"{first} !== '{before}'")


async def test_attacks_in_an_answer_that_is_being_written_do_not_run(browser: str, tmp_path: Path):
    script = Script(replies=[Reply("\n\n".join([*attacks(), "The end."]), pace=0.005, chunk=50)])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page = await page_with_canary(window)
        await web.log_in(page)
        await page.run(WATCH)
        await say(page, "attack")
        await page.wait(f"{IDLE} && document.querySelector('#log').textContent.includes('The end')")
        assert await page.run("window.patches") > 1
        assert await page.run("window.bad") == 0
        await page.run("document.querySelectorAll('#log a').forEach(a => a.focus())")
        await assert_log_is_clean(page)


async def assert_log_is_clean(page: Page) -> None:
    assert not await page.run("window.ran")
    assert await page.run(f"[...document.querySelectorAll('#log :is({BAD})')].length") == 0
    handlers = (
        "[...document.querySelectorAll('#log *')].flatMap(e => [...e.attributes])"
        ".filter(a => a.name.startsWith('on') || /^\\s*javascript:/i.test(a.value)).length"
    )
    assert await page.run(handlers) == 0
    assert await page.run("document.querySelectorAll('#log [data-action=answer]').length") == 0
    assert [one for one in page.requests.values() if "evil" in one] == []


async def test_attacks_run_without_sanitiser_and_policy(browser: str, tmp_path: Path):
    unsafe = [Route("GET", "/unsafe", show_unsafe)]
    async with web_harness(tmp_path, more=unsafe) as web, open_window(browser) as window:
        page = await page_with_canary(window)
        await web.log_in(page)
        await page.goto(f"{web.url}/unsafe")
        await page.run(ACT)
        with suppress(BrowserError):
            await page.wait(f"window.numbers.size === {len(scripts())}")
        ran = set(await page.run("[...window.numbers]"))
        assert [one for number, one in enumerate(scripts()) if number not in ran] == []
        assert [one for one in page.requests.values() if "evil" in one] != []


async def show_unsafe(_: Request) -> Response:
    """Attacks, each in a frame, as our renderer shows them without its allow-list.

    `numbers` has those that ran.
    """
    frames: list[str] = []
    with without_sanitiser():
        for number, one in enumerate(scripts()):
            text = LiveMarkdown()
            text.add(one)
            canary = f"<script>canary = () => parent.numbers.add({number})</script>"
            frames.append(f'<iframe srcdoc="{escape(canary + join(text.blocks()))}"></iframe>')
    policy = {"Content-Security-Policy": "default-src * 'unsafe-inline' data: blob:"}
    page = f"<script>numbers = new Set()</script>{''.join(frames)}"
    return Response(text=page, content_type="text/html", headers=policy)


async def test_streamed_attack_runs_without_sanitiser_and_policy(browser: str, tmp_path: Path):
    attack = f"Only in this test: <img src=x onerror={CALL}> The end."
    script = Script(replies=[Reply(attack), Reply(attack)])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page = await page_with_canary(window)
        with without_sanitiser():
            for is_bypassed in (False, True):
                await page.call("Page.setBypassCSP", enabled=is_bypassed)
                await web.log_in(page)
                await say(page, "attack")
                await page.wait(f"{IDLE} && document.querySelector('#log img')")
                if is_bypassed:
                    await page.wait("window.ran")
                else:
                    assert not await page.run("window.ran"), "the policy stops it, too"
