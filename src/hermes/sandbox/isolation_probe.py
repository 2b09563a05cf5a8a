"""Which wall this machine can put up: found out with the first command or when asked.

One that works is not tried again. One that failed is, after a while, because the reason may be
gone: a full disk, a busy machine, a limit that somebody has raised.

A trial asks whether the machine can do it, so nothing that a command may write has a part in it:
it has folders of its own, and the rules of the profile, which depend on what is there, are left
out. Otherwise a command could make the trial fail, and the next ones would run with less.
"""

import os
import platform
from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.ports.sandbox import ProcessPermissions, ProcessSpec
from hermes.sandbox.bubblewrap import Bubblewrap
from hermes.sandbox.filesystem_policy import FilesystemPolicy, make_tmp_folder
from hermes.sandbox.isolated_sandbox import IsolatedSandbox, IsolationBackend
from hermes.sandbox.landlock import Landlock, landlock_version
from hermes.sandbox.seccomp import syscall_filter
from hermes.sandbox.spawner import NotStarted, Spawner
from hermes.schema.errors import SandboxError

PROBE_TIMEOUT = 60.0
"""Seconds for the trial: on a busy machine a wall that works must not pass for a broken one."""
FIRST_RETRY, LAST_RETRY = 10.0, 600.0
"""Seconds until a wall that failed is tried again: at first, and after many failures."""
_USER_NAMESPACE_SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
)
_MAX_OUTPUT = 300
_TRIAL = "trial"
"""The folder for trials, beside that for temporary files: no command may change or see it."""


class ProbeResult(Struct, frozen=True):
    """A wall, or why there is none of that kind; `failed` if there is one that does not work."""

    wall: IsolationBackend | None
    why: str = ""
    failed: bool = False


class IsolationProbe:
    """The walls of one profile. What is likely is known at once, what is true after a trial.

    `bubblewrap` is its executable, if there is one; `landlock` says which version of it.
    """

    def __init__(
        self,
        door: Spawner,
        view: Callable[[], FilesystemPolicy],
        bubblewrap: str | None,
        patience: float = PROBE_TIMEOUT,
        landlock: Callable[[], int] = landlock_version,
        *,
        clock: Clock,
    ) -> None:
        self._door = door
        self._patience = patience
        self._view = view
        self._program = bubblewrap
        self._version = landlock
        self._clock = clock
        self._trying = anyio.Lock()
        self._tried: ProbeResult | None = None
        self._trial: Bubblewrap | None = None
        self._failures = 0
        self._retry_at = 0.0

    def likely(self, kind: str) -> ProbeResult:
        """Without starting anything; `kind` is bubblewrap or landlock."""
        return self._bubblewrap() if kind == "bubblewrap" else self._landlock()

    async def certain(self, kind: str) -> ProbeResult:
        """Bubblewrap is tried out: too many settings of a machine can forbid what it needs."""
        if kind != "bubblewrap":
            return self._landlock()
        async with self._trying:
            if self._tried is None or self._is_due(self._tried):
                self._tried = await self._try(self._untried())
                self._count(self._tried)
            return self._tried

    def doubt(self) -> None:
        """It could not be put up around a command, so it is tried before the next one."""
        self._tried = None

    def _is_due(self, verdict: ProbeResult) -> bool:
        return verdict.wall is None and self._clock.monotonic() >= self._retry_at

    def _count(self, verdict: ProbeResult) -> None:
        self._failures = self._failures + 1 if verdict.wall is None else 0
        wait = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(self._failures - 1, 16))
        self._retry_at = self._clock.monotonic() + wait

    def _bubblewrap(self) -> ProbeResult:
        return self._tried if self._tried is not None else self._untried()

    def _untried(self) -> ProbeResult:
        if syscall_filter(platform.machine(), (), root=False) is None:
            return ProbeResult(None, f"bubblewrap is not known on {platform.machine()} machines")
        if self._program is None:
            return ProbeResult(None, "bubblewrap is not installed")
        for switch, off in _USER_NAMESPACE_SWITCHES:
            if os.geteuid() != 0 and _read_text(switch) == off:
                return ProbeResult(None, f"user namespaces are switched off ({switch} is {off})")
        return ProbeResult(Bubblewrap(self._program, self._view()))

    def _landlock(self) -> ProbeResult:
        if syscall_filter(platform.machine(), (), root=False) is None:
            return ProbeResult(None, f"landlock is not known on {platform.machine()} machines")
        if self._version() < 1:
            return ProbeResult(None, "the kernel has no landlock")
        return ProbeResult(Landlock(self._view()))

    async def _try(self, verdict: ProbeResult) -> ProbeResult:
        if verdict.wall is None or self._program is None:
            return verdict
        tmp = str(Path(self._view().tmp).with_name(_TRIAL))
        if self._trial is None:
            # Made once, and its folder stays: a trial must not fail because a disk is full by now.
            view = FilesystemPolicy(tmp=tmp, unix_sockets=self._view().unix_sockets)
            self._trial = Bubblewrap(self._program, view)
        reach = ProcessPermissions(writable=(tmp,))
        job = ProcessSpec(
            argv=("/bin/sh", "-c", ":"), cwd="/", env={}, timeout=self._patience, reach=reach
        )
        try:
            make_tmp_folder(tmp)
            done = await IsolatedSandbox(self._door, self._trial).run(job)
        except NotStarted as error:
            return _probe_failed(f"bubblewrap does not work here: {error.said or 1}")
        except SandboxError as error:
            return _probe_failed(str(error))
        if done.timed_out:
            return _probe_failed(
                f"bubblewrap gave no answer within {self._patience:.0f} s when it was tried"
            )
        if done.exit_code == 0:
            return verdict
        said = done.output[-_MAX_OUTPUT:].decode(errors="replace").strip()
        return _probe_failed(f"bubblewrap does not work here: {said or done.exit_code}")


def _probe_failed(why: str) -> ProbeResult:
    return ProbeResult(None, why, failed=True)


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
