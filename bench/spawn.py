"""Measure the cost of a command without a sandbox and with each sandbox of this machine."""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

from bench.report import Number
from hermes.ports.sandbox import ProcessPermissions, ProcessSpec, Sandbox
from hermes.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from hermes.sandbox.filesystem_policy import VISIBLE_IN_RUN, FilesystemPolicy, hidden_paths
from hermes.sandbox.isolated_sandbox import IsolatedSandbox
from hermes.sandbox.landlock import Landlock
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner

ROUNDS = 60
PATH = "/usr/local/bin:/usr/bin:/bin"
BAR = 25.0


def measure() -> Iterator[Number]:
    with tempfile.TemporaryDirectory() as folder:
        times = anyio.run(_times, Path(folder))
    plain = statistics.median(times["plain"])
    for name, seconds in times.items():
        took = statistics.median(seconds) * 1000
        if name == "plain":
            yield Number(name="a command without a sandbox", value=took, unit="ms")
        else:
            over = took - plain * 1000
            yield Number(name=f"{name}, added to that", value=over, unit="ms", bar=BAR)


async def _times(folder: Path) -> dict[str, list[float]]:
    """Alternate the sandboxes, so that other load affects all of them equally."""
    times: dict[str, list[float]] = {}
    with Spawner() as spawner:
        found = sandboxes(spawner, folder)
        for round_ in range(ROUNDS + 3):
            for name, sandbox in found.items():
                started = time.perf_counter()
                await sandbox.run(_job(folder))
                if round_ >= 3:
                    times.setdefault(name, []).append(time.perf_counter() - started)
    return times


def sandboxes(spawner: Spawner, folder: Path) -> dict[str, Sandbox]:
    hidden = hidden_paths(Path.home(), root=os.geteuid() == 0)
    view = FilesystemPolicy(tmp=str(folder / "private"), hidden=hidden, shown=VISIBLE_IN_RUN)
    found: dict[str, Sandbox] = {"plain": LocalSandbox(spawner)}
    if program := find_bubblewrap(PATH):
        found["bubblewrap"] = IsolatedSandbox(spawner, Bubblewrap(program, view))
    return found | {"landlock": IsolatedSandbox(spawner, Landlock(view))}


def _job(folder: Path) -> ProcessSpec:
    reach = ProcessPermissions(writable=(str(folder),))
    argv = ("bash", "-c", "true")
    return ProcessSpec(
        argv=argv, cwd=str(folder), env={"PATH": PATH}, timeout=60, permissions=reach
    )
