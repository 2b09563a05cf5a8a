"""The `terminal` tool: run one shell command at a time, in the session's working directory."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import anyio
import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from hermes.kit.clock import Clock
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.processes import BackgroundProcess
from hermes.ports.sandbox import (
    Confinement,
    ProcessPermissions,
    ProcessResult,
    ProcessSpec,
    Sandbox,
)
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import SandboxError, ToolError
from hermes.schema.messages import Message, Text, text_of
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.paths import RemotePaths, SessionPaths, reset_remote_folder
from hermes.tools.processes.registry import ProcessRegistry, ProcessRequest
from hermes.tools.provenance.command_provenance import (
    CommandProvenance,
    may_show_unverified,
    offline_provenance,
    online_provenance,
    record_fetches,
    start_recorder,
    untrusted_workspace,
)
from hermes.tools.provenance.file_provenance import MAX_BACKGROUND, FileProvenance
from hermes.tools.terminal.isolation import (
    default_isolation,
    denial_hint,
    has_network,
    outside_reason,
    process_permissions,
)
from hermes.tools.terminal.output import OutputFiles, OutputView, OutputViewer
from hermes.tools.terminal.shell import (
    MAX_COMMAND,
    MAX_TIMEOUT,
    Shell,
    exit_cause,
    exit_meaning,
    is_benign,
    shell_exit_code,
)
from hermes.tools.tool_io import (
    DEFAULT_LIMITS,
    Arguments,
    earlier_results,
    encode_result,
    require_approval,
)

MAX_CHARACTER_BYTES = 4
"""Bytes of the longest character in UTF-8."""
MAX_PATTERNS = 10
MAX_PATTERN = 200
_STARTED = "Background process started"
_POLL_NOTE = (
    "Notifications are not possible here: the connection ends with this answer. Nothing was "
    "registered; check with process(action='poll') or process(action='wait')."
)


class TerminalArgs(Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    timeout: Annotated[int, Meta(ge=0, le=MAX_TIMEOUT, description="Seconds, default 180")] = 0
    workdir: Annotated[str, Meta(description="For this command only")] = ""
    background: bool = False
    pty: Annotated[bool, Meta(description="Run it in a terminal")] = False
    notify_on_complete: Annotated[bool, Meta(description="In background: notify when done")] = False
    watch_patterns: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=MAX_PATTERN)], ...],
        Meta(max_length=MAX_PATTERNS, description="Or notify of lines with these words"),
    ] = ()
    escalate: Annotated[
        Literal["", "network", "outside"], Meta(description="Leave the sandbox; needs a reason")
    ] = ""
    reason: str = ""


class TerminalResult(Struct, frozen=True, kw_only=True):
    output: str
    exit_code: int
    error: str | None = None
    exit_code_meaning: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    full_output: str | UnsetType = UNSET
    approval: str | UnsetType = UNSET
    note: str | UnsetType = UNSET


class BackgroundResult(Struct, frozen=True, kw_only=True):
    output: str
    session_id: str
    pid: int
    exit_code: int = 0
    error: str | None = None
    notify_on_complete: bool | UnsetType = UNSET
    watch_patterns: tuple[str, ...] | UnsetType = UNSET
    notify_unsupported: str | UnsetType = UNSET
    approval: str | UnsetType = UNSET
    hint: str | UnsetType = UNSET


class _ResultFolder(Struct, frozen=True):
    """The part of a result that tells the shell's working directory."""

    cwd: str = ""


_RESULT_FOLDER = msgspec.json.Decoder(_ResultFolder)


class TerminalDeps(Struct, frozen=True, kw_only=True):
    """Dependencies of the tool.

    - `env`: builds a child's environment; `redact` masks secrets.
    - `processes`: None disables background processes.
    - `network`: whether commands have network access without an approval.
    - `max_output`: characters of output shown to the model.
    """

    sandbox: Sandbox
    shell: Shell
    env: Callable[[Scope], dict[str, str]]
    paths: SessionPaths | RemotePaths
    output_files: OutputFiles
    redact: Callable[[str], str]
    clock: Clock
    provenance: FileProvenance
    timeout: float = 180.0
    processes: ProcessRegistry | None = None
    network: bool = False
    max_output: int = DEFAULT_LIMITS.output


class _Permit(Struct, frozen=True):
    """Where and with which permissions a command runs, and the text of the approval."""

    sandbox: Sandbox
    reaching: Isolation
    permissions: ProcessPermissions
    approval: str = ""
    foreign: CommandProvenance = CommandProvenance()


