"""The strongest sandbox of this machine that works, looked for again while it is not the first.

Whoever decides on a job asks for its `Confinement` first, and passes on what was there: a job is
refused rather than run with less than that. A change is logged once, and told by `state`.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes.ports.sandbox import Confinement, Process, ProcessResult, ProcessSpec, Sandbox
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import NotStarted, Spawner
from hermes.schema.errors import SandboxError

if TYPE_CHECKING:
    from hermes.sandbox.git_config import OwnerGitConfig
    from hermes.sandbox.isolated_sandbox import IsolationBackend
    from hermes.sandbox.isolation_probe import IsolationProbe

log = logging.getLogger(__name__)

WEAKER_NOTE = "the weaker wall"
NO_SANDBOX = "Commands run without a sandbox, with all the rights you have"
APPROVAL_REQUIRED = "Every command needs approval, because the sandbox cannot be set up"
COMMANDS_REFUSED = "Commands do not run"
PARTIAL_NOTE = (
    "as root it does not protect the modes and times of system files, so commands are approved as "
    "without a sandbox"
)
_CHANGED = (
    "The folders it may use changed while the sandbox was set up, or have too many repositories "
    "deep inside: try again, or work in another folder."
)
_HINT = "`/status` tells more; see docs/sandbox.md."


class StrongestSandbox:
    """`kinds` are the walls to choose from, the stronger first.

    With `fallback` commands run without one where the machine has none. Where it has one that
    does not work, only what somebody approved runs outside of it. Our own programs, which nobody
    decides on, run as far as there is a sandbox.
    """

    def __init__(
        self,
        door: Spawner,
        walls: "Callable[[], IsolationProbe]",
        kinds: tuple[str, ...],
        tidy: Callable[[], Awaitable[None]],
        *,
        owner: "Callable[[], OwnerGitConfig]",
        fallback: bool,
    ) -> None:
        self._local = LocalSandbox(door)
        self._door = door
        self._probe = walls
        self._kinds = kinds
        self._tidy = tidy
        self._owner = owner
        self._fallback = fallback
        self._found: Sandbox | None = None
        self._wall: IsolationBackend | None = None
        self._reasons: list[str] = []
        self._failed = False
        self._known = False
        self._logged: tuple[str, bool] | None = None

    @property
    def name(self) -> str:
        return self._found.name if self._found else self.wall or "local"

    @property
    def wall(self) -> str:
        if self._known:
            return self._wall.word if self._wall else ""
        self._reasons = []
        for kind in self._kinds:
            verdict = self._probe().likely(kind)
            if verdict.wall is not None:
                return verdict.wall.word
            self._reasons.append(verdict.why)
        return ""

    @property
    def known(self) -> bool:
        """Whether a trial has shown what there is."""
        return self._known

    @property
    def state(self) -> str:
        """For people: what holds commands back, and why it is no more than that."""
        wall = self.wall
        reasons = "; ".join(dict.fromkeys(self._reasons))
        if not wall:
            return f"{self._without()}: {reasons}."
        weaker = f", {WEAKER_NOTE}: {reasons}" if reasons else ""
        partial = f"; {PARTIAL_NOTE}" if self._wall and not self._wall.complete else ""
        return f"commands are held back by {wall}{weaker}{partial}"

    async def confinement(self) -> Confinement:
        await self.settle()
        if self._wall is not None:
            return Confinement(self._wall.word, complete=self._wall.complete)
        if not self._fallback:
            return Confinement(self._kinds[0])
        return Confinement(failed="; ".join(self._reasons) if self._failed else "")

    async def run(
        self,
        job: ProcessSpec,
        heard: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        pty: bool = False,
    ) -> ProcessResult:
        sandbox = await self._for(job)
        async with self._checked(job):
            return await sandbox.run(job, heard, pty=pty)

    @asynccontextmanager
    async def open(self, job: ProcessSpec, *, pty: bool = False) -> AsyncGenerator[Process]:
        sandbox = await self._for(job)
        async with self._checked(job), sandbox.open(job, pty=pty) as process:
            yield process

    async def settle(self) -> Sandbox | None:
        """The sandbox that works now; None when the one asked for cannot be used."""
        reasons: list[str] = []
        failed = False
        for kind in self._kinds:
            verdict = await self._probe().certain(kind)
            if verdict.wall is not None:
                await self._use(verdict.wall)
                break
            reasons.append(verdict.why)
            failed = failed or verdict.failed
        else:
            self._wall = None
            self._found = self._local if self._fallback else None
        self._reasons, self._failed, self._known = reasons, failed, True
        self._log_change()
        return self._found

    async def _use(self, wall: "IsolationBackend") -> None:
        if self._wall is wall:
            return
        from hermes.sandbox.isolated_sandbox import IsolatedSandbox  # noqa: PLC0415 - the first command pays for it

        await self._tidy()
        self._wall, self._found = wall, IsolatedSandbox(self._door, wall, owner=self._owner())

    def _log_change(self) -> None:
        now = (self.wall, self._failed)
        before, self._logged = self._logged, now
        if now == before:
            return
        if self.wall == self._kinds[0]:
            if before is not None:
                log.info("the sandbox works again: %s", self.state)
            return
        log.warning("%s", self.state)

    async def _for(self, job: ProcessSpec) -> Sandbox:
        """Raises `SandboxError` where there is less than the job was decided on."""
        if job.reach.beyond:
            return self._found or self._local
        found = await self.settle()
        if found is None:
            raise SandboxError(self.state, hint=_HINT)
        if self._is_weaker_than(job.reach.wall):
            raise SandboxError(
                f"it was to run behind {job.reach.wall}, which is not there any more: {self.state}",
                hint="Run it again to have it approved for the sandbox there is now.",
            )
        return found

    @asynccontextmanager
    async def _checked(self, job: ProcessSpec) -> AsyncGenerator[None]:
        """A sandbox that could not be set up around a job is tried at once.

        If it works, the job alone is refused. Raises `SandboxError`.
        """
        wall = None if job.reach.beyond else self._wall
        try:
            yield
        except NotStarted as error:
            if wall is None:
                raise
            self._probe().doubt()
            if (await self._probe().certain(wall.name)).wall is None:
                raise
            raise SandboxError(str(error), hint=_CHANGED) from error

    def _is_weaker_than(self, promised: str) -> bool:
        order = ["", *reversed(self._kinds)]
        return promised in order and order.index(self.wall) < order.index(promised)

    def _without(self) -> str:
        if not self._fallback:
            return f"{COMMANDS_REFUSED}: the sandbox {self._kinds[0]} cannot be used"
        return APPROVAL_REQUIRED if self._failed else NO_SANDBOX
