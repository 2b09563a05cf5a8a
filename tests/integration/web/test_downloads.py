"""Files of the agent that a person downloads in a real Chromium."""

from pathlib import Path

import pytest

from hermes.testing.fake_openai.script import Call, Reply, Script
from support.chromium import open_window
from support.polling import wait_until
from support.web_page import IDLE, say, web_harness

pytestmark = pytest.mark.slow


def _content(path: Path) -> str:
    """What is in a file that a browser may be about to write."""
    return path.read_text() if path.exists() else ""


async def test_file_that_the_agent_wrote_is_downloaded(browser: str, tmp_path: Path):
    written = {"path": "notes/tea.txt", "content": "Boil water.\n"}
    script = Script(replies=[Reply(calls=[Call("write_file", written)]), Reply("Done.")])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page, folder = await window.page(), tmp_path / "downloads"
        await page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        await web.log_in(page)
        await say(page, "write it down")
        await page.wait(f"document.body.textContent.includes('Done.') && {IDLE}")
        await page.click(".tool summary")
        await page.click("[data-action=download]")
        await wait_until(lambda: _content(folder / "tea.txt") == "Boil water.\n")
        (tmp_path / ".env").write_text("SOME_KEY=secret\n")
        session = await page.run("location.pathname")
        for path in (tmp_path / ".env", "missing.txt"):
            status = await page.run(f"fetch('{session}/file?path={path}').then(r => r.status)")
            assert status == 404


async def test_file_that_a_command_made_is_downloaded(browser: str, tmp_path: Path):
    sent = {"target": "origin", "files": ["tea.txt"]}
    # Names are relative to the folder of the shell.
    command = "mkdir cups && cd cups && echo green > tea.txt"
    calls = [Call("terminal", {"command": command}), Call("send_message", sent)]
    script = Script(replies=[*(Reply(calls=[one]) for one in calls), Reply("Done.")])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page, folder = await window.page(), tmp_path / "downloads"
        await page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        await web.log_in(page)
        await say(page, "send me the file")
        await page.wait(f"document.body.textContent.includes('Done.') && {IDLE}")
        button = "[data-action=download][data-path$='/cups/tea.txt']"
        await page.run(f"document.querySelector(\"{button}\").closest('details').open = true")
        await page.click(button)
        await wait_until(lambda: _content(folder / "tea.txt") == "green\n")
