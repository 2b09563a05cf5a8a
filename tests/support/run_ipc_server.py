"""Serve only the socket of a home, in its own process; `--uid N` accepts only user N."""

import os
import signal
import sys

import anyio

from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.ipc.protocol import env_fingerprint
from hermes.ipc.server import IpcServer


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def serve(uid: int) -> None:
    env = Env(process_env())
    home = resolve_home(env)
    choices = AppOptions(workspace="/", source="gateway", reviews_turns=True, logs=True)
    async with (
        open_app(home, env, choices) as app,
        anyio.create_task_group() as group,
    ):
        server = IpcServer(home.path, app, env_fingerprint(env), lambda: say("woken"), uid)
        await group.start(server.run)
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            say("ready")
            async for _ in signals:
                group.cancel_scope.cancel()
                return


if __name__ == "__main__":
    uid_allowed = int(sys.argv[2]) if sys.argv[1:2] == ["--uid"] else os.getuid()
    anyio.run(serve, uid_allowed)
