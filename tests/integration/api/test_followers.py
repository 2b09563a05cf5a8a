"""Readers of endless streams when their profile or the server goes: an end, and no noise."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
import pytest

from hermes.api.server import ApiServer
from hermes.app.build import App, AppOptions, open_app
from hermes.config.home import resolve_home
from hermes.kit.clock import SystemClock
from hermes.testing.fake_openai.server import serve
from support.api_server import KEY, ApiHarness, api_env, api_harness, api_settings
from support.cli_process import TEST_TIMEOUT

pytestmark = pytest.mark.anyio

HI = {"messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def opened(folder: Path, url: str) -> AsyncGenerator[App]:
    env = api_env(folder, url)
    choices = AppOptions(workspace=str(folder), source="gateway")
    async with open_app(resolve_home(env), env, choices) as app:
        yield app


def broken(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


async def test_who_follows_a_session_is_told_the_end_before_its_store_closes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serve() as mock,
        ApiServer(api_settings(), SystemClock()) as server,
        aiohttp.ClientSession() as http,
    ):
        async with opened(tmp_path, mock.url) as app:
            server.attach("default", app)
            one = ApiHarness(server, app, mock, http)
            await one.chat(HI, X_Hermes_Session_Id="s1")
            keys = {"Authorization": f"Bearer {KEY}"}
            follow = await http.get(f"{one.url}/api/sessions/s1/events", headers=keys)
            with anyio.fail_after(TEST_TIMEOUT):
                assert (await follow.content.readline()).startswith(b"id: ")
            # As the daemon does it: the profile leaves, and then its store is closed.
            server.detach("default")
        with anyio.fail_after(TEST_TIMEOUT):
            # An end as it should be: a link that was cut would be an error here.
            await follow.content.read()
        assert (await one.ask("GET", "/health")).status == 200
    assert broken(caplog) == []


async def test_the_end_of_the_server_ends_who_follows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with aiohttp.ClientSession() as http:
        async with api_harness(tmp_path) as one:
            await one.chat(HI, X_Hermes_Session_Id="s1")
            keys = {"Authorization": f"Bearer {KEY}"}
            follow = await http.get(f"{one.url}/api/sessions/s1/events", headers=keys)
            with anyio.fail_after(TEST_TIMEOUT):
                assert (await follow.content.readline()).startswith(b"id: ")
        with anyio.fail_after(TEST_TIMEOUT):
            await follow.content.read()
    assert broken(caplog) == []
