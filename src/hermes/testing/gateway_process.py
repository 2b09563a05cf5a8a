"""A gateway in a process of its own, on the test platform; it dies where it is told to.

usage: python -m hermes.testing.gateway_process <spec.json>

It prints `ready`, `armed` when it was told by SIGUSR1 to die at the next occasion, and when it
is told to end by SIGTERM, what it saw as a line of JSON.
"""

import collections
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from hermes.gateway.gateway import Gateway
from hermes.gateway.letters import Busy
from hermes.kit.clock import SystemClock
from hermes.kit.failpoints import watching
from hermes.kit.redact import Redactor
from hermes.store.sqlite import open_store
from hermes.telemetry.logs import LogSettings, set_up_logs
from hermes.testing.household import ActingTool, Household, PausingTool, patient_rules
from hermes.testing.loop_guard import LoopGuard
from hermes.testing.obliging import Obliging
from hermes.testing.platform_channel import open_channel

CHANNEL = "test"


class Spec(Struct, frozen=True, kw_only=True):
    """`die_at` names a failpoint, `nth` says at which passing of it the process is killed.

    Without `armed` it begins to count when it is told to.
    """

    url: str
    folder: str
    accounts: tuple[str, ...] = ("main",)
    busy: Busy = Busy.QUEUE
    progress: bool = True
    die_at: str = ""
    nth: int = 1
    armed: bool = True


class Report(Struct, frozen=True):
    """Which failpoints were passed how often, and how the loop fared."""

    passed: dict[str, int]
    longest: float
    blocks: list[str]


class Fate:
    """Counts what is passed; at the appointed place it ends the process, as a power cut would."""

    def __init__(self, die_at: str, nth: int, *, armed: bool) -> None:
        self.passed: collections.Counter[str] = collections.Counter()
        self.armed = armed
        self._die_at = die_at
        self._left = nth

    def __call__(self, name: str) -> None:
        self.passed[name] += 1
        if self.armed and name == self._die_at:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


async def open_gateway(stack: AsyncExitStack, spec: Spec, account: str) -> Gateway:
    """One profile's gateway, from its store to its channel; closed with the stack."""
    clock, folder = SystemClock(), Path(spec.folder) / account
    store = await stack.enter_async_context(open_store(folder / "state.db", clock))
    channel = await stack.enter_async_context(open_channel(spec.url, account, clock, CHANNEL))
    household = Household(
        profile=account,
        store=store,
        clock=clock,
        channels={CHANNEL: channel},
        model=Obliging(),
        tools=[ActingTool(folder / "effects"), PausingTool(clock)],
        cwd=str(folder),
    )
    return Gateway(household.build(), patient_rules(spec.busy, progress=spec.progress))


async def run(spec: Spec, fate: Fate) -> Report:
    async with AsyncExitStack() as stack:
        gateways = [await open_gateway(stack, spec, account) for account in spec.accounts]
        guard = LoopGuard()
        async with anyio.create_task_group() as group:
            for gateway in gateways:
                group.start_soon(gateway.run)
            guard.start()
            await _until_told_to_end(fate)
            for gateway in gateways:
                gateway.close()
        await guard.stop()
    blocks = [f"{block.seconds:.3f} s\n{block.stack}" for block in guard.blocks]
    return Report(dict(fate.passed), guard.longest, blocks)


async def _until_told_to_end(fate: Fate) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGUSR1) as signals:
        _say("ready")
        async for number in signals:
            if number != signal.SIGUSR1:
                return
            fate.armed = True
            _say("armed")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hermes.testing.gateway_process <spec.json>")
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Spec)
    fate = Fate(spec.die_at, spec.nth, armed=spec.armed)
    logs = set_up_logs(Path(spec.folder) / "logs", LogSettings(), Redactor())
    with watching(fate):
        report = anyio.run(run, spec, fate)
    logs.close()
    _say(msgspec.json.encode(report).decode())


if __name__ == "__main__":
    main()
