"""The `process` tool: inspect and control the background processes of a session."""

import re
import shlex
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
import anyio.to_thread
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from hermes.kit.clock import Clock
from hermes.kit.text import one_line
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.processes import BackgroundProcess, ProcessState
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators, required
from hermes.tools.processes.registry import LiveProcess, ProcessRegistry
from hermes.tools.provenance.file_provenance import MAX_FOREGROUND, FileProvenance
from hermes.tools.tool_io import DEFAULT_LIMITS, Arguments, encode_result, require_approval

MAX_WAIT = 600
DEFAULT_WAIT = 180
PREVIEW_LENGTH = 1_000
DEFAULT_LINES = 200
MAX_COMMAND = 200
FEED_TIMEOUT = 5.0
"""Seconds in which a process must start reading its input."""

Action: TypeAlias = Literal["list", "poll", "log", "wait", "kill", "write", "submit", "close"]


class ProcessArgs(Struct, frozen=True, forbid_unknown_fields=True):
    action: Action
    session_id: Annotated[str, Meta(description="proc_…; not for list")] = ""
    data: str = ""
    timeout: Annotated[int, Meta(ge=0, le=MAX_WAIT, description="For wait: seconds")] = 0
    offset: Annotated[
        int, Meta(ge=0, description="For log: first line, default: the last ones")
    ] = 0
    limit: Annotated[int, Meta(ge=0, le=2000, description="For log: lines, default 200")] = 0


class ListedProcess(Struct, frozen=True, kw_only=True):
    session_id: str
    command: str
    status: str
    pid: int
    uptime_seconds: int
    cwd: str
    exit_code: int | UnsetType = UNSET
    notify_on_complete: bool | UnsetType = UNSET


class ListResult(Struct, frozen=True):
    processes: list[ListedProcess]


class ProcessAnswer(Struct, frozen=True, kw_only=True):
    """The answer of every action except `list`; fields that do not apply are omitted."""

    session_id: str
    command: str
    status: str
    pid: int
    uptime_seconds: int
    output_preview: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    total_lines: int | UnsetType = UNSET
    showing: str | UnsetType = UNSET
    exit_code: int | UnsetType | None = UNSET
    exit_code_meaning: str | UnsetType = UNSET
    completion_reason: str | UnsetType = UNSET
    termination_source: str | UnsetType = UNSET
    full_output: str | UnsetType = UNSET
    note: str | UnsetType = UNSET


