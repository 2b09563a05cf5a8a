"""Signal a gateway process while it starts: from one of its channels, or earlier.

usage: python -m support.interrupted_start <folder> <signal> <turns>...

For each number of turns, a home is created in the folder and its gateway run. The signal is sent
that many event loop turns after its channel is opened; with `never` the channel is not opened
completely, and with `deaf` the signal comes before anything listens. Prints each exit code.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from hermes.app.channels import open_process_resources
from hermes.app.service.lifecycle import Ending, RunOptions
from hermes.app.service.main import GatewayService, run_gateway
from hermes.app.service.notifier import Notifier
from hermes.app.service.process import hold_gateway
from hermes.app.service.restart_guard import StartAdvice
from hermes.config.env import Env
from hermes.config.home import Home, profile_home
from hermes.kit.clock import SystemClock
from hermes.kit.errors import HermesError
from hermes.ports.channel import Channel, ChannelCapabilities, ChannelDeps, ChannelManifest
from hermes.testing.channel import FakeChannel

CHANNEL_MANIFEST = ChannelManifest(
    name="slow",
    factory="support.interrupted_start:open_channel",
    caps=ChannelCapabilities(max_text=100),
)
API = "api_server: {enabled: true, extra: {port: 0, key: 0123456789abcdef0123456789abcdef}}"


@asynccontextmanager
async def open_channel(parts: ChannelDeps) -> AsyncGenerator[Channel]:
    turns, number = parts.settings.extra["turns"], int(str(parts.settings.extra["signal"]))
    if turns == "never":
        os.kill(os.getpid(), number)
        await anyio.sleep_forever()
    _kill_after_turns(int(str(turns)), number)
    yield FakeChannel(parts.name)


def _kill_after_turns(turns: int, number: int) -> None:
    if turns:
        asyncio.get_running_loop().call_soon(_kill_after_turns, turns - 1, number)
    else:
        os.kill(os.getpid(), number)


def _write_home(folder: Path, number: int, turns: str) -> Home:
    home = profile_home(folder / turns, "default")
    home.path.mkdir(parents=True)
    extra = f"{{turns: {turns}, signal: {number}}}"
    text = f"platforms:\n  {API}\n  slow: {{enabled: true, extra: {extra}}}\n"
    home.config.write_text(text)
    return home


def _run(home: Home, env: Env) -> int:
    try:
        return run_gateway(home, env, RunOptions(), {CHANNEL_MANIFEST.name: CHANNEL_MANIFEST})
    except HermesError as error:
        sys.stderr.write(f"{error.sentence}\n")
        return error.exit_code


def _run_with_early_signal(home: Home, env: Env, number: int) -> int:
    """Like `run_gateway`, with a signal in the middle."""

    async def serve() -> Ending:
        async with open_process_resources() as shared:
            return await service.run([home], shared, StartAdvice(), multiplexed=False)

    with hold_gateway(home, [home], RunOptions(), SystemClock()) as gateway_process:
        service = GatewayService(gateway_process, env, Notifier(env), {}, lambda snapshot: None)
        os.kill(os.getpid(), number)
        return gateway_process.end(anyio.run(serve), service.signal, service.failure)


def main(folder: str, number: str, moments: Sequence[str]) -> None:
    env = Env({"PATH": os.defpath, "HOME": folder, "HERMES_HOME": folder})
    early_signal = signal.Signals[number]
    for moment in moments:
        home = _write_home(Path(folder), early_signal, moment)
        code = (
            _run_with_early_signal(home, env, early_signal) if moment == "deaf" else _run(home, env)
        )
        sys.stdout.write(f"{moment} {code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
