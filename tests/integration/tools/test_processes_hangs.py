"""Twelve ways to hang: each can be interrupted or killed, and no process remains."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest
from msgspec import Raw

from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from support.local_tools import local_tools
from support.polling import pause

TIMEOUT = 60.0
ACCEPT = (
    "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
    "open('begun', 'w').close(); s.accept()"
)
HANGS = {
    "sleep": "touch begun; sleep 1000",
    "ignores SIGTERM": "trap '' TERM INT HUP; touch begun; while :; do sleep 1; done",
    "stopped by SIGSTOP": "touch begun; kill -STOP $$",
    "a daemon, forked twice": "(setsid setsid sleep 1000 &); touch begun; sleep 1000",
    "a full pipe": "touch begun; yes | sleep 1000",
    "a reader at a terminal": "stty raw -echo; touch begun; cat",
    "a parent of zombies": "sh -c 'sleep 0 & touch begun; exec sleep 1000'",
    "a storm of forks": "for i in $(seq 200); do sleep 1000 & done; touch begun; wait",
    "a busy loop": "touch begun; while :; do :; done",
    "reads what never comes": "mkfifo p; exec 3<>p; touch begun; cat <&3",
    "opens a pipe nobody writes to": "mkfifo f; touch begun; cat f",
    "waits for a connection": f'{sys.executable} -c "{ACCEPT}"',
}


class HangHarness:
    def __init__(self, tools: dict[str, Tool], folder: Path) -> None:
        self.scope = Scope("default", new_id("session"), "run", str(folder))
        self._tools = tools
        self._begun = folder / "begun"

    async def use(self, name: str, **args: object) -> ToolOutput:
        async def progress(text: str) -> None:
            await anyio.lowlevel.checkpoint()

        ctx = ToolContext(self.scope, "call", progress)
        return await self._tools[name].run(Raw(msgspec.json.encode(args)), ctx)

    async def begun(self) -> None:
        while not self._begun.exists():
            await pause()

    def processes(self) -> list[str]:
        """The processes of the session, found by its name in their environment."""
        mark = f"HERMES_SESSION_ID={self.scope.session}".encode()
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue
        return found


@asynccontextmanager
async def open_harness(folder: Path) -> AsyncGenerator[HangHarness]:
    work = folder / "work"
    work.mkdir()
    async with local_tools(folder, SystemClock(), grace=0.2) as (_, tools):
        yield HangHarness(tools, work)


def pty(kind: str) -> bool:
    return "terminal" in kind


@pytest.mark.parametrize("kind", HANGS)
async def test_interrupt_ends_a_hanging_command(tmp_path: Path, kind: str) -> None:
    with anyio.fail_after(TIMEOUT):
        async with open_harness(tmp_path) as one, anyio.create_task_group() as group:
            command = HANGS[kind]
            group.start_soon(lambda: one.use("terminal", command=command, pty=pty(kind)))
            await one.begun()
            assert one.processes()
            group.cancel_scope.cancel()
        assert one.processes() == []


@pytest.mark.parametrize("kind", HANGS)
async def test_kill_ends_a_hanging_background_process(tmp_path: Path, kind: str) -> None:
    with anyio.fail_after(TIMEOUT):
        async with open_harness(tmp_path) as one:
            started = await one.use("terminal", command=HANGS[kind], background=True, pty=pty(kind))
            part = started.parts[0]
            assert isinstance(part, Text)
            name = msgspec.json.decode(part.text)["session_id"]
            await one.begun()
            assert one.processes()
            await one.use("process", action="kill", session_id=name)
            assert one.processes() == []


async def test_shutdown_ends_all_hanging_processes(tmp_path: Path) -> None:
    with anyio.fail_after(TIMEOUT):
        async with open_harness(tmp_path) as one:
            for number, (kind, command) in enumerate(HANGS.items()):
                folder = tmp_path / "work" / str(number)
                folder.mkdir()
                options = {"command": command, "workdir": str(folder), "pty": pty(kind)}
                await one.use("terminal", background=True, **options)
            assert len(one.processes()) >= len(HANGS)
        assert one.processes() == []
