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

from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.daemon.options import RunOptions
from hermes.daemon.process import run_gateway
from hermes.daemon.state import Snapshot
from hermes.kit.failpoints import watching
from hermes.kit.redact import Redactor
from hermes.ports.channel import Manifest
from hermes.telemetry.logs import LogSettings, set_up_logs
from hermes.testing.homes import CHANNEL, Furniture, furnish, home_of
from hermes.testing.loop_guard import NOTICEABLE, LoopBlocked, LoopGuard
from hermes.testing.served import TEST

READY = "READY=1"


class Spec(Struct, frozen=True, kw_only=True):
    """`die_at` names a failpoint, `nth` says at which passing of it the process is killed.

    Without `armed` it begins to count when it is told to. `factory` opens the channels. The logs
    of the profiles `overheard` get everything that the process logs, as they never should.
    """

    folder: str
    home: str
    die_at: str = ""
    nth: int = 1
    armed: bool = True
    factory: str = TEST.factory
    overheard: tuple[str, ...] = ()


class Report(Struct, frozen=True):
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

    def arm(self, number: int, frame: FrameType | None) -> None:
        self.armed = True
        _say("armed")


class Watch:
    """Watches the loop from when the gateway begins to serve; `loaded` is for what it took."""

    def __init__(self, loaded: Path | None = None) -> None:
        self._guard: LoopGuard | None = None
        self._loaded = loaded

    def __call__(self, snapshot: Snapshot) -> None:
        if self._guard is None:
            if self._loaded is not None and not self._loaded.exists():
                self._loaded.write_text("\n".join(sys.modules))
            self._guard = LoopGuard(NOTICEABLE)
            self._guard.start()

    def report(self, passed: dict[str, int]) -> Report:
        guard = self._guard
        if guard is None:
            return Report(passed, 0.0, 0.0, 0.0, [])
        guard.halt()
        blocks = [f"{block.seconds:.3f} s\n{block.stack}" for block in guard.blocks]
        return Report(passed, guard.longest, guard.stood, guard.worked, blocks)


def alone(
    folder: Path, url: str, account: str = "main", env: Mapping[str, str] | None = None
) -> Spec:
    """A gateway of one profile that everything is well with, furnished and ready to be started."""
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    variables = {"MESSAGING_CWD": str(work), **(env or {})}
    given = Furniture(account=account, url=url, env=variables)
    furnish(folder / "home", given)
    return Spec(folder=str(folder), home=str(folder / "home"))


def run(spec: Spec, fate: Fate, loaded: Path | None = None) -> tuple[int, Report]:
    """Until it is told to end. Returns its exit code, and what it saw."""
    env = Env({**process_env(), "HERMES_HOME": spec.home})
    watch = Watch(loaded)
    options = RunOptions(ready_fd=os.dup(1))
    manifest = Manifest(name=CHANNEL, factory=spec.factory)
    with ExitStack() as stack:
        stack.enter_context(watching(fate))
        for profile in spec.overheard:
            logs = home_of(Path(spec.home), profile) / "logs"
            stack.callback(set_up_logs(logs, LogSettings(), Redactor()).close)
        code = run_gateway(resolve_home(env), env, options, {CHANNEL: manifest}, watch)
    return code, watch.report(dict(fate.passed))


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hermes.testing.gateway_process <spec.json>")
    return live_by(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Spec))


def live_by(spec: Spec, loaded: Path | None = None) -> int:
    """One whole life; the code that it ends with."""
    fate = Fate(spec.die_at, spec.nth, armed=spec.armed)
    signal.signal(signal.SIGUSR2, fate.arm)
    code, report = run(spec, fate, loaded)
    _say(msgspec.json.encode(report).decode())
    return 0 if code == 128 + signal.SIGTERM else code


if __name__ == "__main__":
    sys.exit(main())
