"""Several lives of one gateway on one platform: started, killed, started again."""

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

from hermes.testing.delivery_check import UNSETTLED, PendingAnswers, check_outbox
from hermes.testing.fork_server import EXIT_LINE, START_COMMAND
from hermes.testing.gateway_process import READY, GatewayReport, GatewaySpec
from hermes.testing.platform.server import PlatformServer

INSTANCE_TIMEOUT = 170.0
POLL_INTERVAL = 2.0


class GatewayCrashed(AssertionError):
    """A gateway ended by itself."""


class ProcessLike(Protocol):
    """A process, whoever has started it."""

    @property
    def stdout(self) -> AsyncIterable[bytes] | None: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def send_signal(self, signal: signal.Signals) -> None: ...


class GatewayInstance:
    """One gateway process. `report` is what it said at the end, unless it was killed."""

    def __init__(self, process: ProcessLike) -> None:
        self.process = process
        self.report: GatewayReport | None = None
        self.killed = False
        self._lines: list[bytes] = []
        self._more = anyio.Event()

    async def watch(self) -> None:
        """Until it ends. Raises `Broken` unless it was killed, or told to end and did."""
        if self.process.stdout is None:
            raise GatewayCrashed("its words cannot be heard")
        said = b""
        async for piece in self.process.stdout:
            said += piece
            self._lines = said.splitlines()
            self._more.set()
            self._more = anyio.Event()
        code = await self.process.wait()
        self.killed = code == -signal.SIGKILL
        if not self.killed:
            if code != 0:
                raise GatewayCrashed(f"the gateway ended with {code}: {said.decode()}")
            self.report = msgspec.json.decode(self._lines[-1], type=GatewayReport)

    async def ready(self) -> None:
        await self.says(READY)

    async def says(self, line: str) -> None:
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
    """A gateway that lives until the block ends, if it does not die before."""
    path = await _write_spec(spec)
    command = [sys.executable, "-m", "hermes.testing.gateway_process", path]
    async with await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stderr=None, env={"HOME": spec.folder}
    ) as process:
        life = GatewayInstance(process)
        try:
            yield life
        finally:
            life.kill()


async def _write_spec(spec: GatewaySpec) -> str:
    path = anyio.Path(spec.folder) / "spec.json"
    await path.write_bytes(msgspec.json.encode(spec))
    return str(path)


class ForkedProcess:
    """A process of a nursery, as if we had started it ourselves; `orders` is where to write."""

    def __init__(self, heard: anyio.abc.ByteReceiveStream, orders: int) -> None:
        self.returncode: int | None = None
        self._heard = heard
        self._rest = b""
        self._orders = orders

    @property
    def stdout(self) -> AsyncIterable[bytes]:
        return self._lines()

    async def _lines(self) -> AsyncGenerator[bytes]:
        while self.returncode is None:
            *lines, self._rest = (self._rest + await self._heard.receive()).split(b"\n")
            for line in lines:
                if line.startswith(EXIT_LINE.encode()):
                    self.returncode = int(line.removeprefix(EXIT_LINE.encode()))
                elif line:
                    yield line + b"\n"

    async def wait(self) -> int:
        async for _ in self._lines():
            pass
        if self.returncode is None:
            raise GatewayCrashed("nobody knows how it ended")
        return self.returncode

    def send_signal(self, signal: signal.Signals) -> None:
        os.write(self._orders, f"{signal:d}\n".encode())


@asynccontextmanager
async def fork_server(folder: Path) -> AsyncGenerator[StartInstance]:
    """Lives, one at a time, that need not load their code anew: many kills for little time."""
    theirs, ours = os.pipe()
    command = [sys.executable, "-m", "hermes.testing.fork_server"]
    try:
        process = await anyio.open_process(
            command, stdin=theirs, stderr=None, env={"HOME": str(folder)}
        )
        os.close(theirs)
        heard = process.stdout
        if heard is None:
            raise GatewayCrashed("its words cannot be heard")

        @asynccontextmanager
        async def birth(spec: GatewaySpec) -> AsyncGenerator[GatewayInstance]:
            body = ForkedProcess(heard, ours)
            os.write(ours, f"{START_COMMAND}{await _write_spec(spec)}\n".encode())
            life = GatewayInstance(body)
            try:
                yield life
            finally:
                life.kill()
                with anyio.CancelScope(shield=True), anyio.move_on_after(INSTANCE_TIMEOUT):
                    await body.wait()

        yield birth
    finally:
        # Nobody speaks to it any more, so it ends.
        os.close(ours)
    await process.aclose()


async def run_instance(
    spec: GatewaySpec,
    act: Callable[[GatewayInstance], Coroutine[None, None, None]],
    birth: StartInstance = gateway_instance,
) -> GatewayInstance:
    """A life until it dies by itself or is ended by what `act` does."""
    async with birth(spec) as life:
        with anyio.move_on_after(INSTANCE_TIMEOUT) as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(act, life)
                await life.watch()
                group.cancel_scope.cancel()
        if scope.cancelled_caught:
            raise GatewayCrashed(
                f"a life that should end at {spec.die_at or 'its own time'} did not"
            )
    return life


class AnswerWaiter:
    """Waits for the answers to all that was asked so far.

    What is parked in the outbox never comes: the `database` is looked into now and then.
    """

    def __init__(self, server: PlatformServer, database: Path | None = None) -> None:
        self._server = server
        self._database = database
        self._waiting = PendingAnswers(server.truth)

    async def all(self) -> None:
        while True:
            with anyio.move_on_after(POLL_INTERVAL):
                await self._server.until(self._waiting.all_answered)
                return
            if self._database is not None and self._database.exists():
                self._waiting.give_up(check_outbox(self._database).parked)

    async def settled(self) -> None:
        """Until the outbox has nothing open: a post whose receipt was lost is sent again."""
        while self._has_open():  # noqa: ASYNC110 - another process has the outbox
            await anyio.sleep(POLL_INTERVAL)

    def _has_open(self) -> bool:
        if self._database is None:
            return False
        return any(one.endswith(UNSETTLED) for one in check_outbox(self._database).wrong)
