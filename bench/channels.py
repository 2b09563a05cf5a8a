"""Measure a gateway with all chat apps: at rest, and while their servers do not answer."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.gateway import bench_env, cpu_seconds, memory_of, running_gateway
from bench.processes import mock_server
from bench.report import Number
from bench.served_apps import Apps

CONNECT_SECONDS = 120.0
SETTLE_SECONDS = 5.0
IDLE_SECONDS = 30.0
NOTICE_BAR = 90.0
FOLLOWED = ("telegram", "discord", "slack", "matrix", "email", "irc", "xmpp", "mattermost")
"""Apps with a connection that has to be watched; the first five and three more."""
LOOK = 0.1


class Servers(Struct, frozen=True):
    """The process that serves the platforms, which leads the group of all servers."""

    apps: Apps
    pid: int

    def freeze(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)


def measure() -> Iterator[Number]:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock_server() as url,
        _served_apps() as servers,
    ):
        env, apps = bench_env(Path(folder) / "home", url), servers.apps
        home = Path(env["HERMES_HOME"])
        platforms = {
            name: {"enabled": True, "extra": dict(extra)} for name, extra in apps.extra.items()
        }
        (home / "config.yaml").write_bytes(msgspec.json.encode({"platforms": platforms}))
        with running_gateway({**env, **apps.variables}) as (pid, _):
            state = home / "gateway_state.json"
            _wait_connected(state, set(apps.extra))
            yield from _idle(pid, len(apps.extra))
            yield from _frozen(servers, state)


@contextmanager
def _served_apps() -> Generator[Servers]:
    command = [sys.executable, "-m", "bench.served_apps"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        if process.stdout is None or process.stdin is None:
            raise SystemExit("the servers have no pipes")
        try:
            apps = msgspec.json.decode(process.stdout.readline(), type=Apps)
            yield Servers(apps, process.pid)
        finally:
            os.killpg(process.pid, signal.SIGCONT)
            process.stdin.close()


def _idle(pid: int, number: int) -> Iterator[Number]:
    time.sleep(SETTLE_SECONDS)
    before = cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    share = (cpu_seconds(pid) - before) / IDLE_SECONDS * 100
    memory = memory_of(pid)
    label = f"gateway with {number} chat apps"
    yield Number(name=f"{label}, idle memory", value=memory, unit="MB", bar=150)
    yield Number(name=f"{label}, idle CPU", value=share, unit="%", bar=1)


def _frozen(servers: Servers, state: Path) -> Iterator[Number]:
    """All servers stop answering, but their connections stay open."""
    noticed: dict[str, float] = {}
    servers.freeze()
    begun = time.monotonic()
    while (seconds := time.monotonic() - begun) < CONNECT_SECONDS and len(noticed) < len(FOLLOWED):
        for name in FOLLOWED:
            if name not in noticed and not _is_connected(state, name):
                noticed[name] = seconds
        time.sleep(LOOK)
    servers.thaw()
    begun, back = time.monotonic(), dict[str, float]()
    while (seconds := time.monotonic() - begun) < CONNECT_SECONDS and len(back) < len(FOLLOWED):
        for name in FOLLOWED:
            if name not in back and _is_connected(state, name):
                back[name] = seconds
        time.sleep(LOOK)
    for name in FOLLOWED:
        label = f"{name}, frozen server"
        value = noticed.get(name, CONNECT_SECONDS)
        yield Number(name=f"{label} noticed after", value=value, unit="s", bar=NOTICE_BAR)
        value = back.get(name, CONNECT_SECONDS)
        yield Number(name=f"{label} connected again after", value=value, unit="s")


def _is_connected(path: Path, name: str) -> bool:
    state = msgspec.json.decode(path.read_bytes())["platforms"]
    return state.get(name, {}).get("state") == "connected"


def _wait_connected(path: Path, names: set[str]) -> None:
    until = time.monotonic() + CONNECT_SECONDS
    while missing := {name for name in names if not _is_connected(path, name)}:
        if time.monotonic() > until:
            raise SystemExit(f"not connected: {missing}")
        time.sleep(0.2)
