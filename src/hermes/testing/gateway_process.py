"""The real gateway process on the test platform; it dies where it is told to.

usage: python -m hermes.testing.gateway_process <spec.json>

It is `hermes gateway run` for the home that the spec names. It prints `READY=1`, `armed` when it
was told by SIGUSR2 to die at the next occasion, and when it is told to end by SIGTERM, what it saw
as a line of JSON.
"""

import collections
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import msgspec
from msgspec import Struct

from hermes.app.service.main import run_gateway
from hermes.app.service.options import RunOptions
from hermes.app.service.status import Snapshot
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.kit.failpoints import watch_failpoints
from hermes.kit.redact import Redactor
from hermes.logs.files import LogSettings, set_up_logs
from hermes.ports.channel import ChannelManifest
from hermes.testing.event_loop_guard import MAX_TEST_BLOCK, EventLoopGuard, LoopBlocked
from hermes.testing.homes import CHANNEL_NAME, ProfileSettings, profile_path, write_profile
from hermes.testing.platform.gateway import TEST_MANIFEST

READY = "READY=1"


class GatewaySpec(Struct, frozen=True, kw_only=True):
    """`die_at` names a failpoint, `nth` says at which passing of it the process is killed.

    Without `armed` it begins to count when it is told to. `factory` opens the channels. The logs
    of the profiles `overheard` get everything that the process logs, as they never should.
    """

    folder: str
    home: str
    die_at: str = ""
    nth: int = 1
    armed: bool = True
    factory: str = TEST_MANIFEST.factory
    overheard: tuple[str, ...] = ()


class GatewayReport(Struct, frozen=True):
    """Which failpoints were passed how often, and how the loop fared, in seconds.

    `stood` is the longest time without a turn of the loop, `longest` is that less what the
    machine took for others, and `worked` is for how long the loop itself was at work in one go.
    """

    passed: dict[str, int]
    longest: float
    stood: float
    worked: float
    blocks: list[str]

    @property
    def loop(self) -> str:
        """In words, for whoever reads the numbers of a proof."""
        stood, net, worked = (1000 * one for one in (self.stood, self.longest, self.worked))
        return (
            f"the loop stood still for {stood:.0f} ms at most, {net:.0f} ms when others had no "
            f"processor, and worked for {worked:.0f} ms at most"
        )

    def check_loop(self) -> None:
        """Nobody blocked it, however busy the machine is."""
        if self.blocks:
            raise LoopBlocked("\n".join([self.loop, *self.blocks]))


class CrashPlan:
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

    def arm(self, number: int, frame: FrameType | None) -> None:
        self.armed = True
        _print_line("armed")


class LoopWatch:
    """Watches the loop from when the gateway begins to serve; `loaded` is for what it took."""

    def __init__(self, loaded: Path | None = None) -> None:
        self._guard: EventLoopGuard | None = None
        self._loaded = loaded

    def __call__(self, snapshot: Snapshot) -> None:
        if self._guard is None:
            if self._loaded is not None and not self._loaded.exists():
                self._loaded.write_text("\n".join(sys.modules))
            self._guard = EventLoopGuard(MAX_TEST_BLOCK)
            self._guard.start()

    def report(self, passed: dict[str, int]) -> GatewayReport:
        guard = self._guard
        if guard is None:
            return GatewayReport(passed, 0.0, 0.0, 0.0, [])
        guard.halt()
        blocks = [f"{block.seconds:.3f} s\n{block.stack}" for block in guard.blocks]
        return GatewayReport(passed, guard.longest, guard.stood, guard.worked, blocks)


def single_profile_spec(
    folder: Path, url: str, account: str = "main", env: Mapping[str, str] | None = None
) -> GatewaySpec:
    """A gateway of one profile that everything is well with, furnished and ready to be started."""
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    variables = {"MESSAGING_CWD": str(work), **(env or {})}
    given = ProfileSettings(account=account, url=url, env=variables)
    write_profile(folder / "home", given)
    return GatewaySpec(folder=str(folder), home=str(folder / "home"))


def run_gateway_spec(
    spec: GatewaySpec, fate: CrashPlan, loaded: Path | None = None
) -> tuple[int, GatewayReport]:
    """Until it is told to end. Returns its exit code, and what it saw."""
    env = Env({**process_env(), "HERMES_HOME": spec.home})
    watch = LoopWatch(loaded)
    options = RunOptions(ready_fd=os.dup(1))
    manifest = ChannelManifest(name=CHANNEL_NAME, factory=spec.factory)
    with ExitStack() as stack:
        stack.enter_context(watch_failpoints(fate))
        for profile in spec.overheard:
            logs = profile_path(Path(spec.home), profile) / "logs"
            stack.callback(set_up_logs(logs, LogSettings(), Redactor()).close)
        code = run_gateway(resolve_home(env), env, options, {CHANNEL_NAME: manifest}, watch)
    return code, watch.report(dict(fate.passed))


def _print_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hermes.testing.gateway_process <spec.json>")
    return run_and_report(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=GatewaySpec))


def run_and_report(spec: GatewaySpec, loaded: Path | None = None) -> int:
    """One whole life; the code that it ends with."""
    fate = CrashPlan(spec.die_at, spec.nth, armed=spec.armed)
    signal.signal(signal.SIGUSR2, fate.arm)
    code, report = run_gateway_spec(spec, fate, loaded)
    _print_line(msgspec.json.encode(report).decode())
    return 0 if code == 128 + signal.SIGTERM else code


if __name__ == "__main__":
    sys.exit(main())
