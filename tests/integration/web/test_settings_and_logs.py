"""The settings form and the logs in a real Chromium."""

from pathlib import Path

import pytest

from support.chromium import Page, open_window
from support.web_page import web_harness

pytestmark = pytest.mark.slow

CONFIG = """\
agent: {max_turns: 7}
quick_commands: {tea: {type: exec, command: echo tea}}
platforms: {telegram: {enabled: true, token: the-token-in-the-file}}
"""


def field(key: str) -> str:
    return f"document.getElementById('{key}')"


async def save(page: Page, key: str, value: str) -> None:
    """Replace the value of a setting and send its form with Enter."""
    await page.wait(f"{field(key)}?.select() ?? {field(key)}")
    await page.type(value)
    await page.press("Enter")


async def test_changed_settings_are_shown_first_and_wrong_values_are_refused(
    browser: str, tmp_path: Path
):
    async with web_harness(tmp_path, config=CONFIG) as web, open_window(browser) as window:
        page, file = await window.page(), tmp_path / "config.yaml"
        await web.log_in(page, "/settings")
        keys = await page.run("[...document.querySelectorAll('#list label > code')]"
                              ".map(e => e.textContent)")  # fmt: skip
        assert keys == ["agent.max_turns", "quick_commands.tea.command",
                        "platforms.telegram.enabled", "platforms.telegram.token"]  # fmt: skip
        assert "steps a turn may take" in await page.text("#list label")
        await save(page, "agent.max_turns", "many")
        await page.wait("document.querySelector('#toasts .error')?.textContent.includes('number')")
        assert "max_turns: 7" in file.read_text()
        turns = field("agent.max_turns")
        assert await page.run(f"{turns}.getAttribute('aria-invalid')") == "true"
        reason = f"document.getElementById({turns}.getAttribute('aria-describedby'))"
        assert "number" in await page.run(f"{reason}.textContent")
        await save(page, "agent.max_turns", "9")
        await page.wait("document.querySelector('#toasts :not(.error)')")
        await page.wait("!document.querySelector('.problem, [aria-invalid]')")
        assert "max_turns: 9" in file.read_text()


async def test_secret_can_be_replaced_and_deleted_and_is_not_shown(browser: str, tmp_path: Path):
    async with web_harness(tmp_path, config=CONFIG) as web, open_window(browser) as window:
        page, file = await window.page(), tmp_path / "config.yaml"
        await web.log_in(page, "/settings")
        token = field("platforms.telegram.token")
        assert await page.run(f"[{token}.type, {token}.value]") == ["password", ""]
        assert "the-token" not in await page.run("document.documentElement.outerHTML")
        # Its buttons are in one row, as those of the other settings.
        tops = f"[...{token}.form.querySelectorAll('button')].map(e => e.getBoundingClientRect())"
        saves, deletes = await page.run(f"{tops}.map(e => e.top + e.height / 2)")
        assert abs(saves - deletes) < 4
        await save(page, "platforms.telegram.token", "another-token")
        await page.wait("document.querySelector('#toasts :not(.error)')")
        assert "token: another-token" in file.read_text()
        await page.run(f"{token}.form.querySelector('.danger').click()")
        await page.wait("document.activeElement?.value === 'ok'")
        await page.press("Enter")
        await page.wait(f"!{token}")
        assert "another-token" not in file.read_text()


async def test_table_gets_another_name_on_the_page(browser: str, tmp_path: Path):
    async with web_harness(tmp_path, config=CONFIG) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await page.goto(f"{web.url}/settings?section=quick_commands")
        await page.run("document.querySelector('details:has(form)').open = true")
        await page.run("document.querySelector('details [name=name]').select()")
        await page.type("quick_commands.coffee.command")
        await page.run("document.querySelector('details [name=value]').focus()")
        await page.type("echo coffee")
        await page.press("Enter")
        await page.wait(field("quick_commands.coffee.command"))
        assert "coffee" in (tmp_path / "config.yaml").read_text()


def record(level: str, words: str) -> str:
    return f"2026-01-01 10:00:00,000 {level} hermes.tests: {words}\n"


async def test_logs_are_filtered_and_followed(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        file = web.app.home.logs / "agent.log"
        file.parent.mkdir(exist_ok=True)
        file.write_text(record("INFO", "green tea") + record("ERROR", "no <b>tea</b>"))
        page = await window.page()
        await web.log_in(page, "/logs")
        lines = "[...document.querySelectorAll('.lines > span')].map(e => e.textContent)"
        newest, oldest = await page.run(lines)
        assert "no <b>tea</b>" in newest
        assert "green tea" in oldest
        await page.run("document.querySelector('[name=q]').focus()")
        await page.type("green")
        await page.wait(f"{lines}.length === 1 && location.search === '?q=green&log=agent'")
        await page.run("document.querySelector('[name=q]').select()")
        await page.press("Delete")
        await page.wait(f"{lines}.length === 2")
        await page.run("document.querySelector('[name=level]').value = 'error'")
        await page.run("document.querySelector('[name=level]').dispatchEvent("
                       "new Event('input', {bubbles: true}))")  # fmt: skip
        await page.wait(f"{lines}.length === 1")
        await page.click("[data-follow]")
        with file.open("a") as log:
            log.write(record("INFO", "black tea") + record("ERROR", "no milk"))
        await page.wait(f"{lines}[0].includes('no milk')")
        assert len(await page.run(lines)) == 2
        assert page.errors == []
