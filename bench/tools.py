"""Measure tools: dispatch of a call, reading the end of a long log, many background processes."""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import anyio
from msgspec import Raw

from bench.report import Number
from bench.spawn import PATH, sandboxes
from hermes.agent.plan import Plan
from hermes.agent.tool_calls import FinishedCall, ToolCallRunner
from hermes.app.followup_router import FollowupRouter
from hermes.bus.memory import MemoryBus
from hermes.kit.clock import SystemClock
from hermes.kit.redact import Redactor
from hermes.kit.tasks import background_tasks
from hermes.ports.sandbox import ProcessPermissions, ProcessSpec, Sandbox
from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.sandbox.reaper import descendants
from hermes.sandbox.spawner import Spawner
from hermes.schema.events import Event
from hermes.schema.messages import ToolCall
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect, ToolSpec
from hermes.store.sqlite import open_store
from hermes.testing.scripted_model import ScriptedModel
from hermes.testing.tools import all_tools
from hermes.tools.catalog import LazyTool
from hermes.tools.processes.registry import (
    MAX_PROCESSES,
    ProcessDeps,
    ProcessRegistry,
    ProcessRequest,
)

CALLS = 500
LOG, SMALL = 100_000_000, 100_000
READS = 15
SECONDS = 4.0
LINE = b"2026-01-01 10:00:00 INFO request %07d was served in 12 ms to a client of ours\n"
TALKING = "while ! read -r -t 1; do echo tick; done"
"""Print one line per second, without a child process."""


def measure() -> Iterator[Number]:
    with tempfile.TemporaryDirectory() as folder:
        tools = all_tools(Path(folder))
        took = anyio.run(_dispatch, Path(folder), tools) * 1000
        yield Number(name="dispatch of a tool call", value=took, unit="ms", bar=1.0)
        yield from _tail(Path(folder), tools["read_file"])
        share = anyio.run(_concurrent_calls, Path(folder)) * 100
        name = f"{MAX_PROCESSES} background processes, a line a second each"
        yield Number(name=name, value=share, unit="% CPU", bar=5.0, note="including the processes")


class _Nothing:
    """A tool that takes no time, so that only the dispatch is measured."""

    def __init__(self) -> None:
        self.spec = ToolSpec("nothing", "does nothing", {"type": "object"}, Effect.OUTSIDE)

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        return ToolOutput.text(ctx.call)


async def _no_answer(event: Event | str) -> None:
    pass


async def _dispatch(folder: Path, tools: dict[str, Tool]) -> float:
    """Return the median seconds of a call with all tools registered, without recording it."""
    nothing = LazyTool(_Nothing().spec, _Nothing)
    plan = Plan(
        scope=_scope(folder),
        model=ScriptedModel(),
        system="",
        tools={**tools, "nothing": nothing},
        clock=SystemClock(),
    )
    ends: list[float] = []

    async def on_end(ended: FinishedCall) -> None:
        assert not ended.result.failed
        ends.append(time.perf_counter())

    calls = [ToolCall(f"c{n}", "nothing", Raw(b'{"n":%d}' % n)) for n in range(CALLS)]
    await ToolCallRunner(plan, calls, _no_answer, on_end).run()
    return statistics.median(after - before for before, after in pairwise(ends))


def _tail(folder: Path, tool: Tool) -> Iterator[Number]:
    """Alternate with a file a thousandth as long."""
    sizes = {"long.log": LOG, "short.log": SMALL}
    for name, size in sizes.items():
        with (folder / name).open("wb") as file:
            for n in range(size // len(LINE % 0)):
                file.write(LINE % n)
    times, read = anyio.run(_reads, _scope(folder), tool, tuple(sizes))
    long, short = (statistics.median(times[name]) for name in sizes)
    yield Number(name="read_file, the tail of a 100 MB log", value=long * 1000, unit="ms", bar=20)
    yield Number(name="the same / the tail of 100 KB", value=long / short, unit="x", bar=3)
    yield Number(name="the same, bytes read", value=read / 1000, unit="KB", bar=1000)


async def _reads(
    scope: Scope, tool: Tool, names: tuple[str, ...]
) -> tuple[dict[str, list[float]], float]:
    times: dict[str, list[float]] = {name: [] for name in names}
    amounts: list[int] = []
    for _ in range(READS):
        for name, taken in times.items():
            args = Raw(b'{"path":"%s","offset":-200}' % name.encode())
            before, started = _bytes_read(), time.perf_counter()
            await tool.run(args, ToolContext(scope, "call", _no_answer))
            taken.append(time.perf_counter() - started)
            amounts += [_bytes_read() - before] if name == names[0] else []
    return times, statistics.median(amounts)


async def _concurrent_calls(folder: Path) -> float:
    """Return the share of one core used by this process, the reaper and the commands."""
    clock = SystemClock()
    with Spawner() as spawner:
        async with open_store(folder / "hermes.db", clock) as store:
            later = FollowupRouter(store, MemoryBus())
            parts = ProcessDeps(
                store=store,
                clock=clock,
                followups=later,
                redact=Redactor(["a-secret-of-the-bench"]).redact,
                logs=folder / "logs",
            )
            async with background_tasks() as group:
                registry = ProcessRegistry(parts, group)
                found = sandboxes(spawner, folder)
                sandbox = found.get("bubblewrap") or found["landlock"]
                for _ in range(MAX_PROCESSES):
                    await registry.start(_order(sandbox, folder))
                await anyio.sleep(1.0)
                before, started = _seconds_spent(), time.perf_counter()
                await anyio.sleep(SECONDS)
                share = (_seconds_spent() - before) / (time.perf_counter() - started)
                assert len(registry.running) == MAX_PROCESSES
    return share


def _order(sandbox: Sandbox, folder: Path) -> ProcessRequest:
    reach = ProcessPermissions(writable=(str(folder),))
    argv = ("bash", "-c", TALKING)
    job = ProcessSpec(
        argv=argv, cwd=str(folder), env={"PATH": PATH}, timeout=0.0, permissions=reach
    )
    return ProcessRequest(sandbox=sandbox, job=job, command=TALKING, scope=_scope(folder))


def _scope(folder: Path) -> Scope:
    return Scope("default", "bench", "run", str(folder))


def _bytes_read() -> int:
    """Bytes read by this process, from disk or cache."""
    return int(Path("/proc/self/io").read_text().split(None, 2)[1])


def _seconds_spent() -> float:
    """CPU seconds of this process and its descendants since they started."""
    found = 0
    for pid in (os.getpid(), *(descendants(os.getpid()) or ())):
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found += int((thread / "schedstat").read_text().split()[0])
    return found / 1e9
