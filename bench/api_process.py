"""Run only the API server: print its port, and exit when standard input is closed."""

import os
import sys

import anyio
import anyio.to_thread

from hermes.api.server import ApiServer
from hermes.api.settings import ApiSettings
from hermes.app.build import AppOptions, open_app
from hermes.app.service.main import tune_gc
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.kit.clock import SystemClock

KEY = "bench-0123456789abcdef"


async def main() -> None:
    env = Env(dict(os.environ))
    choices = AppOptions(workspace=env["HOME"], source="gateway")
    async with open_app(resolve_home(env), env, choices) as app:
        server = ApiServer(ApiSettings(key=KEY, port=0, max_turns=0), SystemClock())
        server.attach(app.home.profile, app)
        async with server:
            tune_gc()
            sys.stdout.write(f"{server.port}\n")
            sys.stdout.flush()
            await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    anyio.run(main)
