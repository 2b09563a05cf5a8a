"""Measure the API server: concurrent streamed chat completions with a mock model."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import anyio
from msgspec import Struct

from bench.api_process import KEY
from bench.processes import ENV, mock_server
from bench.report import Number

CROWDS = ((1, 200), (32, 30), (128, 8), (512, 3))
"""Number of concurrent clients, and turns of each."""
COMPARED = ((32, 30), (128, 8))
"""The same, alternating between our server and the floor server."""
PACED = {"text": "word " * 50, "chunk": 5, "first_byte": 0.5, "pace": 0.02}
"""Half a second of latency, then fifty tokens, one every 20 ms."""
MANY = 512
ROUNDS = 3
"""How often the compared loads run through each of the two servers."""
_TICKS = os.sysconf("SC_CLK_TCK")


class _Measured(Struct):
    """What the clients saw: seconds to the first token of each turn, total time, failed turns."""

    first: list[float]
    took: float = 0.0
    errors: int = 0


def measure() -> Iterator[Number]:
    for script, run in (({}, _crowds), ({"default": PACED}, _paced)):
        with tempfile.TemporaryDirectory() as folder, _mock(Path(folder), script) as url:
            home = Path(folder) / "home"
            home.mkdir()
            with serving(home, url) as (server, port):
                yield from anyio.run(run, f"http://127.0.0.1:{port}/v1", server, url)
                if run is _crowds:
                    with _floor(url, Path(folder) / "floor.db") as floor:
                        ours = f"http://127.0.0.1:{port}/v1"
                        yield from anyio.run(_compared, ours, f"http://127.0.0.1:{floor}/v1")


@contextmanager
def _mock(folder: Path, script: object) -> Generator[str]:
    path = folder / "script.json"
    path.write_text(json.dumps(script))
    with mock_server(script=path) as url:
        yield url


@contextmanager
def serving(home: Path, url: str) -> Generator[tuple[int, int]]:
    env = ENV | {
        "HERMES_HOME": str(home),
        "HOME": str(home.parent),
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "bench",
        "HERMES_INFERENCE_MODEL": "mock",
        "HERMES_INFERENCE_PROVIDER": "openai",
    }
    with _server([sys.executable, "-m", "bench.api_process"], env) as server:
        yield server


@contextmanager
def _floor(url: str, database: Path) -> Generator[int]:
    command = [sys.executable, "-m", "bench.floor_server", url, str(database)]
    with _server(command, ENV) as (_, port):
        yield port


@contextmanager
def _server(command: list[str], env: dict[str, str]) -> Generator[tuple[int, int]]:
    """The process and port of a server that prints its port and ends with its input."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield child.pid, int(child.stdout.readline())
        finally:
            child.stdin.close()


async def _compared(ours: str, floor: str) -> list[Number]:
    """Turns per second as a share of those of the floor server, as the median of rounds."""
    numbers: list[Number] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await _concurrent_turns(http, floor, 4, 10)
        for clients, turns in COMPARED:
            shares: list[float] = []
            for _ in range(ROUNDS):
                least = await _concurrent_turns(http, floor, clients, turns)
                shares.append(
                    least.took / (await _concurrent_turns(http, ours, clients, turns)).took
                )
            share = statistics.median(shares)
            name = f"API, {clients} at once / floor server"
            numbers.append(Number(name=name, value=share, unit="x", bar=0.5, sense="least"))
    return numbers


async def _crowds(url: str, server: int, mock: str) -> list[Number]:
    numbers: list[Number] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await _concurrent_turns(http, url, 4, 10)
        idle = _memory(server)
        for clients, turns in CROWDS:
            direct = await _concurrent_turns(http, mock, clients, turns)
            before = _cpu(server)
            measured = await _concurrent_turns(http, url, clients, turns)
            spent = (_cpu(server) - before) / (clients * turns)
            numbers += _numbers(clients, turns, measured, direct, spent)
        grown = (_memory(server) - idle) / 1000
    return [*numbers, Number(name="API: memory growth after 512 at once", value=grown, unit="MB")]


async def _paced(url: str, server: int, mock: str) -> list[Number]:
    """Many slow answers at once: the server must not be the bottleneck.

    Rounds through the server and directly alternate, and the median ratio counts, because the
    speed of the machine varies over time. Clients use new connections in every round. Memory is
    that of the first round.
    """
    await _clients(url, 4)
    idle = _memory(server)
    peaks: list[int] = []
    rates: list[float] = []
    errors = 0
    for _ in range(ROUNDS):
        direct = await _clients(mock, MANY)
        measured = _Measured([])
        async with anyio.create_task_group() as group:
            peaks.append(idle)
            group.start_soon(_watch, server, peaks)
            measured = await _clients(url, MANY)
            group.cancel_scope.cancel()
        rates.append(direct.took / measured.took)
        errors += measured.errors
    name = f"API, {MANY} paced streams"
    grown = (peaks[0] - idle) / MANY
    rate = statistics.median(rates)
    return [
        Number(name=f"{name} / directly", value=rate, unit="x", bar=0.8, sense="least"),
        Number(name=f"{name}: memory each", value=grown, unit="KB", bar=60),
        Number(name=f"{name}: errors", value=errors, bar=0),
    ]


async def _clients(url: str, many: int) -> _Measured:
    """One turn for each client, over new connections."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        return await _concurrent_turns(http, url, many, 1)


async def _watch(server: int, peaks: list[int]) -> None:
    """Update the last peak with the memory of the server."""
    while True:
        peaks[-1] = max(peaks[-1], _memory(server))
        await anyio.sleep(0.2)


def _numbers(
    clients: int, turns: int, measured: _Measured, direct: _Measured, spent: float
) -> Iterator[Number]:
    name = f"API, {clients} at once"
    yield Number(
        name=f"{name}: turns per second",
        value=clients * turns / measured.took,
        unit="turns/s",
        bar=400 if clients > 1 else None,
        sense="least",
    )
    added = statistics.median(measured.first) - statistics.median(direct.first)
    bars = {1: 8.0, 32: 40.0}
    yield Number(
        name=f"{name}: added time to first token",
        value=added * 1000,
        unit="ms",
        bar=bars.get(clients),
    )
    yield Number(name=f"{name}: CPU per turn", value=spent * 1000, unit="ms", bar=2.2)
    yield Number(name=f"{name}: errors", value=measured.errors, bar=0)


async def _concurrent_turns(
    http: aiohttp.ClientSession, url: str, clients: int, turns: int
) -> _Measured:
    measured = _Measured([])

    async def client(number: int) -> None:
        for turn in range(turns):
            await _ask(http, url, f"hello {clients} {number} {turn}", measured)

    begun = time.perf_counter()
    async with anyio.create_task_group() as group:
        for number in range(clients):
            group.start_soon(client, number)
    measured.took = time.perf_counter() - begun
    return measured


async def _ask(http: aiohttp.ClientSession, url: str, text: str, measured: _Measured) -> None:
    body = {
        "model": "hermes-agent",
        "stream": True,
        "messages": [{"role": "user", "content": text}],
    }
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    begun = time.perf_counter()
    first = 0.0
    rest = b""
    async with http.post(
        f"{url}/chat/completions", data=json.dumps(body).encode(), headers=headers
    ) as response:
        async for chunk in response.content.iter_any():
            rest = rest[-200:] + chunk
            if not first and b'"content":"' in chunk.replace(b'"content":""', b""):
                first = time.perf_counter() - begun
    if response.status != 200 or b"[DONE]" not in rest or not first:
        measured.errors += 1
    measured.first.append(first)


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))
