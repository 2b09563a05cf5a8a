"""Measure the gateway: start, memory, and throughput of many sessions with a mock model."""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio

from bench.processes import ENV, HERMES, ROUNDS, mock_server, run_timed
from bench.report import Number
from hermes.app.build import App, AppOptions, open_app
from hermes.app.chat_directory import ChatDirectory
from hermes.app.gateway import build_access, build_gateway
from hermes.app.service.main import tune_gc
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.gateway.gateway import Gateway
from hermes.kit.clock import SystemClock
from hermes.ports.channel import Inbound, Outbound, Receipt
from hermes.ports.store import AppendMessage, OpenSession, Write
from hermes.schema.messages import Text, User
from hermes.schema.scope import Address
from hermes.schema.sessions import Session
from hermes.store.sqlite import open_store
from hermes.testing.channel import FakeChannel
from support.event_loop_guard import EventLoopGuard

SESSIONS = 128
TURNS = 8
KNOWN = 10_000
IDLE = 10.0
STARTS = 5

SETTINGS = "platforms: {fake: {extra: {allow_from: ['*'], roles: {guest: {turns_per_hour: null, \
turns_per_day: null}}}}}\n"


def measure() -> Iterator[Number]:
    with tempfile.TemporaryDirectory() as folder, mock_server() as url:
        env = bench_env(Path(folder) / "home", url)
        yield from _start_and_idle(env)
        yield from _known_sessions(env)
        yield from anyio.run(_throughput, bench_env(Path(folder) / "busy", url))


def bench_env(home: Path, url: str) -> dict[str, str]:
    home.mkdir()
    (home / "config.yaml").write_text(SETTINGS)
    return ENV | {
        "HERMES_HOME": str(home),
        "HOME": str(home.parent),
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "bench",
        "HERMES_INFERENCE_MODEL": "mock",
        "HERMES_INFERENCE_PROVIDER": "openai",
    }


@contextmanager
def running_gateway(env: Mapping[str, str]) -> Iterator[tuple[int, float]]:
    """Start a gateway; yield its process id and the seconds until it was ready."""
    reading, writing = os.pipe()
    begun = time.perf_counter()
    command = [HERMES, "gateway", "run", "--quiet", "--force", "--ready-fd", str(writing)]
    with subprocess.Popen(command, env=env, pass_fds=[writing], stdin=subprocess.DEVNULL) as child:
        os.close(writing)
        with os.fdopen(reading, "rb") as words:
            for line in words:
                if line.startswith(b"READY=1"):
                    break
            else:
                raise SystemExit("the gateway did not start")
            took = time.perf_counter() - begun
        try:
            yield child.pid, took
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait()


def _start_and_idle(env: dict[str, str]) -> Iterator[Number]:
    times: list[float] = []
    for _ in range(STARTS):
        with running_gateway(env) as (pid, took):
            times.append(took)
            memory = memory_of(pid)
    yield Number(name="gateway, start to ready", value=statistics.median(times), unit="s", bar=0.8)
    yield Number(name="gateway, memory when ready", value=memory, unit="MB", bar=70)
    with running_gateway(env) as (pid, _):
        time.sleep(2)
        before = cpu_seconds(pid)
        time.sleep(IDLE)
        share = (cpu_seconds(pid) - before) / IDLE * 100
        yield Number(name="gateway, idle CPU", value=share, unit="%", bar=0.5)
        command = [HERMES, "-z", "hi"]
        run_timed(command, env)
        thin = statistics.median(run_timed(command, env) for _ in range(ROUNDS))
        bare = [sys.executable, "-c", "pass"]
        floor = statistics.median(run_timed(bare, env) for _ in range(ROUNDS))
    yield Number(name="hermes -z hi through the gateway", value=thin, unit="s", bar=0.12)
    yield Number(name="the same / python -c pass", value=thin / floor, unit="x")


def memory_of(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise SystemExit("the memory usage is unknown")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _known_sessions(env: dict[str, str]) -> Iterator[Number]:
    with running_gateway(env) as (pid, _):
        before = memory_of(pid)
    anyio.run(_remember, Path(env["HERMES_HOME"]) / "hermes.db")
    with running_gateway(env) as (pid, _):
        after = memory_of(pid)
    name = f"memory with {KNOWN:,} known sessions / with none"
    yield Number(name=name, value=after / before, unit="x", bar=1.1)


async def _remember(path: Path) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    async with open_store(path, SystemClock()) as store:
        writes: list[Write] = []
        for number in range(KNOWN):
            at += timedelta(seconds=1)
            key = f"agent:main:fake:dm:k{number}"
            session = Session(id=f"known_{number}", started_at=at, key=key, source="fake")
            said = User(f"m{number}", (Text("something that was said long ago " * 10),))
            writes += [OpenSession(session), AppendMessage(session.id, "r", said, at)]
        for start in range(0, len(writes), 1000):
            await store.commit(*writes[start : start + 1000])


class CountingChannel(FakeChannel):
    """Sets an event per chat when the answer arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = {str(chat): anyio.Event() for chat in range(SESSIONS)}

    async def send(self, to: Address, post: Outbound) -> Receipt:
        receipt = await super().send(to, post)
        self.answered[to.chat].set()
        return receipt

    async def ask(self, chat: str, text: str) -> None:
        self.answered[chat] = anyio.Event()
        key = f"{chat}:{text}"
        await self.type(Inbound(key, Address(self.name, chat), f"p{chat}", (Text(text),)))
        await self.answered[chat].wait()


async def _throughput(env: dict[str, str]) -> list[Number]:
    variables = Env(env)
    choices = AppOptions(workspace=env["HOME"], source="gateway")
    async with open_app(resolve_home(variables), variables, choices) as app:
        channel = CountingChannel()
        guard = EventLoopGuard()
        async with anyio.create_task_group() as group:
            group.start_soon(bench_gateway(app, channel).run)
            await _round(channel, 1)
            tune_gc()
            guard.start()
            begun = time.perf_counter()
            await _round(channel, TURNS)
            took = time.perf_counter() - begun
            await guard.stop()
            group.cancel_scope.cancel()
    return [
        Number(
            name=f"turns per second, {SESSIONS} sessions at once",
            value=SESSIONS * TURNS / took,
            unit="turns/s",
            bar=200,
            sense="least",
        ),
        Number(
            name="longest block of the event loop",
            value=guard.longest * 1000,
            unit="ms",
            bar=50,
        ),
    ]


def bench_gateway(app: App, channel: FakeChannel) -> Gateway:
    channels = {channel.name: channel}
    directory = ChatDirectory(app.home.channel_directory, app.clock)
    return build_gateway(
        app,
        channels=channels,
        access=build_access(app, channels, multiplexed=False),
        directory=directory,
    )


async def _round(channel: CountingChannel, turns: int) -> None:
    async def person(chat: str) -> None:
        for _ in range(turns):
            await channel.ask(chat, f"hello, the {len(channel.acknowledged)}th time")

    async with anyio.create_task_group() as group:
        for chat in channel.answered:
            group.start_soon(person, chat)
