"""Which wall this machine can put up: found out once, with the first command or when asked."""

import os
import platform
from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.ports.sandbox import Job, Reach
from hermes.sandbox.bubblewrap import Bubblewrap
from hermes.sandbox.door import Door, NotBegun
from hermes.sandbox.filter import syscall_filter
from hermes.sandbox.landlock import Landlock, landlock_version
from hermes.sandbox.view import View, make_private
from hermes.sandbox.walled import Wall, WalledSandbox
from hermes.schema.errors import SandboxError

PATIENCE = 60.0
"""Seconds for the trial: on a busy machine a wall that works must not pass for a broken one."""
_SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
)
_OUTPUT = 300


class Verdict(Struct, frozen=True):
    """A wall, or why there is none of that kind."""

    wall: Wall | None
    why: str = ""


class Walls:
    """The walls of one profile. What is likely is known at once, what is true after a trial.

    `bubblewrap` is its executable, if there is one; `landlock` says which version of it.
    """

    def __init__(
        self,
        door: Door,
        view: Callable[[], View],
        bubblewrap: str | None,
        patience: float = PATIENCE,
        landlock: Callable[[], int] = landlock_version,
    ) -> None:
        self._door = door
        self._patience = patience
        self._view = view
        self._program = bubblewrap
        self._version = landlock
        self._trying = anyio.Lock()
        self._tried: Verdict | None = None

    def likely(self, kind: str) -> Verdict:
        """Without starting anything; `kind` is bubblewrap or landlock."""
        return self._bubblewrap() if kind == "bubblewrap" else self._landlock()

    async def certain(self, kind: str) -> Verdict:
        """Bubblewrap is tried out: too many settings of a machine can forbid what it needs."""
        if kind != "bubblewrap":
            return self._landlock()
        async with self._trying:
            if self._tried is None:
                self._tried = await self._try(self._bubblewrap())
        return self._tried

    def _bubblewrap(self) -> Verdict:
        if self._tried is not None:
            return self._tried
        if self._program is None:
            return Verdict(None, "bubblewrap is not installed")
        for switch, off in _SWITCHES:
            if os.geteuid() != 0 and _text(switch) == off:
                return Verdict(None, f"user namespaces are switched off ({switch} is {off})")
        return Verdict(Bubblewrap(self._program, self._view()))

    def _landlock(self) -> Verdict:
        if syscall_filter(platform.machine(), ()) is None:
            return Verdict(None, f"landlock is not known on {platform.machine()} machines")
        if self._version() < 1:
            return Verdict(None, "the kernel has no landlock")
        return Verdict(Landlock(self._view()))

    async def _try(self, verdict: Verdict) -> Verdict:
        if verdict.wall is None:
            return verdict
        tmp = self._view().tmp
        reach = Reach(writable=(tmp,))
        job = Job(argv=("/bin/sh", "-c", ":"), cwd="/", env={}, timeout=self._patience, reach=reach)
        try:
            make_private(tmp)
            done = await WalledSandbox(self._door, verdict.wall).run(job)
        except NotBegun as error:
            return Verdict(None, f"bubblewrap does not work here: {error.said or 1}")
        except SandboxError as error:
            return Verdict(None, str(error))
        if done.timed_out:
            late = f"bubblewrap gave no answer within {self._patience:.0f} s when it was tried"
            return Verdict(None, late)
        if done.exit_code == 0:
            return verdict
        said = done.output[-_OUTPUT:].decode(errors="replace").strip()
        return Verdict(None, f"bubblewrap does not work here: {said or done.exit_code}")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
