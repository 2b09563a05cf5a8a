"""Every page in a real Chromium: axe-core in both themes and sizes, and the keyboard alone."""

from asyncio import gather
from pathlib import Path

import pytest
from axe_playwright_python import __file__ as axe_package

from hermes.web.settings import OidcSettings
from support.chromium import Page, open_window
from support.web_content import CANARY, CONFIG, conversation_script, converse, fill_pages
from support.web_page import web_harness

pytestmark = pytest.mark.slow

AXE = (Path(axe_package).parent / "axe.min.js").read_text()
RULES = {
    "light": "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']",
    # Only the colours differ between the themes.
    "dark": "['color-contrast']",
}
DESKTOP, PHONE = (1280, 800), (390, 844)
MORE_TABS = 20
"""Places where the focus may be besides the controls, such as a box that scrolls."""
OPEN_ALL = "document.querySelectorAll('main details').forEach(e => e.open = true)"
OIDC = OidcSettings(issuer="https://id.example", client_id="hermes")
CONTROLS = """(() => {
    const all = document.querySelectorAll(
        "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']");
    return [...all].filter(one => one.checkVisibility({visibilityProperty: true})
        && !one.disabled && one.tabIndex >= 0);
})()"""
WATCH = f"""(() => {{
    document.activeElement?.blur();
    // Where focus may be shown: the control, the form around it, and a shape within it.
    const look = (one) => [one, one.closest('form'), one.querySelector('rect')].map((part) => {{
        const style = part ? getComputedStyle(part) : {{}};
        const outline = style.outlineStyle === 'none' ? '' : style.outline;
        return [outline, style.borderColor, style.boxShadow, style.stroke, style.strokeWidth];
    }}).join();
    const before = new Map({CONTROLS}.map((one) => [one, look(one)]));
    const reached = new Set(), unseen = new Set();
    document.addEventListener('focusin', ({{target}}) => {{
        // After the last control, Tab leaves the page, and comes back with the next key.
        if (!document.hasFocus()) return;
        reached.add(target);
        if (!before.has(target)) return;
        const seen = target.checkVisibility({{opacityProperty: true, visibilityProperty: true}});
        if (!seen || look(target) === before.get(target)) unseen.add(target);
    }});
    const words = (some) => [...some].map((one) => one.outerHTML.slice(0, 150));
    window.missed = () => words([...before.keys()].filter((one) =>
        one.isConnected && one.checkVisibility() && !reached.has(one)));
    window.unseen = () => words(unseen);
    return before.size;
}})()"""
"""Counts the controls, and notes from then on which ones get the focus and do not show it."""


async def violations(page: Page, part: str = "document") -> list[str]:
    """What axe-core finds in the light and the dark theme, at the present size."""
    found: list[str] = []
    for theme, rules in RULES.items():
        await page.run(f"document.documentElement.dataset.theme = '{theme}'")
        options = f"{{runOnly: {rules}, resultTypes: ['violations']}}"
        bad = await page.run(f"axe.run({part}, {options}).then(r => r.violations)")
        found += [f"{one['id']}: {theme} {one['nodes'][0]['html'][:200]}" for one in bad]
    return found


async def test_pages_have_no_violations_and_run_no_script(browser: str, tmp_path: Path):
    serving = web_harness(
        tmp_path, conversation_script(), config=CONFIG,
        username="me", password_hash="unknown", oidc=OIDC,
    )  # fmt: skip
    async with serving as web, open_window(browser) as window:
        page = await window.page()
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=CANARY)
        await web.log_in(page)
        found: list[str] = []
        for path in [*await converse(web, page), *await fill_pages(web), "/login"]:
            await page.goto(f"{web.url}{path}")
            await page.run(OPEN_ALL)
            await page.run(AXE)
            found += [f"{path} {one}" for one in await violations(page)]
            await page.resize(*PHONE)
            # The frame, which is the same on all pages, is looked at with the drawer open.
            found += [f"{path} on a phone {one}" for one in await violations(page, "'main'")]
            # A page that is too wide makes a phone zoom out, and so `innerWidth` larger.
            wide = await page.run("document.documentElement.scrollWidth > 390")
            assert not wide, f"{path} scrolls sideways on a phone"
            await page.resize(*DESKTOP)
            assert not await page.run("window.ran"), path
            assert page.errors == []
        assert found == []


async def test_dialogs_palette_and_drawer_have_no_violations(browser: str, tmp_path: Path):
    async with web_harness(tmp_path, config=CONFIG) as web, open_window(browser) as window:
        page, found = await window.page(), list[str]()
        await fill_pages(web)
        await web.log_in(page, "/sessions")
        await page.run(AXE)
        for size in (DESKTOP, PHONE):
            await page.resize(*size)
            for action in ("rename", "delete"):
                await page.click(f"[data-action={action}]")
                await page.wait("document.activeElement.closest('dialog')")
                found += await violations(page)
                await page.press("Escape")
                await page.wait("!document.querySelector('dialog[open]')")
            await page.press("k", control=True)
            await page.wait("document.querySelectorAll('.palette [role=option]').length > 10")
            found += await violations(page)
            await page.press("Escape")
            await page.wait("!document.querySelector('dialog[open]')")
        await page.click("[data-action=menu]")
        await page.wait("document.querySelector('.drawer nav').checkVisibility()")
        found += await violations(page)
        assert found == []


async def test_violations_are_found(browser: str):
    async with open_window(browser) as window:
        page = await window.page()
        small = "<button style='width: 9px; height: 9px; padding: 0; margin: 0; float: left'"
        bad = (
            "<html lang=en><title>x</title><main><p style='color: #999; background: #888'>words</p>"
            f"{small} aria-label=a></button>{small} aria-label=b></button><img src=data:,>"
        )
        await page.goto(f"data:text/html,{bad.replace('#', '%23')}")
        await page.run(AXE)
        rules = {one.partition(":")[0] for one in await violations(page)}
        assert rules == {"color-contrast", "target-size", "image-alt"}


async def test_every_control_is_reached_by_tab_and_shows_the_focus(browser: str, tmp_path: Path):
    serving = web_harness(tmp_path, conversation_script(), config=CONFIG, username="me")
    async with serving as web, open_window(browser) as window:
        page = await window.page()
        # A colour that fades in is not yet there when the focus is.
        still = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        await page.call("Emulation.setEmulatedMedia", features=still)
        await web.log_in(page)
        for path in [*await converse(web, page), *await fill_pages(web), "/login"]:
            await page.goto(f"{web.url}{path}")
            await page.run(OPEN_ALL)
            count = int(await page.run(WATCH))
            assert count > 0
            # From where the focus is to the end, and around; keys that wait in a row are faster.
            await gather(*(page.press("Tab") for _ in range(count)))
            for _ in range(count + MORE_TABS):
                if not await page.run("missed().length"):
                    break
                await page.press("Tab")
            assert await page.run("missed()") == [], path
            assert await page.run("unseen()") == [], path