class ProcessTool:
    def __init__(
        self,
        registry: ProcessRegistry,
        clock: Clock,
        provenance: FileProvenance,
        max_output: int = DEFAULT_LIMITS.output,
    ) -> None:
        """`max_output`: characters of output shown per call."""
        self._max_output = max_output
        self._registry = registry
        self._clock = clock
        self._provenance = provenance
        self._pending_input: WeakKeyDictionary[LiveProcess, PendingInput] = WeakKeyDictionary()
        self._arguments = Arguments("process", ProcessArgs)
        self.spec = self._arguments.spec(
            __file__, Effect.OUTSIDE, timeout=MAX_WAIT + 20.0, toolset="terminal"
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        await anyio.lowlevel.checkpoint()
        if arguments.action == "list":
            records = await self._registry.list_for(ctx.scope)
            text = encode_result(ListResult([self._listed(record) for record in records]))
            return ToolOutput.text(text, shown=f"{len(records)} processes")
        if not arguments.session_id:
            raise ToolError(f"process: `session_id` is missing for {arguments.action}.")
        record, live = await self._registry.find(ctx.scope, arguments.session_id)
        answer = await self._answer(arguments, ctx, record, live)
        record = live.record if live else record
        shown = answer.output if isinstance(answer.output, str) else answer.output_preview
        foreign = record.foreign or record.reaching in {Isolation.NETWORK, Isolation.BEYOND}
        shown = shown if isinstance(shown, str) else ""
        return ToolOutput((Text(encode_result(answer)),), shown, False, foreign, record.unverified)

    async def _answer(
        self,
        arguments: ProcessArgs,
        ctx: ToolContext,
        record: BackgroundProcess,
        live: LiveProcess | None,
    ) -> ProcessAnswer:
        match arguments.action:
            case "log":
                return self._log(record, live, arguments)
            case "wait":
                return await self._wait(record, live, arguments.timeout or DEFAULT_WAIT)
            case "kill":
                return await self._kill(record, live)
            case "write" | "submit" | "close":
                return await self._write(_require_running(record, live), arguments, ctx)
            case _:
                return self._poll(record, live)

    def _listed(self, record: BackgroundProcess) -> ListedProcess:
        return ListedProcess(
            session_id=record.id,
            command=one_line(record.command, MAX_COMMAND),
            status=_status(record),
            pid=record.pid,
            uptime_seconds=self._uptime(record),
            cwd=record.folder,
            exit_code=UNSET if record.exit_code is None else record.exit_code,
            notify_on_complete=True if record.notify else UNSET,
        )

    def _answer_for(
        self, record: BackgroundProcess, **more: str | int | UnsetType
    ) -> ProcessAnswer:
        ended = not record.is_running
        return ProcessAnswer(
            session_id=record.id,
            command=one_line(record.command, MAX_COMMAND),
            status=_status(record),
            pid=record.pid,
            uptime_seconds=self._uptime(record),
            exit_code=record.exit_code if ended else UNSET,
            exit_code_meaning=record.meaning or UNSET,
            completion_reason=record.state.value if ended else UNSET,
            termination_source=record.source or UNSET,
            **more,  # pyright: ignore[reportArgumentType] - each name has a type of its own
        )

    def _uptime(self, record: BackgroundProcess) -> int:
        until = record.ended or self._clock.now()
        return max(0, round((until - record.started).total_seconds()))

    def _poll(self, record: BackgroundProcess, live: LiveProcess | None) -> ProcessAnswer:
        return self._answer_for(record, output_preview=_tail(record, live, PREVIEW_LENGTH))

    def _log(
        self, record: BackgroundProcess, live: LiveProcess | None, arguments: ProcessArgs
    ) -> ProcessAnswer:
        lines = (live.output.text if live else record.output).splitlines()
        limit = arguments.limit or DEFAULT_LINES
        first = arguments.offset - 1 if arguments.offset else max(0, len(lines) - limit)
        some = lines[first : first + limit]
        text = "\n".join(some)
        short = bool(live and live.output.dropped) or (live is None and bool(record.log))
        return self._answer_for(
            record,
            output=text[-self._max_output :],
            total_lines=len(lines),
            showing=f"lines {first + 1} to {first + len(some)}" if some else "no lines",
            full_output=record.log if short or len(text) > self._max_output else UNSET,
        )

    async def _wait(
        self, record: BackgroundProcess, live: LiveProcess | None, seconds: int
    ) -> ProcessAnswer:
        if live is not None:
            with anyio.move_on_after(seconds):
                await live.ended.wait()
            record = live.record
        note = f"It is still running after {seconds} s." if record.is_running else UNSET
        return self._answer_for(record, output=_tail(record, live, self._max_output), note=note)

    async def _kill(self, record: BackgroundProcess, live: LiveProcess | None) -> ProcessAnswer:
        if live is None and record.is_running:
            raise _runs_elsewhere(record)
        if live is not None:
            record = await self._registry.end(live, "process kill")
        return self._poll(record, live)

    async def _write(
        self, live: LiveProcess, arguments: ProcessArgs, ctx: ToolContext
    ) -> ProcessAnswer:
        if arguments.action == "close":
            live.process.close_stdin()
            return self._poll(live.record, live)
        data = arguments.data + ("\n" if arguments.action == "submit" else "")
        typed = self._pending_input.setdefault(live, PendingInput())
        # Concurrent writes would be approved separately but read as one line.
        async with typed.lock:
            if data != INTERRUPT:
                line = typed.with_more(data)
                await self._require_approval(live.record, line, ctx)
                await anyio.to_thread.run_sync(self._judge_input, live, line, ctx)
            typed.add(data)
            await self._feed(live, data)
        return self._poll(live.record, live)

    def _judge_input(self, live: LiveProcess, line: str, ctx: ToolContext) -> None:
        """Judge whether the process may print or write untrusted content after this input.

        It is unknown when the input takes effect, so changes in the following minutes count.
        """
        from hermes.tools.provenance.command_provenance import (  # noqa: PLC0415 - rarely needed
            may_show_unverified,
            offline_provenance,
            online_provenance,
            untrusted_workspace,
        )

        record = live.record
        judge = online_provenance if record.reaching is Isolation.OPEN else offline_provenance
        found = judge(line, Path(record.folder), self._provenance)
        brought = found.fetched or ctx.quotes(line)
        if brought:
            self._provenance.note_begin(self._provenance.now(), MAX_FOREGROUND, found.folders)
        if others := untrusted_workspace(ctx):
            self._provenance.record_untrusted_work(others)
        if found.shown or brought:
            live.record = structs.replace(live.record, foreign=True)
        if may_show_unverified(line, Path(record.folder), ctx.scope, self._provenance):
            live.record = structs.replace(live.record, unverified=True)

    async def _feed(self, live: LiveProcess, data: str) -> None:
        with anyio.move_on_after(FEED_TIMEOUT) as timeout:
            await live.process.write_stdin(data.encode())
        if timeout.cancelled_caught:
            raise ToolError("process: it does not read its input; not everything was written.")

    async def _require_approval(
        self, record: BackgroundProcess, line: str, ctx: ToolContext
    ) -> None:
        """Ask for approval: input to a shell is as powerful as a command.

        It is judged together with the unfinished line before it.
        """
        request = ApprovalRequest(  # noqa: S604 - says that it is for a shell, and runs nothing
            tool="process",
            action=line,
            reaching=record.reaching,
            shell=True,
            code=True,
            folder=record.folder,
            foreign=ctx.foreign,
            target=f"into {record.id}, which runs {record.command}:",
        )
        await require_approval(ctx, request)


def _status(record: BackgroundProcess) -> str:
    return "running" if record.is_running else "exited"


def _tail(record: BackgroundProcess, live: LiveProcess | None, length: int) -> str:
    return live.output.tail(length) if live else record.output[-length:]


def _require_running(record: BackgroundProcess, live: LiveProcess | None) -> LiveProcess:
    if live is not None and not live.ended.is_set():
        return live
    if record.state is ProcessState.RUNNING:
        raise _runs_elsewhere(record)
    raise ToolError(f"process: {record.id} has ended and accepts no input.")


def _runs_elsewhere(record: BackgroundProcess) -> ToolError:
    return ToolError(
        f"process: {record.id} belongs to another running Hermes and can only be reached there.",
        hint=f"Its process id is {record.pid}.",
    )


INTERRUPT = "\x03"
"""Ctrl-C ends what runs and discards the unfinished line, so it needs no approval."""
MAX_PENDING_INPUT = 4_000
_LINE_END = re.compile(r"[\n\r\x03]")


class PendingInput:
    """The unfinished input line of one process. Hold `lock` while adding to it."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self._line = ""

    def with_more(self, data: str) -> str:
        """Return the text the process would read, including the unfinished line."""
        return (self._line + data).removesuffix("\n")

    def add(self, data: str) -> None:
        text = self._line + data
        if data.endswith(INTERRUPT):
            self._line = ""
        elif _is_unfinished(text) and len(text) <= MAX_PENDING_INPUT:
            self._line = text
        else:
            self._line = _LINE_END.split(text)[-1]


def _is_unfinished(text: str) -> bool:
    """Whether a shell would read the next line as a continuation."""
    if text.rstrip("\n").endswith("\\") or "<<" in text:
        return True
    try:
        shlex.split(text)
    except ValueError:
        return True
    return False


def build_process(deps: ToolCollaborators) -> ProcessTool:
    return ProcessTool(
        required(deps.processes),
        deps.clock,
        deps.provenance,
        max_output=deps.output_limits.output,
    )
