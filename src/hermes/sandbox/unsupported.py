"""Refuse every command, because the settings name a sandbox that this version does not have."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from hermes.ports.sandbox import Confinement, Process, ProcessResult, ProcessSpec
from hermes.schema.errors import SandboxError


class UnsupportedSandbox:
    """Stands for the named sandbox: running elsewhere instead would not be what was configured."""

    isolation = ""

    def __init__(self, name: str, reason: str, hint: str) -> None:
        self.name = name
        self._reason = reason
        self._hint = hint

    async def confinement(self) -> Confinement:
        raise self._refusal()

    async def run(
        self,
        job: ProcessSpec,
        on_output: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        pty: bool = False,
    ) -> ProcessResult:
        raise self._refusal()

    def open(self, job: ProcessSpec, *, pty: bool = False) -> AbstractAsyncContextManager[Process]:
        raise self._refusal()

    def _refusal(self) -> SandboxError:
        return SandboxError(f"{self._reason}, so commands and code cannot run", hint=self._hint)
