"""An API server in a process of its own, to be killed: `runs_process.py HOME MODEL_URL`."""

import sys
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[2]))

from api_house import env_of, settings
from hermes.api.cut_off import settle_cut_off
from hermes.api.server import ApiServer
from hermes.app.build import Choices, open_app
from hermes.config.home import resolve_home
from hermes.kit.clock import SystemClock


async def main(home: str, url: str) -> None:
    env = env_of(Path(home), url)
    async with open_app(resolve_home(env), env, Choices(workspace=home, source="gateway")) as app:
        server = ApiServer(settings(callback_allow_private=True), SystemClock())
        await settle_cut_off(app)
        server.attach("default", app)
        async with server:
            sys.stdout.write(f"{server.port}\n")
            sys.stdout.flush()
            await anyio.sleep_forever()


anyio.run(main, *sys.argv[1:])
