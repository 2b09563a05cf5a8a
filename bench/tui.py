"""Measure the terminal UI in a real terminal: first paint, and key latency during a stream."""

import os
import statistics
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pexpect

from bench.processes import ENV, HERMES, mock_server
from bench.report import Number
from hermes.testing.fake_openai.script import Reply, Script

ROUNDS = 7
KEYS = 80
PAUSE = 0.05
"""Seconds between two keys, as of a fast typist."""
PACE = 1 / 200
"""Seconds between two tokens of the stream."""
LETTERS = [chr(0x400 + number) for number in range(2 * KEYS)]
"""Each is typed once and appears nowhere else on the screen."""
READY = "sk anything"
WORDS = "word " * 6_000
PATIENCE = 60


def measure() -> Iterator[Number]:
    script = Script(default=Reply(WORDS, chunk=5, pace=PACE), models=("mock",))
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "script.json"
        given.write_bytes(msgspec.json.encode(script))
        with mock_server(Path(folder) / "log", given) as url:
            env = ENV | {"HERMES_HOME": f"{folder}/home", "HOME": folder, "TERM": "xterm-256color"}
            env |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "bench", "LANG": "C.UTF-8"}
            env |= {"HERMES_INFERENCE_MODEL": "mock", "HERMES_INFERENCE_PROVIDER": "openai"}
            yield from _measured(env)


def _measured(env: dict[str, str]) -> Iterator[Number]:
    paints: list[tuple[float, float]] = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        with _screen(env) as child:
            paints.append((time.perf_counter() - began, _worked(child.pid or 0)))
    # The first start compiles modules and creates the home.
    paint, worked = (statistics.median(times) for times in zip(*paints[1:], strict=True))
    note = f"{worked:.2f} s of CPU"
    yield Number(name="terminal UI, first paint", value=paint, unit="s", bar=0.6, note=note)
    with _screen(env) as child:
        idle = _p95(_lags(child, LETTERS[:KEYS]))
        child.send("\r")
        child.expect_exact("word")
        streaming = _p95(_lags(child, LETTERS[KEYS:]))
    yield Number(name="key latency, idle, p95", value=idle, unit="ms")
    yield Number(name="the same, 200 tokens/s, p95", value=streaming, unit="ms", bar=100)


@contextmanager
def _screen(env: dict[str, str]) -> Generator["pexpect.spawn[str]"]:
    child: pexpect.spawn[str] = pexpect.spawn(
        HERMES, [], env=env, encoding="utf-8", dimensions=(24, 80), timeout=PATIENCE
    )  # fmt: skip
    child.delaybeforesend = None
    try:
        child.expect_exact(READY)
        yield child
    finally:
        child.close(force=True)


def _worked(pid: int) -> float:
    """CPU seconds used by the process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _lags(child: "pexpect.spawn[str]", letters: Sequence[str]) -> Sequence[float]:
    """Return the seconds from each key to its letter on the screen."""
    lags: list[float] = []
    for letter in letters:
        began = time.perf_counter()
        child.send(letter)
        child.expect_exact(letter)
        lags.append(time.perf_counter() - began)
        time.sleep(PAUSE)
    return lags


def _p95(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.95)] * 1000
