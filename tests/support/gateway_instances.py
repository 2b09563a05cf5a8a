"""Start, kill and restart real gateway processes on a test platform."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

import anyio
import anyio.abc
import msgspec

from support.chat_platform.server import PlatformServer
from support.delivery_check import UNSETTLED, PendingAnswers, check_outbox
from support.fork_server import EXIT_LINE, START_COMMAND
from support.gateway_process import READY, GatewayReport, GatewaySpec

INSTANCE_TIMEOUT = 170.0
POLL_INTERVAL = 2.0
TESTS = str(Path(__file__).parents[1])


class GatewayCrashed(AssertionError):
    """A gateway process ended unexpectedly."""


class ProcessLike(Protocol):
    """The part of a process that is used here."""

    @property
    def stdout(self) -> AsyncIterable[bytes] | None: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def send_signal(self, signal: signal.Signals) -> None: ...


class GatewayInstance:
    """One gateway process; `report` is what it printed at the end, unless it was killed."""

    def __init__(self, process: ProcessLike) -> None:
        self.process = process
        self.report: GatewayReport | None = None
        self.killed = False
        self._lines: list[bytes] = []
        self._more = anyio.Event()

    async def watch(self) -> None:
        """Wait for the end; raise `GatewayCrashed` unless it was killed or exited with 0."""
        if self.process.stdout is None:
            raise GatewayCrashed("the process has no stdout")
        output = b""
        async for data in self.process.stdout:
            output += data
            self._lines = output.splitlines()
            self._more.set()
            self._more = anyio.Event()
        code = await self.process.wait()
        self.killed = code == -signal.SIGKILL
        if not self.killed:
            if code != 0:
                raise GatewayCrashed(f"the gateway exited with {code}: {output.decode()}")
            self.report = msgspec.json.decode(self._lines[-1], type=GatewayReport)

    async def wait_ready(self) -> None:
        await self.wait_for_line(READY)

    async def wait_for_line(self, line: str) -> None:
        while line.encode() not in self._lines:
            await self._more.wait()

    def arm(self) -> None:
        self.process.send_signal(signal.SIGUSR2)

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)

    def end(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)


StartInstance: TypeAlias = Callable[[GatewaySpec], AbstractAsyncContextManager[GatewayInstance]]


@asynccontextmanager
async def gateway_instance(spec: GatewaySpec) -> AsyncGenerator[GatewayInstance]:
    """Run a gateway process during the block."""
    path = await write_spec(spec)
    command = [sys.executable, "-m", "support.gateway_process", path]
    async with await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stderr=None, env=_environment(spec.folder)
    ) as process:
        instance = GatewayInstance(process)
        try:
            yield instance
        finally:
            instance.kill()


def _environment(home: str) -> dict[str, str]:
    """The child needs the modules of `support` too."""
    return {"HOME": home, "PYTHONPATH": TESTS}


async def write_spec(spec: GatewaySpec) -> str:
    """Write the spec into its folder and return the path."""
    path = anyio.Path(spec.folder) / "spec.json"
    await path.write_bytes(msgspec.json.encode(spec))
    return str(path)


class ForkedProcess:
    """A gateway forked by a fork server; `orders` is the file descriptor for commands to it."""

    def __init__(self, output: anyio.abc.ByteReceiveStream, orders: int) -> None:
        self.returncode: int | None = None
        self._output = output
        self._rest = b""
        self._orders = orders

    @property
    def stdout(self) -> AsyncIterable[bytes]:
        return self._lines()

    async def _lines(self) -> AsyncGenerator[bytes]:
        while self.returncode is None:
            *lines, self._rest = (self._rest + await self._output.receive()).split(b"\n")
            for line in lines:
                if line.startswith(EXIT_LINE.encode()):
                    self.returncode = int(line.removeprefix(EXIT_LINE.encode()))
                elif line:
                    yield line + b"\n"

    async def wait(self) -> int:
        async for _ in self._lines():
            pass
        if self.returncode is None:
            raise GatewayCrashed("the exit code of the gateway is unknown")
        return self.returncode

    def send_signal(self, signal: signal.Signals) -> None:
        os.write(self._orders, f"{signal:d}\n".encode())


@asynccontextmanager
async def fork_server(folder: Path) -> AsyncGenerator[StartInstance]:
    """Run a fork server, which starts gateways quickly, one at a time."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "support.fork_server"]
    try:
        process = await anyio.open_process(
            command, stdin=read_end, stderr=None, env=_environment(str(folder))
        )
        os.close(read_end)
        output = process.stdout
        if output is None:
            raise GatewayCrashed("the process has no stdout")

        @asynccontextmanager
        async def start(spec: GatewaySpec) -> AsyncGenerator[GatewayInstance]:
            child = ForkedProcess(output, write_end)
            os.write(write_end, f"{START_COMMAND}{await write_spec(spec)}\n".encode())
            instance = GatewayInstance(child)
            try:
                yield instance
            finally:
                instance.kill()
                with anyio.CancelScope(shield=True), anyio.move_on_after(INSTANCE_TIMEOUT):
                    await child.wait()

        yield start
    finally:
        # The fork server exits when its stdin is closed.
        os.close(write_end)
    await process.aclose()


async def run_instance(
    spec: GatewaySpec,
    act: Callable[[GatewayInstance], Coroutine[None, None, None]],
    start: StartInstance = gateway_instance,
) -> GatewayInstance:
    """Run a gateway until it dies or is ended by `act`."""
    async with start(spec) as instance:
        with anyio.move_on_after(INSTANCE_TIMEOUT) as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(act, instance)
                await instance.watch()
                group.cancel_scope.cancel()
        if scope.cancelled_caught:
            raise GatewayCrashed(f"the gateway did not end (failpoint: {spec.die_at or 'none'})")
    return instance


class AnswerWaiter:
    """Waits for the answers to all questions asked so far.

    Answers parked in the outbox never arrive, so the `database` is checked from time to time.
    """

    def __init__(self, server: PlatformServer, database: Path | None = None) -> None:
        self._server = server
        self._database = database
        self._waiting = PendingAnswers(server.platform)

    async def wait_for_all(self) -> None:
        while True:
            with anyio.move_on_after(POLL_INTERVAL):
                await self._server.until(self._waiting.all_answered)
                return
            if self._database is not None and self._database.exists():
                self._waiting.give_up(check_outbox(self._database).parked)

    async def wait_settled(self) -> None:
        """Wait until the outbox has no open items; a post whose receipt was lost is sent again."""
        while self._has_open():  # noqa: ASYNC110 - another process writes the outbox
            await anyio.sleep(POLL_INTERVAL)

    def _has_open(self) -> bool:
        if self._database is None:
            return False
        return any(error.endswith(UNSETTLED) for error in check_outbox(self._database).wrong)
