"""Several lives of one gateway on one platform: started, killed, started again."""

import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import msgspec

from hermes.testing.gateway_process import READY, Report, Spec
from hermes.testing.history import UNSETTLED, Waiting, judge_outbox
from hermes.testing.platform.server import PlatformServer

PATIENCE = 170.0
LOOK = 2.0


class Broken(AssertionError):
    """A gateway ended by itself."""


class Life:
    """One gateway process. `report` is what it said at the end, unless it was killed."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self.process = process
        self.report: Report | None = None
        self.killed = False
        self._lines: list[bytes] = []
        self._more = anyio.Event()

    async def watch(self) -> None:
        """Until it ends. Raises `Broken` unless it was killed, or told to end and did."""
        if self.process.stdout is None:
            raise Broken("its words cannot be heard")
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
                raise Broken(f"the gateway ended with {code}: {said.decode()}")
            self.report = msgspec.json.decode(self._lines[-1], type=Report)

    async def ready(self) -> None:
        await self.says(READY)

    async def says(self, line: str) -> None:
        while line.encode() not in self._lines:
            await self._more.wait()

    def arm(self) -> None:
        self.process.send_signal(signal.SIGUSR2)

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()

    def end(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()


@asynccontextmanager
async def living(spec: Spec) -> AsyncGenerator[Life]:
    """A gateway that lives until the block ends, if it does not die before."""
    path = anyio.Path(spec.folder) / "spec.json"
    await path.write_bytes(msgspec.json.encode(spec))
    command = [sys.executable, "-m", "hermes.testing.gateway_process", str(path)]
    async with await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stderr=None, env={"HOME": spec.folder}
    ) as process:
        life = Life(process)
        try:
            yield life
        finally:
            life.kill()


async def live(spec: Spec, act: Callable[[Life], Coroutine[None, None, None]]) -> Life:
    """A life until it dies by itself or is ended by what `act` does."""
    async with living(spec) as life:
        with anyio.move_on_after(PATIENCE) as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(act, life)
                await life.watch()
                group.cancel_scope.cancel()
        if scope.cancelled_caught:
            raise Broken(f"a life that should end at {spec.die_at or 'its own time'} did not")
    return life


class Answers:
    """Waits for the answers to all that was asked so far.

    What is parked in the outbox never comes: the `database` is looked into now and then.
    """

    def __init__(self, server: PlatformServer, database: Path | None = None) -> None:
        self._server = server
        self._database = database
        self._waiting = Waiting(server.truth)

    async def all(self) -> None:
        while True:
            with anyio.move_on_after(LOOK):
                await self._server.until(self._waiting.is_over)
                return
            if self._database is not None and self._database.exists():
                self._waiting.give_up(judge_outbox(self._database).parked)

    async def settled(self) -> None:
        """Until the outbox has nothing open: a post whose receipt was lost is sent again."""
        while self._has_open():  # noqa: ASYNC110 - another process has the outbox
            await anyio.sleep(LOOK)

    def _has_open(self) -> bool:
        if self._database is None:
            return False
        return any(one.endswith(UNSETTLED) for one in judge_outbox(self._database).wrong)
