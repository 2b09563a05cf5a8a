"""Find out which isolation this machine supports, on first use or on request.

A result that works is final. A failure is retried after a while, because its cause may be gone: a
full disk, a busy machine, a raised limit.

A probe uses its own folders and leaves out the rules of the profile, which depend on existing
files: otherwise a command could make the probe fail and the next ones would run less isolated.
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
"""Seconds for a probe: on a busy machine, working isolation must not look broken."""
FIRST_RETRY, LAST_RETRY = 10.0, 600.0
"""Seconds before a failed probe is repeated: at first, and after many failures."""
_USER_NAMESPACE_SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
)
_MAX_OUTPUT = 300
_TRIAL = "trial"
"""The folder for probes, next to the temporary folder; commands can neither see nor change it."""


class ProbeResult(Struct, frozen=True):
    """A backend, or why there is none; `failed` if it exists but does not work."""

    backend: IsolationBackend | None
    why: str = ""
    failed: bool = False


class IsolationProbe:
    """The backends of one profile: what is likely is known immediately, what works after a probe.

    `bubblewrap` is its executable, if any; `landlock` returns its version.
    """

    def __init__(
        self,
        spawner: Spawner,
        policy: Callable[[], FilesystemPolicy],
        bubblewrap: str | None,
        timeout: float = PROBE_TIMEOUT,
        landlock: Callable[[], int] = landlock_version,
        *,
        clock: Clock,
    ) -> None:
        self._spawner = spawner
        self._timeout = timeout
        self._policy = policy
        self._program = bubblewrap
        self._version = landlock
        self._clock = clock
        self._trying = anyio.Lock()
        self._result: ProbeResult | None = None
        self._landlock_result: ProbeResult | None = None
        self._trial: Bubblewrap | None = None
        self._failures = 0
        self._retry_at = 0.0

    def guess(self, kind: str) -> ProbeResult:
        """Answer without starting anything; `kind` is bubblewrap or landlock."""
        return self._bubblewrap() if kind == "bubblewrap" else self._landlock()

    async def probe(self, kind: str) -> ProbeResult:
        """Try bubblewrap: too many settings of a machine can forbid what it needs."""
        if kind != "bubblewrap":
            return self._landlock()
        async with self._trying:
            if self._result is None or self._is_due(self._result):
                self._result = await self._try(self._untried())
                self._count(self._result)
            return self._result

    def invalidate(self) -> None:
        """Probe again before the next command, since the isolation could not be set up."""
        self._result = None

    def _is_due(self, result: ProbeResult) -> bool:
        return result.backend is None and self._clock.monotonic() >= self._retry_at

    def _count(self, result: ProbeResult) -> None:
        self._failures = self._failures + 1 if result.backend is None else 0
        wait = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(self._failures - 1, 16))
        self._retry_at = self._clock.monotonic() + wait

    def _bubblewrap(self) -> ProbeResult:
        return self._result if self._result is not None else self._untried()

    def _untried(self) -> ProbeResult:
        if syscall_filter(platform.machine(), (), root=False) is None:
            return ProbeResult(
                None, f"bubblewrap is not supported on {platform.machine()} machines"
            )
        if self._program is None:
            return ProbeResult(None, "bubblewrap is not installed")
        for switch, off in _USER_NAMESPACE_SWITCHES:
            if os.geteuid() != 0 and _read_text(switch) == off:
                return ProbeResult(None, f"user namespaces are disabled ({switch} is {off})")
        return ProbeResult(Bubblewrap(self._program, self._policy()))

    def _landlock(self) -> ProbeResult:
        if syscall_filter(platform.machine(), (), root=False) is None:
            return ProbeResult(None, f"landlock is not supported on {platform.machine()} machines")
        if self._version() < 1:
            return ProbeResult(None, "the kernel has no landlock")
        if self._landlock_result is None:
            self._landlock_result = ProbeResult(Landlock(self._policy()))
        return self._landlock_result

    async def _try(self, result: ProbeResult) -> ProbeResult:
        if result.backend is None or self._program is None:
            return result
        tmp = str(Path(self._policy().tmp).with_name(_TRIAL))
        if self._trial is None:
            # Created once and kept: a probe must not fail because a disk is full by now.
            policy = FilesystemPolicy(tmp=tmp, unix_sockets=self._policy().unix_sockets)
            self._trial = Bubblewrap(self._program, policy)
        reach = ProcessPermissions(writable=(tmp,))
        job = ProcessSpec(
            argv=("/bin/sh", "-c", ":"), cwd="/", env={}, timeout=self._timeout, permissions=reach
        )
        try:
            make_tmp_folder(tmp)
            done = await IsolatedSandbox(self._spawner, self._trial).run(job)
        except NotStarted as error:
            return _probe_failed(f"bubblewrap does not work here: {error.output or 1}")
        except SandboxError as error:
            return _probe_failed(str(error))
        if done.timed_out:
            return _probe_failed(f"bubblewrap did not answer within {self._timeout:.0f} s")
        if done.exit_code == 0:
            return result
        output = done.output[-_MAX_OUTPUT:].decode(errors="replace").strip()
        return _probe_failed(f"bubblewrap does not work here: {output or done.exit_code}")


def _probe_failed(why: str) -> ProbeResult:
    return ProbeResult(None, why, failed=True)


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
