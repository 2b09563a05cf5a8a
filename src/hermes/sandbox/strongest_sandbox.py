"""Choose the strongest sandbox that works on this machine, and check again before each command.

An approval asks for the `Confinement` first and passes it on: a command is rejected rather than
run with weaker isolation. A change is logged once and shown by `state`.
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

WEAKER_NOTE = "the weaker sandbox"
NO_SANDBOX = "Commands run without a sandbox, with all your permissions"
APPROVAL_REQUIRED = "Every command needs approval, because the sandbox cannot be set up"
COMMANDS_REFUSED = "Commands do not run"
PARTIAL_NOTE = (
    "as root it does not protect the modes and times of system files, so commands need approval "
    "as if there were no sandbox"
)
_CHANGED = (
    "The folders changed while the sandbox was being set up, or contain too many nested "
    "repositories: try again, or work in another folder."
)
_HINT = "See `/status` and docs/sandbox.md."


class StrongestSandbox:
    """Chooses among `backends`, strongest first.

    With `fallback`, commands run without a sandbox where no backend is installed. Where one is
    installed but does not work, each command needs approval. Hermes's own programs need none.
    """

    def __init__(
        self,
        spawner: Spawner,
        probe: "Callable[[], IsolationProbe]",
        backends: tuple[str, ...],
        clean_up: Callable[[], Awaitable[None]],
        *,
        owner_git: "Callable[[], OwnerGitConfig]",
        fallback: bool,
    ) -> None:
        self._local = LocalSandbox(spawner)
        self._spawner = spawner
        self._probe = probe
        self._backends = backends
        self._clean_up = clean_up
        self._owner_git = owner_git
        self._fallback = fallback
        self._found: Sandbox | None = None
        self._backend: IsolationBackend | None = None
        self._reasons: list[str] = []
        self._failed = False
        self._known = False
        self._logged: tuple[str, bool] | None = None

    @property
    def name(self) -> str:
        return self._found.name if self._found else self.isolation or "local"

    @property
    def isolation(self) -> str:
        if self._known:
            return self._backend.label if self._backend else ""
        self._reasons = []
        for kind in self._backends:
            result = self._probe().guess(kind)
            if result.backend is not None:
                return result.backend.label
            self._reasons.append(result.why)
        return ""

    @property
    def known(self) -> bool:
        """Whether a trial run has shown what works."""
        return self._known

    @property
    def state(self) -> str:
        """Tell people which sandbox is used, and why not a stronger one."""
        isolation = self.isolation
        reasons = "; ".join(dict.fromkeys(self._reasons))
        if not isolation:
            return f"{self._unsandboxed_state()}: {reasons}."
        weaker = f", {WEAKER_NOTE}: {reasons}" if reasons else ""
        partial = f"; {PARTIAL_NOTE}" if self._backend and not self._backend.complete else ""
        return f"commands run in {isolation}{weaker}{partial}"

    async def confinement(self) -> Confinement:
        await self.refresh()
        if self._backend is not None:
            return Confinement(self._backend.label, complete=self._backend.complete)
        if not self._fallback:
            return Confinement(self._backends[0])
        return Confinement(failed="; ".join(self._reasons) if self._failed else "")

    async def run(
        self,
        job: ProcessSpec,
        on_output: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        pty: bool = False,
    ) -> ProcessResult:
        sandbox = await self._sandbox_for(job)
        async with self._probe_after_failure(job):
            return await sandbox.run(job, on_output, pty=pty)

    @asynccontextmanager
    async def open(self, job: ProcessSpec, *, pty: bool = False) -> AsyncGenerator[Process]:
        sandbox = await self._sandbox_for(job)
        async with self._probe_after_failure(job), sandbox.open(job, pty=pty) as process:
            yield process

    async def refresh(self) -> Sandbox | None:
        """The sandbox that works now; None if the configured one cannot be used."""
        reasons: list[str] = []
        failed = False
        for kind in self._backends:
            result = await self._probe().probe(kind)
            if result.backend is not None:
                await self._switch_to(result.backend)
                break
            reasons.append(result.why)
            failed = failed or result.failed
        else:
            self._backend = None
            self._found = self._local if self._fallback else None
        self._reasons, self._failed, self._known = reasons, failed, True
        self._log_change()
        return self._found

    async def _switch_to(self, backend: "IsolationBackend") -> None:
        if self._backend is backend:
            return
        from hermes.sandbox.isolated_sandbox import IsolatedSandbox  # noqa: PLC0415 - loaded on first use

        await self._clean_up()
        self._found = IsolatedSandbox(self._spawner, backend, owner=self._owner_git())
        self._backend = backend

    def _log_change(self) -> None:
        now = (self.isolation, self._failed)
        before, self._logged = self._logged, now
        if now == before:
            return
        if self.isolation != self._backends[0]:
            log.warning("%s", self.state)
        elif before is not None:
            log.info("the sandbox works again: %s", self.state)

    async def _sandbox_for(self, job: ProcessSpec) -> Sandbox:
        """Raises `SandboxError` if the isolation is weaker than the approved one."""
        if job.permissions.unsandboxed:
            return self._found or self._local
        found = await self.refresh()
        if found is None:
            raise SandboxError(self.state, hint=_HINT)
        if self._is_weaker_than(job.permissions.isolation):
            raise SandboxError(
                f"it was approved for {job.permissions.isolation}, which is no longer available: "
                f"{self.state}",
                hint="Run it again to approve it for the current sandbox.",
            )
        return found

    @asynccontextmanager
    async def _probe_after_failure(self, job: ProcessSpec) -> AsyncGenerator[None]:
        """Check the sandbox again if it could not be set up for a job.

        If it works, only this job is rejected. Raises `SandboxError`.
        """
        backend = None if job.permissions.unsandboxed else self._backend
        try:
            yield
        except NotStarted as error:
            if backend is None:
                raise
            self._probe().invalidate()
            if (await self._probe().probe(backend.name)).backend is None:
                raise
            raise SandboxError(str(error), hint=_CHANGED) from error

    def _is_weaker_than(self, approved: str) -> bool:
        order = ["", *reversed(self._backends)]
        return approved in order and order.index(self.isolation) < order.index(approved)

    def _unsandboxed_state(self) -> str:
        if not self._fallback:
            return f"{COMMANDS_REFUSED}: the {self._backends[0]} sandbox cannot be used"
        return APPROVAL_REQUIRED if self._failed else NO_SANDBOX
