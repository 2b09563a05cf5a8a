"""An API server in its own process, to be killed: `runs_process.py HOME MODEL_URL`."""

import sys
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[2]))

from hermes.api.followup_service import settle_interrupted_turns
from hermes.api.server import ApiServer
from hermes.app.build import AppOptions, open_app
from hermes.config.home import resolve_home
from hermes.kit.clock import SystemClock
from support.api_server import api_env, api_settings


async def main(home: str, url: str) -> None:
    env = api_env(Path(home), url)
    async with open_app(
        resolve_home(env), env, AppOptions(workspace=home, source="gateway")
    ) as app:
        server = ApiServer(api_settings(callback_allow_private=True), SystemClock())
        await settle_interrupted_turns(app)
        server.attach("default", app)
        async with server:
            sys.stdout.write(f"{server.port}\n")
            sys.stdout.flush()
            await anyio.sleep_forever()


anyio.run(main, *sys.argv[1:])
