"""The `terminal` tool: one shell command at a time, in the folder the last one left us in."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import anyio
import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from hermes.kit.clock import Clock
from hermes.ports.counsel import Reaching, Wish
from hermes.ports.sandbox import Confinement, Finished, Job, Reach, Sandbox
from hermes.ports.tool import Output, ToolContext
from hermes.schema.errors import SandboxError, ToolError
from hermes.schema.messages import Message, Text, text_of
from hermes.schema.scope import Role, Scope
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.arguments import Arguments, description, result
from hermes.tools.caps import USUAL
from hermes.tools.far_places import FarPlaces, back_to_first
from hermes.tools.origins import LONGEST_BEHIND, Origins
from hermes.tools.places import Places
from hermes.tools.processes.record import Record
from hermes.tools.processes.registry import Order, Registry
from hermes.tools.reaching import usual_reaching, why_outside
from hermes.tools.terminal.exit_codes import as_shell, how_it_ended, is_benign, meaning
from hermes.tools.terminal.foreign import (
    Foreign,
    begun,
    bringing,
    could_show_others,
    foreign_of,
    named_in,
    others_in,
)
from hermes.tools.terminal.held_back import hint
from hermes.tools.terminal.shell import MAX_COMMAND, MAX_TIMEOUT, Shell
from hermes.tools.terminal.spills import Spills
from hermes.tools.terminal.viewing import View, Viewing
from hermes.tools.transcript import results

LONGEST_CHARACTER = 4
"""Bytes."""
MAX_PATTERNS = 10
MAX_PATTERN = 200
_STARTED = "Background process started"
_POLL = (
    "Nobody can be told later here: the connection ends with this answer. Nothing was registered; "
    "ask for the outcome with process(action='poll') or process(action='wait')."
)


class TerminalArgs(Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    timeout: Annotated[int, Meta(ge=0, le=MAX_TIMEOUT, description="Seconds, default 180")] = 0
    workdir: Annotated[str, Meta(description="For this command only")] = ""
    background: bool = False
    pty: Annotated[bool, Meta(description="Give it a terminal")] = False
    notify_on_complete: Annotated[bool, Meta(description="In background: tell me the end")] = False
    watch_patterns: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=MAX_PATTERN)], ...],
        Meta(max_length=MAX_PATTERNS, description="Or tell me lines with these words"),
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


class _Moved(Struct, frozen=True):
    """The part of an answer that says where the shell stands from then on."""

    cwd: str = ""


_MOVED = msgspec.json.Decoder(_Moved)


class TerminalParts(Struct, frozen=True, kw_only=True):
    """What the tool is made of; `env` builds a child's environment, `redact` masks secrets.

    Without `processes` nothing can be left running. `network` is what commands may do with it
    without asking, `writable` where they may write besides the workspace. `most` characters of
    the output are seen by the model.
    """

    sandbox: Sandbox
    shell: Shell
    env: Callable[[Scope], dict[str, str]]
    places: Places | FarPlaces
    spills: Spills
    redact: Callable[[str], str]
    clock: Clock
    timeout: float = 180.0
    processes: Registry | None = None
    network: bool = False
    writable: tuple[str, ...] = ()
    origins: Origins | None = None
    most: int = USUAL.output


class _Permit(Struct, frozen=True):
    """Where a command runs, how far it may go, and what was said when it was allowed.

    `foreign` is what of others comes with it.
    """

    sandbox: Sandbox
    reaching: Reaching
    reach: Reach
    said: str = ""
    foreign: Foreign = Foreign()


class Terminal:
    def __init__(self, parts: TerminalParts) -> None:
        self._parts = parts
        self._arguments = Arguments("terminal", TerminalArgs)
        self.spec = ToolSpec(
            "terminal",
            description(f"{Path(__file__).parent}/terminal"),
            self._arguments.schema,
            Effect.OUTSIDE,
            timeout=MAX_TIMEOUT + 20.0,
            toolset="terminal",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        asked = self._arguments.decode(args)
        _check(asked)
        if not asked.timeout:
            asked = structs.replace(asked, timeout=max(1, round(self._parts.timeout)))
        folder = self._folder(ctx.scope, asked.workdir)
        try:
            permit = await self._permit(asked, ctx, folder)
            if asked.background:
                return await self._leave_running(asked, ctx, folder, permit)
            return await self._run(asked, ctx, folder, permit)
        except SandboxError as error:
            back = "" if asked.workdir else back_to_first(self._parts.places, ctx.scope.session)
            raise ToolError(f"terminal: {error}", hint=f"{error.hint} {back}".strip()) from error

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        """Stand where the transcript says the shell stood last, if that folder is still there."""
        folders = (_folder_in(text_of(message)) for message in results(self.spec.name, messages))
        last = next((Path(folder) for folder in folders if folder), None)
        there = self._parts.places.is_folder
        self._parts.places.move(session, last if last and there(last) else None)

    def _folder(self, scope: Scope, workdir: str) -> Path:
        if not workdir:
            return self._parts.places.cwd(scope)
        folder = self._parts.places.find(scope, workdir)
        if not self._parts.places.is_folder(folder):
            raise ToolError(f"terminal: `workdir` is not a folder: {folder}")
        return folder

    async def _permit(self, asked: TerminalArgs, ctx: ToolContext, folder: Path) -> _Permit:
        """Every command is asked about first. Raises `ToolError` for one that may not run."""
        sandbox = self._parts.sandbox
        held = await sandbox.confinement()
        reaching = _reaching(asked, held)
        wish = Wish(  # noqa: S604 - says that it is for a shell, and runs nothing
            tool=self.spec.name,
            action=asked.command,
            reaching=reaching,
            shell=True,
            folder=str(folder),
            reason=why_outside(held, asked.reason),
            foreign=ctx.foreign,
        )
        ruling = await ctx.ask(wish)
        if not ruling.allowed:
            raise ToolError(f"terminal: {ruling.why}")
        reach = Reach(
            writable=(ctx.scope.workspace, *self._parts.writable),
            network=self._online(ctx.scope) or reaching is Reaching.NETWORK,
            beyond=reaching is Reaching.BEYOND,
            wall=held.wall,
        )
        look = partial(self._foreign, asked.command, folder, ctx, reaching)
        return _Permit(sandbox, reaching, reach, ruling.why, await anyio.to_thread.run_sync(look))

    def _foreign(self, command: str, folder: Path, ctx: ToolContext, reaching: Reaching) -> Foreign:
        """Behind the wall only files bring in what others wrote; without it, fetching does."""
        network, origins = self._online(ctx.scope), self._parts.origins
        if reaching in {Reaching.NETWORK, Reaching.BEYOND}:
            where = named_in(command, folder, origins).where
            return Foreign(shown=True, brought=True, where=where, others=others_in(ctx))
        open_ = network or reaching is Reaching.OPEN
        found = (foreign_of if open_ else named_in)(command, folder, origins)
        shown, brought = found.shown or network, found.brought or ctx.quotes(command)
        unverified = shown or could_show_others(command, folder, ctx.scope, origins)
        return Foreign(shown, brought, found.where, others_in(ctx), unverified)

    def _online(self, scope: Scope) -> bool:
        """Without asking; never for guests."""
        return self._parts.network and scope.role is not Role.GUEST

    async def _run(
        self, asked: TerminalArgs, ctx: ToolContext, folder: Path, permit: _Permit
    ) -> Output:
        parts = self._parts
        viewing = Viewing(parts.redact, parts.spills, parts.most)
        with parts.spills.opened(ctx.scope.principal) as spill:
            job = Job(
                argv=parts.shell.argv(asked.command),
                cwd=str(folder),
                env=parts.env(ctx.scope),
                timeout=asked.timeout,
                reach=permit.reach,
                keep=parts.most * LONGEST_CHARACTER,
                spill=spill.path if spill else None,
                principal=ctx.scope.principal,
            )
            hear = viewing.progress(ctx.progress, parts.clock).hear
            with bringing(parts.origins, permit.foreign):
                done = await permit.sandbox.run(job, hear, pty=asked.pty)
            seen = await viewing.view(done, spill)
        standing = seen.mark.folder if seen.mark else folder
        there = standing.is_absolute() and parts.places.is_folder(standing)
        moved = standing if there and standing != folder and not asked.workdir else None
        if moved is not None:
            parts.places.move(ctx.scope.session, moved)
        return self._output(asked, done, seen, moved, permit)

    def _output(
        self, asked: TerminalArgs, done: Finished, seen: View, moved: Path | None, permit: _Permit
    ) -> Output:
        code = as_shell(done.exit_code)
        how = how_it_ended(done, asked.command, seen.mark.code if seen.mark else None)
        explained = meaning(asked.command, code, how)
        error = f"The command was ended after {asked.timeout} s." if done.timed_out else None
        failed = not is_benign(asked.command, code)
        notes = [_ended_too(done.left)] if done.left else []
        if failed:
            notes.append(hint(seen.text, permit.sandbox.wall, permit.reaching))
        answer = TerminalResult(
            output=seen.text,
            exit_code=code,
            error=error,
            exit_code_meaning=explained if explained and not error else UNSET,
            cwd=str(moved) if moved else UNSET,
            truncated=True if seen.cut else UNSET,
            full_output=str(seen.full) if seen.full else UNSET,
            approval=permit.said or UNSET,
            note=" ".join(filter(None, notes)) or UNSET,
        )
        return Output(
            (Text(result(answer)),),
            seen.text,
            failed,
            permit.foreign.shown,
            permit.foreign.unverified,
        )

    async def _leave_running(
        self, asked: TerminalArgs, ctx: ToolContext, folder: Path, permit: _Permit
    ) -> Output:
        if self._parts.processes is None:
            raise ToolError("terminal: nothing can be left running here.")
        later = ctx.scope.later
        fetching = begun(self._parts.origins, permit.foreign, LONGEST_BEHIND)
        order = Order(
            sandbox=permit.sandbox,
            job=Job(
                argv=self._parts.shell.plain_argv(asked.command),
                cwd=str(folder),
                env=self._parts.env(ctx.scope),
                timeout=0.0,
                reach=permit.reach,
                principal=ctx.scope.principal,
            ),
            command=asked.command,
            scope=ctx.scope,
            pty=asked.pty,
            reaching=permit.reaching,
            foreign=permit.foreign.shown or permit.foreign.brought,
            unverified=permit.foreign.unverified,
            over=fetching.over,
            notify=asked.notify_on_complete and later,
            watch=asked.watch_patterns if later and not asked.notify_on_complete else (),
        )
        try:
            record = await self._parts.processes.begin(order)
        except BaseException:
            fetching.over()
            raise
        answer = _begun(record, asked, permit)
        return Output.text(result(answer), shown=f"{_STARTED}: {record.id}")


def _begun(record: Record, asked: TerminalArgs, permit: _Permit) -> BackgroundResult:
    promised = asked.notify_on_complete or bool(asked.watch_patterns)
    kept = record.notify or bool(record.watch)
    return BackgroundResult(
        output=_STARTED,
        session_id=record.id,
        pid=record.pid,
        notify_on_complete=record.notify if promised else UNSET,
        watch_patterns=record.watch or UNSET,
        notify_unsupported=_POLL if promised and not kept else UNSET,
        approval=permit.said or UNSET,
        hint=UNSET if kept else "process(action='poll') shows how it is; nothing is told by itself",
    )


def _reaching(asked: TerminalArgs, held: Confinement) -> Reaching:
    usual = usual_reaching(held)
    if not held.wall:
        return usual
    match asked.escalate:
        case "network":
            return Reaching.NETWORK
        case "outside":
            return Reaching.BEYOND
        case _:
            return usual


def _check(asked: TerminalArgs) -> None:
    command = asked.command
    if not command.strip():
        raise ToolError("terminal: `command` is empty")
    if "\0" in command:
        raise ToolError("terminal: `command` contains a NUL character")
    if len(command.encode("utf-8", "replace")) > MAX_COMMAND:
        raise ToolError(
            f"terminal: `command` is longer than {MAX_COMMAND:,} bytes.",
            hint="Write the data into a file with write_file first.",
        )
    if asked.escalate and not asked.reason.strip():
        raise ToolError("terminal: `escalate` needs a `reason` that the user can judge.")
    if (asked.notify_on_complete or asked.watch_patterns) and not asked.background:
        raise ToolError(
            "terminal: `notify_on_complete` and `watch_patterns` are for background processes.",
            hint="Set `background`, or leave them out and wait for the result.",
        )


def _folder_in(answer: str) -> str:
    """Nothing for a refusal, which is no JSON, and for a command that did not move."""
    try:
        return _MOVED.decode(answer).cwd
    except msgspec.DecodeError:
        return ""


def _ended_too(count: int) -> str:
    what = "A process" if count == 1 else f"{count} processes"
    return f"{what} left in the background ended with the command; `background` keeps one."
