"""Measure start-up and one-shot runs as whole processes."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.report import Number

ENV = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""As for users: compiled modules are cached."""
HERMES = str(Path(sys.executable).parent / "hermes")
ROUNDS = 15
PEAKS = 5
_STARTER = """
import os, sys
nothing = os.open(os.devnull, os.O_RDWR)
streams = [(os.POSIX_SPAWN_DUP2, nothing, number) for number in (0, 1, 2)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=streams)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measure() -> Iterator[Number]:
    yield from _start_up()
    yield from _one_shot()


def _start_up() -> Iterator[Number]:
    """Alternate the commands, so that other load affects all of them equally."""
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "version": [HERMES, "--version"],
        "help": [HERMES, "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            times[name].append(run_timed(command, ENV))
    bare = statistics.median(times["bare"])
    for name, bar in (("version", 2.0), ("help", 2.5)):
        ratio = statistics.median(times[name]) / bare
        yield Number(name=f"hermes --{name} / python -c pass", value=ratio, unit="x", bar=bar)


def _one_shot() -> Iterator[Number]:
    with tempfile.TemporaryDirectory() as folder, mock_server(Path(folder) / "log") as url:
        env = ENV | {"HERMES_HOME": f"{folder}/home", "HOME": folder}
        env |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "bench", "HERMES_INFERENCE_MODEL": "mock"}
        env["HERMES_INFERENCE_PROVIDER"] = "openai"
        command = [HERMES, "-z", "hi"]
        run_timed(command, env)
        imports = [sys.executable, "-c", "import asyncio, ssl"]
        pairs = [(run_timed(command, env), run_timed(imports, env)) for _ in range(ROUNDS)]
        seconds, bare = map(statistics.median, zip(*pairs, strict=True))
        yield Number(name="hermes -z hi, mock model", value=seconds, unit="s", bar=0.45)
        ratio = Number(
            name="hermes -z hi / import asyncio, ssl", value=seconds / bare, unit="x", bar=4
        )
        yield ratio
        peak = max(run_measured(command, env)[1] for _ in range(PEAKS)) / 1024
        yield Number(name="hermes -z hi, peak memory", value=peak, unit="MB", bar=60)
        size = len(json.loads((Path(folder) / "log").read_text().splitlines()[-1])["body"].encode())
        yield Number(name="request size of hermes -z hi", value=size / 1000, unit="KB", bar=16)


def run_measured(command: Sequence[str], env: dict[str, str]) -> tuple[float, int]:
    """Return the processor time in seconds and the peak memory in KB.

    ru_maxrss includes the size of the parent process, so a small process starts the command.
    """
    starter = [sys.executable, "-I", "-S", "-c", _STARTER, *command]
    printed = subprocess.run(starter, env=env, stdout=subprocess.PIPE, check=True).stdout.split()
    return float(printed[0]), int(printed[1])


def run_timed(command: Sequence[str], env: dict[str, str]) -> float:
    """Return the seconds from start to exit."""
    start = time.perf_counter()
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE)
    assert child.stderr is not None
    errors = child.stderr.read()
    child.wait()
    took = time.perf_counter() - start
    child.stderr.close()
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {errors.decode()}")
    return took


@contextmanager
def mock_server(log: Path | None = None, script: Path | None = None) -> Iterator[str]:
    """A mock model in a process of its own; yields its URL and writes its requests to `log`."""
    command = [sys.executable, "-m", "hermes.testing.fake_openai", "--port", "0"]
    command += ["--log", str(log)] if log else []
    command += ["--script", str(script)] if script else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
