"""Readers of endless streams get a clean end when their profile or the server stops."""

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

HI = {"messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def opened(folder: Path, url: str) -> AsyncGenerator[App]:
    env = api_env(folder, url)
    choices = AppOptions(workspace=str(folder), source="gateway")
    async with open_app(resolve_home(env), env, choices) as app:
        yield app


def broken(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


async def test_session_stream_ends_before_the_store_closes(
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
            # As the gateway does it: detach the profile, then close its store.
            server.detach("default")
        with anyio.fail_after(TEST_TIMEOUT):
            # A clean end; a broken connection would raise here.
            await follow.content.read()
        assert (await one.ask("GET", "/health")).status == 200
    assert broken(caplog) == []


async def test_server_shutdown_ends_followers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with aiohttp.ClientSession() as http:
        async with api_harness(tmp_path) as harness:
            await harness.chat(HI, X_Hermes_Session_Id="s1")
            keys = {"Authorization": f"Bearer {KEY}"}
            follow = await http.get(f"{harness.url}/api/sessions/s1/events", headers=keys)
            with anyio.fail_after(TEST_TIMEOUT):
                assert (await follow.content.readline()).startswith(b"id: ")
        with anyio.fail_after(TEST_TIMEOUT):
            await follow.content.read()
    assert broken(caplog) == []
