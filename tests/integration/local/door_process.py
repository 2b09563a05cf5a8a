"""A process that serves the local door of its home, and nothing else; `--uid N` lets in only N."""

import os
import signal
import sys

import anyio

from hermes.app.build import Choices, open_app
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.local.door import LocalDoor
from hermes.local.guest import Services
from hermes.local.marks import marks_of


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def serve(uid: int) -> None:
    env = Env(process_env())
    home = resolve_home(env)
    services = Services(wake=lambda: say("woken"))
    choices = Choices(workspace="/", source="gateway", looks_back=True, logs=True)
    async with (
        open_app(home, env, choices) as app,
        anyio.create_task_group() as group,
    ):
        await group.start(LocalDoor(home.path, app, marks_of(env), services, uid).run)
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            say("ready")
            async for _ in signals:
                group.cancel_scope.cancel()
                return


if __name__ == "__main__":
    wanted = int(sys.argv[2]) if sys.argv[1:2] == ["--uid"] else os.getuid()
    anyio.run(serve, wanted)