class Terminal:
    def __init__(self, deps: TerminalDeps) -> None:
        self._deps = deps
        self._arguments = Arguments("terminal", TerminalArgs)
        self.spec = self._arguments.spec(
            __file__,
            Effect.OUTSIDE,
            timeout=MAX_TIMEOUT + 20.0,
            toolset="terminal",
            stateful=True,
            changes_files=True,
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        _check(arguments)
        if not arguments.timeout:
            arguments = structs.replace(arguments, timeout=max(1, round(self._deps.timeout)))
        folder = self._folder(ctx.scope, arguments.workdir)
        try:
            permit = await self._permit(arguments, ctx, folder)
            if arguments.background:
                return await self._run_in_background(arguments, ctx, folder, permit)
            return await self._run(arguments, ctx, folder, permit)
        except SandboxError as error:
            reset = not arguments.workdir
            note = reset_remote_folder(self._deps.paths, ctx.scope.session) if reset else ""
            raise ToolError(f"terminal: {error}", hint=f"{error.hint} {note}".strip()) from error

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        """Restore the working directory from the transcript, if it still exists."""
        results = earlier_results(self.spec.name, messages)
        folders = (_folder_in_result(text_of(result)) for result in results)
        last = next((Path(folder) for folder in folders if folder), None)
        exists = last is not None and self._deps.paths.is_folder(last)
        self._deps.paths.set_folder(session, last if exists else None)

    def _folder(self, scope: Scope, workdir: str) -> Path:
        if not workdir:
            return self._deps.paths.cwd(scope)
        folder = self._deps.paths.resolve(scope, workdir)
        if not self._deps.paths.is_folder(folder):
            raise ToolError(f"terminal: `workdir` is not a folder: {folder}.")
        return folder

    async def _permit(self, arguments: TerminalArgs, ctx: ToolContext, folder: Path) -> _Permit:
        """Ask for every command. Raises `ToolError` if it is denied."""
        sandbox = self._deps.sandbox
        confinement = await sandbox.confinement()
        reaching = _isolation_for(arguments, confinement)
        request = ApprovalRequest(  # noqa: S604 - says that it is for a shell, and runs nothing
            tool=self.spec.name,
            action=arguments.command,
            reaching=reaching,
            shell=True,
            folder=str(folder),
            reason=outside_reason(confinement, arguments.reason),
            foreign=ctx.foreign,
        )
        why = await require_approval(ctx, request)
        permissions = process_permissions(
            ctx.scope, confinement, reaching, network=self._deps.network
        )
        look = partial(self._provenance, arguments.command, folder, ctx, reaching)
        return _Permit(sandbox, reaching, permissions, why, await anyio.to_thread.run_sync(look))

    def _provenance(
        self, command: str, folder: Path, ctx: ToolContext, reaching: Isolation
    ) -> CommandProvenance:
        """Untrusted content comes from files, and outside the sandbox from the network."""
        network, origins = has_network(self._deps.network, ctx.scope), self._deps.provenance
        if reaching in {Isolation.NETWORK, Isolation.BEYOND}:
            where = offline_provenance(command, folder, origins).folders
            return CommandProvenance(
                shown=True, fetched=True, folders=where, others=untrusted_workspace(ctx)
            )
        online = network or reaching is Isolation.OPEN
        found = (online_provenance if online else offline_provenance)(command, folder, origins)
        shown, brought = found.shown or network, found.fetched or ctx.quotes(command)
        unverified = shown or may_show_unverified(command, folder, ctx.scope, origins)
        return CommandProvenance(
            shown, brought, found.folders, untrusted_workspace(ctx), unverified
        )

    async def _run(
        self, arguments: TerminalArgs, ctx: ToolContext, folder: Path, permit: _Permit
    ) -> ToolOutput:
        parts = self._deps
        viewing = OutputViewer(parts.redact, parts.output_files, parts.max_output)
        with parts.output_files.opened(ctx.scope.principal) as spill:
            job = ProcessSpec(
                argv=parts.shell.argv(arguments.command),
                cwd=str(folder),
                env=parts.env(ctx.scope),
                timeout=arguments.timeout,
                permissions=permit.permissions,
                keep=parts.max_output * MAX_CHARACTER_BYTES,
                overflow_file=spill.path if spill else None,
                principal=ctx.scope.principal,
            )
            progress = viewing.progress(ctx.progress, parts.clock)
            with record_fetches(parts.provenance, permit.foreign):
                async with progress.reporting():
                    done = await permit.sandbox.run(job, progress.feed, pty=arguments.pty)
            view = await viewing.view(done, spill)
        ended_in = view.mark.folder if view.mark else folder
        exists = ended_in.is_absolute() and parts.paths.is_folder(ended_in)
        moved = ended_in if exists and ended_in != folder and not arguments.workdir else None
        if moved is not None:
            parts.paths.set_folder(ctx.scope.session, moved)
        return self._output(arguments, done, view, moved, permit)

    def _output(
        self,
        arguments: TerminalArgs,
        done: ProcessResult,
        view: OutputView,
        moved: Path | None,
        permit: _Permit,
    ) -> ToolOutput:
        code = shell_exit_code(done.exit_code)
        cause = exit_cause(done, arguments.command, view.mark.code if view.mark else None)
        explained = exit_meaning(arguments.command, code, cause)
        error = f"The command was stopped after {arguments.timeout} s." if done.timed_out else None
        failed = not is_benign(arguments.command, code)
        notes = [_left_running_note(done.left)] if done.left else []
        if failed:
            notes.append(denial_hint(view.text, permit.sandbox.isolation, permit.reaching))
        answer = TerminalResult(
            output=view.text,
            exit_code=code,
            error=error,
            exit_code_meaning=explained if explained and not error else UNSET,
            cwd=str(moved) if moved else UNSET,
            truncated=True if view.cut else UNSET,
            full_output=str(view.full) if view.full else UNSET,
            approval=permit.approval or UNSET,
            note=" ".join(filter(None, notes)) or UNSET,
        )
        return ToolOutput(
            (Text(encode_result(answer)),),
            view.text,
            failed,
            permit.foreign.shown,
            permit.foreign.unverified,
        )

    async def _run_in_background(
        self, arguments: TerminalArgs, ctx: ToolContext, folder: Path, permit: _Permit
    ) -> ToolOutput:
        if self._deps.processes is None:
            raise ToolError("terminal: background processes are not available here.")
        later = ctx.scope.later
        recorder = start_recorder(self._deps.provenance, permit.foreign, MAX_BACKGROUND)
        request = ProcessRequest(
            sandbox=permit.sandbox,
            job=ProcessSpec(
                argv=self._deps.shell.background_argv(arguments.command),
                cwd=str(folder),
                env=self._deps.env(ctx.scope),
                timeout=0.0,
                permissions=permit.permissions,
                principal=ctx.scope.principal,
            ),
            command=arguments.command,
            scope=ctx.scope,
            pty=arguments.pty,
            reaching=permit.reaching,
            foreign=permit.foreign.shown or permit.foreign.fetched,
            unverified=permit.foreign.unverified,
            on_end=recorder.end,
            notify=arguments.notify_on_complete and later,
            watch=arguments.watch_patterns if later and not arguments.notify_on_complete else (),
        )
        try:
            record = await self._deps.processes.start(request)
        except BaseException:
            recorder.end()
            raise
        answer = _started_result(record, arguments, permit)
        return ToolOutput.text(encode_result(answer), shown=f"{_STARTED}: {record.id}")


def _started_result(
    record: BackgroundProcess, arguments: TerminalArgs, permit: _Permit
) -> BackgroundResult:
    requested = arguments.notify_on_complete or bool(arguments.watch_patterns)
    registered = record.notify or bool(record.watch)
    return BackgroundResult(
        output=_STARTED,
        session_id=record.id,
        pid=record.pid,
        notify_on_complete=record.notify if requested else UNSET,
        watch_patterns=record.watch or UNSET,
        notify_unsupported=_POLL_NOTE if requested and not registered else UNSET,
        approval=permit.approval or UNSET,
        hint=UNSET
        if registered
        else "process(action='poll') shows its state; there is no automatic notification",
    )


def _isolation_for(arguments: TerminalArgs, confinement: Confinement) -> Isolation:
    escalated = {"network": Isolation.NETWORK, "outside": Isolation.BEYOND}
    default = default_isolation(confinement)
    return escalated.get(arguments.escalate, default) if confinement.isolation else default


def _check(arguments: TerminalArgs) -> None:
    command = arguments.command
    if not command.strip():
        raise ToolError("terminal: `command` is empty.")
    if "\0" in command:
        raise ToolError("terminal: `command` contains a NUL character.")
    if len(command.encode("utf-8", "replace")) > MAX_COMMAND:
        raise ToolError(
            f"terminal: `command` is longer than {MAX_COMMAND:,} bytes.",
            hint="Write the data into a file with write_file first.",
        )
    if arguments.escalate and not arguments.reason.strip():
        raise ToolError("terminal: `escalate` needs a `reason` that the user can judge.")
    if (arguments.notify_on_complete or arguments.watch_patterns) and not arguments.background:
        raise ToolError(
            "terminal: `notify_on_complete` and `watch_patterns` are for background processes.",
            hint="Set `background`, or leave them out and wait for the result.",
        )


def _folder_in_result(answer: str) -> str:
    """Empty for errors, which are not JSON, and for commands that did not change the folder."""
    try:
        return _RESULT_FOLDER.decode(answer).cwd
    except msgspec.DecodeError:
        return ""


def _left_running_note(count: int) -> str:
    what = "A process" if count == 1 else f"{count} processes"
    return f"{what} left running was stopped with the command; use `background` to keep one."


def build_terminal(deps: ToolCollaborators) -> Terminal:
    return Terminal(
        TerminalDeps(
            sandbox=deps.sandbox,
            shell=deps.command_shell,
            env=deps.env,
            paths=deps.command_paths,
            output_files=OutputFiles(deps.spill_folder),
            redact=deps.redact,
            clock=deps.clock,
            timeout=deps.command_timeout,
            processes=deps.processes,
            network=deps.network,
            provenance=deps.provenance,
            max_output=deps.output_limits.output,
        )
    )
