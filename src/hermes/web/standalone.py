"""Serve the page without a gateway, until Ctrl+C."""

import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

import anyio

from hermes.app.build import open_app
from hermes.app.options import AppOptions
from hermes.config.env import Env, profile_env
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.kit.clock import SystemClock
from hermes.web.server_state import open_server
from hermes.web.settings import read_settings

DRAIN = 20.0
"""Seconds that running turns get at shutdown."""


async def serve_page(
    home: Home, env: Env, *, host: str, port: int | None, ready: Callable[[str], None]
) -> None:
    """Open the profile and serve it; `ready` is called with the address.

    Raises `ConfigError` for wrong settings, or if the port cannot be used.
    """
    config = load_config(home, profile_env(home.dotenv, env)).config
    settings = read_settings(config, host=host, port=port)
    options = AppOptions(workspace=str(home.workspace), source="web", reviews_turns=True, logs=True)
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(open_app(home, env, options))
        home.workspace.mkdir(mode=0o700, exist_ok=True)
        opening = open_server(settings, home, clock, by="dashboard")
        server = await stack.enter_async_context(opening)
        server.attach(home.profile, app)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            ready(server.address)
            async for _ in signals:
                break
        server.drain()
        with anyio.move_on_after(DRAIN):
            await server.wait_idle()
