"""Run the script of a job, and read whether it wakes the agent."""

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.cron.service import script_path
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import one_line
from hermes.ports.jobs import Job
from hermes.ports.sandbox import ProcessSpec, Sandbox
from hermes.schema.errors import SandboxError, UsageError
from hermes.schema.scope import Scope

TIMEOUT = 3600.0
MAX_OUTPUT = 200_000


class ScriptResult(Struct, frozen=True):
    """`wakes`: false if the script said that the agent is not needed."""

    output: str = ""
    failure: str = ""
    wakes: bool = True


class _LastLine(Struct, frozen=True):
    wake: bool = msgspec.field(name="wakeAgent")


class ScriptRunner:
    """Scripts are the owner's programs, as hooks are; `env` withholds secrets."""

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        env: Callable[[Scope], dict[str, str]],
        redact: Callable[[str], str],
        folder: Path,
    ) -> None:
        self._sandbox = sandbox
        self._env = env
        self._redact = redact
        self._folder = folder

    async def run(self, job: Job, scope: Scope) -> ScriptResult:
        try:
            path = script_path(self._folder, job.script or "")
            timeout = job.policy.timeout or TIMEOUT
            result = await self._sandbox.run(
                ProcessSpec(
                    argv=_argv(path),
                    cwd=scope.workspace,
                    env=self._env(scope),
                    timeout=timeout,
                    keep=MAX_OUTPUT,
                )
            )
        except (UsageError, SandboxError, OSError) as error:
            return ScriptResult(failure=f"The script could not be run: {error}")
        output = self._redact(result.output.decode("utf-8", "replace")).strip()
        if result.timed_out:
            return ScriptResult(output, f"The script took longer than {timeout:g} seconds.")
        if result.exit_code:
            shown = one_line(output[-500:], 300)
            return ScriptResult(output, f"The script ended with code {result.exit_code}: {shown}")
        return _read_last_line(output)


def _argv(path: Path) -> tuple[str, ...]:
    if path.suffix == ".py":
        return sys.executable, str(path)
    if path.suffix in {".sh", ".bash"}:
        return "bash", str(path)
    return (str(path),)


def _read_last_line(output: str) -> ScriptResult:
    *rest, last = output.splitlines() or [""]
    try:
        result = msgspec.json.decode(last, type=_LastLine)
    except JSON_ERRORS:
        return ScriptResult(output)
    return ScriptResult("\n".join(rest).strip(), wakes=result.wake)
