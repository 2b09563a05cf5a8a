"""Run the real gateway on the test platform and kill it at a chosen failpoint.

usage: python -m support.gateway_process <spec.json>

This is `hermes gateway run` for the home in the spec. It prints `READY=1` when ready, `armed` when
SIGUSR2 has armed the failpoint, and a report as a line of JSON when SIGTERM has ended it.
"""

import collections
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import FrameType

import msgspec
from msgspec import Struct

from hermes.app.service.lifecycle import RunOptions
from hermes.app.service.main import run_gateway
from hermes.app.service.status import Snapshot
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.kit.failpoints import watch_failpoints
from hermes.kit.redact import Redactor
from hermes.logs import Logs, LogSettings
from hermes.ports.channel import ChannelManifest
from hermes.ports.ownership import WORKER_TTL
from support.chat_platform.channel import TEST_CAPABILITIES
from support.chat_platform.gateway import TEST_MANIFEST
from support.event_loop_guard import MAX_TEST_BLOCK, EventLoopGuard, LoopBlocked
from support.homes import CHANNEL_NAME, ProfileSettings, profile_path, write_profile

READY = "READY=1"


class GatewaySpec(Struct, frozen=True, kw_only=True):
    """How to run a gateway process.

    The process is killed when it passes the failpoint `die_at` for the `nth` time; without `armed`,
    counting starts at SIGUSR2. `factory` opens the channels, `worker_ttl` is in seconds. The
    profiles in `overheard` wrongly receive the logs of the whole process, to test that such a leak
    is detected.
    """

    folder: str
    home: str
    die_at: str = ""
    nth: int = 1
    armed: bool = True
    worker_ttl: float = WORKER_TTL.total_seconds()
    factory: str = TEST_MANIFEST.factory
    overheard: tuple[str, ...] = ()


class GatewayReport(Struct, frozen=True):
    """How often each failpoint was passed, and delays of the event loop in seconds.

    `stood`, `longest` and `worked` are those of `EventLoopGuard`.
    """

    passed: dict[str, int]
    longest: float
    stood: float
    worked: float
    blocks: list[str]

    @property
    def loop(self) -> str:
        """The delays of the loop as text."""
        stood, net, worked = (1000 * seconds for seconds in (self.stood, self.longest, self.worked))
        return (
            f"longest event loop delay {stood:.0f} ms, {net:.0f} ms without waiting for a CPU, "
            f"longest CPU time {worked:.0f} ms"
        )

    def check_loop(self) -> None:
        """Raise `LoopBlocked` if the loop was blocked."""
        if self.blocks:
            raise LoopBlocked("\n".join([self.loop, *self.blocks]))


class CrashPlan:
    """Counts passed failpoints and kills the process at the chosen one, like a power failure."""

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
    """Guards the event loop once the gateway serves; `loaded` is the file for imported modules."""

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
    """Write the home of a gateway with one profile and return its spec."""
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    variables = {"MESSAGING_CWD": str(work), **(env or {})}
    settings = ProfileSettings(account=account, url=url, env=variables)
    write_profile(folder / "home", settings)
    return GatewaySpec(folder=str(folder), home=str(folder / "home"))


def run_gateway_spec(
    spec: GatewaySpec, plan: CrashPlan, loaded: Path | None = None
) -> tuple[int, GatewayReport]:
    """Run until SIGTERM; return the exit code and the report."""
    env = Env({**process_env(), "HERMES_HOME": spec.home})
    watch = LoopWatch(loaded)
    options = RunOptions(ready_fd=os.dup(1), worker_ttl=timedelta(seconds=spec.worker_ttl))
    manifest = ChannelManifest(name=CHANNEL_NAME, factory=spec.factory, caps=TEST_CAPABILITIES)
    with ExitStack() as stack:
        stack.enter_context(watch_failpoints(plan))
        for profile in spec.overheard:
            logs = profile_path(Path(spec.home), profile) / "logs"
            stack.callback(Logs(logs, LogSettings(), Redactor()).close)
        code = run_gateway(resolve_home(env), env, options, {CHANNEL_NAME: manifest}, watch)
    return code, watch.report(dict(plan.passed))


def _print_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m support.gateway_process <spec.json>")
    return run_and_report(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=GatewaySpec))


def run_and_report(spec: GatewaySpec, loaded: Path | None = None) -> int:
    """Run a gateway, print its report and return the exit code."""
    plan = CrashPlan(spec.die_at, spec.nth, armed=spec.armed)
    signal.signal(signal.SIGUSR2, plan.arm)
    code, report = run_gateway_spec(spec, plan, loaded)
    _print_line(msgspec.json.encode(report).decode())
    return 0 if code == 128 + signal.SIGTERM else code


if __name__ == "__main__":
    sys.exit(main())
