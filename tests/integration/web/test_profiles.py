"""Profiles that another dashboard serves, or none."""

from pathlib import Path

import pytest

from hermes.config.profiles import create_profile
from hermes.kit.clock import SystemClock
from hermes.web.server_state import open_server
from hermes.web.settings import WebSettings
from support.chromium import open_window
from support.web_page import web_harness

pytestmark = pytest.mark.slow


async def test_profile_of_another_dashboard_is_listed_with_the_way_to_it(
    browser: str, tmp_path: Path
):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page, "/usage")
        assert not await page.run("document.querySelector('[data-action=profile]')")
        work = create_profile(tmp_path, "work")
        await page.goto(f"{web.url}/usage")
        await page.run("""(() => {
            const list = document.querySelector('[data-action=profile]');
            list.value = [...list.options].find((one) => one.text.startsWith('work ')).value;
            list.dispatchEvent(new Event('change', { bubbles: true }));
        })()""")
        await page.wait("location.hash === '#profile-work' && document.querySelector(':target')")
        assert await page.text("#profile-work p + p code") == "hermes -p work dashboard --port 0"
        assert "in this dashboard" in await page.text("#profile-default")
        assert await page.run("!document.querySelector('#profile-default p + p')")
        async with open_server(WebSettings(port=0), work, SystemClock(), by="dashboard") as other:
            await page.goto(f"{web.url}/settings/profiles")
            link = await page.run("document.querySelector('#profile-work a').href")
            assert link == f"{other.address}/login"
            assert not await page.run("document.querySelector('[data-url$=\"work/delete\"]')")
        assert page.errors == []
