"""The `execute_code` tool: run a Python program in the sandbox that can call other tools."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.sandbox import Confinement, Process, ProcessSpec, Sandbox
from hermes.ports.tool import CallTool, ToolContext, ToolOutput
from hermes.schema.errors import SandboxError, ToolError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.tools.catalog import load_specs
from hermes.tools.collaborators import ToolCollaborators, required
from hermes.tools.paths import RemotePaths, SessionPaths, reset_remote_folder
from hermes.tools.provenance.command_provenance import (
    CommandProvenance,
    FetchRecorder,
    may_show_unverified,
    program_provenance,
    record_fetches,
    untrusted_workspace,
)
from hermes.tools.provenance.file_provenance import MAX_BACKGROUND, FileProvenance
from hermes.tools.terminal.isolation import (
    default_isolation,
    has_network,
    outside_reason,
    process_permissions,
)
from hermes.tools.terminal.output_cleaner import (
    drop_cut_beginning,
    drop_cut_end,
    join_ends,
    strip_controls,
)
from hermes.tools.terminal.shell import shell_exit_code
from hermes.tools.tool_io import Arguments, encode_result, require_approval

MAX_STDOUT = 50_000
MAX_STDERR = 10_000
KEPT_FACTOR = 4
"""Multiple of the shown output that is kept while the program runs."""
MAX_LINE = 8_000_000


class ChildMessage(Struct, frozen=True):
    """A message from the child: output, a call, or its end."""

    out: str = ""
    err: str = ""
    call: str = ""
    args: Raw = Raw(b"{}")
    end: int | None = None


class CallAnswer(Struct, frozen=True):
    text: str
    failed: bool = False


class PrintedText:
    """Keeps the beginning and the end of what was printed; the middle may be dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begin = ""
        self._end = ""
        self.total = 0

    def add(self, text: str) -> None:
        self.total += len(text)
        room = self._limit * KEPT_FACTOR // 2 - len(self._begin)
        self._begin += text[:room]
        self._end = (self._end + text[room:])[-self._limit * KEPT_FACTOR // 4 :]

    @property
    def cut(self) -> bool:
        return self.total > self._limit

    def text(self, clean: Callable[[str], str]) -> str:
        """Return the text, redacted before it is cut, so that no partial secret remains."""
        if self.total == len(self._begin) + len(self._end):
            begin = end = clean(self._begin + self._end)
            if len(begin) <= self._limit:
                return begin
        else:
            begin = clean(drop_cut_end(self._begin))
            end = clean(drop_cut_beginning(self._end))
        return join_ends(begin, end, self.total, self._limit)


class RunningProgram:
    """Exchanges messages with a running child; `calls` includes rejected ones."""

    def __init__(self, process: Process, call: CallTool, max_calls: int) -> None:
        self._process = process
        self._call = call
        self._max_calls = max_calls
        self._decoder = msgspec.json.Decoder(ChildMessage)
        self.out = PrintedText(MAX_STDOUT)
        self.err = PrintedText(MAX_STDERR)
        self.calls = 0
        self.exit_code: int | None = None

    async def run(self, code: str, tools: dict[str, list[str]], limit: anyio.CancelScope) -> None:
        """Run until the program ends. Its time limit is suspended while a tool runs."""
        await self._process.write_stdin(msgspec.json.encode({"code": code, "tools": tools}) + b"\n")
        rest = b""
        while data := await self._process.read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await self._handle(line, limit)
            if self.exit_code is not None:
                return
            if len(rest) > MAX_LINE:
                raise ToolError("execute_code: a call exceeded 8 MB.")
        # It ended without a message: killed, or it closed our pipe.
        exit_ = await self._process.wait()
        self.exit_code = shell_exit_code(exit_.exit_code) or 1

    async def _handle(self, data: bytes, limit: anyio.CancelScope) -> None:
        try:
            message = self._decoder.decode(data)
        except JSON_ERRORS:
            # The program wrote to our pipe directly: show it, but do not act on it.
            self.out.add(data.decode("utf-8", "replace") + "\n")
            return
        self.out.add(message.out)
        self.err.add(message.err)
        if message.end is not None:
            self.exit_code = message.end
        if message.call:
            left = limit.deadline - anyio.current_time()
            limit.deadline = float("inf")
            answer = await self._answer(message)
            limit.deadline = anyio.current_time() + left
            await self._process.write_stdin(msgspec.json.encode(answer) + b"\n")

    async def _answer(self, message: ChildMessage) -> CallAnswer:
        if self.calls >= self._max_calls:
            return CallAnswer(
                f"More than {self._max_calls} tool calls in one program.", failed=True
            )
        self.calls += 1
        try:
            output = await self._call(message.call, message.args)
        except ToolError as error:
            return CallAnswer(error.sentence, failed=True)
        text = "\n".join(part.text for part in output.parts if isinstance(part, Text))
        return CallAnswer(text, output.failed)


TIMEOUT = 300.0
MAX_CALLS = 50
MAX_SECONDS = 3600.0
"""Seconds including the tools a program calls; its own time is limited by `timeout`."""
MAX_CODE = 200_000
CALLABLE_TOOLS: tuple[str, ...] = (
    "read_file", "write_file", "patch", "search_files", "terminal", "web_search", "web_extract",
)  # fmt: skip
"""Tools a program may call if the turn has them."""
_UNSUPPORTED_ARGUMENTS = frozenset({"background", "pty", "notify_on_complete", "watch_patterns"})

Status = Literal["success", "error", "timeout"]


class CodeArgs(Struct, frozen=True, forbid_unknown_fields=True):
    code: str


class CodeResult(Struct, frozen=True, kw_only=True):
    status: Status
    output: str
    exit_code: int
    tool_calls_made: int
    duration_seconds: float
    error: str | UnsetType = UNSET
    stdout_truncated: bool | UnsetType = UNSET
    stdout_chars: int | UnsetType = UNSET


class CodeDeps(Struct, frozen=True, kw_only=True):
    """Dependencies of the tool.

    `python` finds the interpreter for a folder; `parameters` returns the parameter names of a
    callable tool, None if unknown.
    """

    sandbox: Sandbox
    env: Callable[[Scope], dict[str, str]]
    paths: SessionPaths | RemotePaths
    redact: Callable[[str], str]
    clock: Clock
    python: Callable[[Path], str]
    parameters: Callable[[str], Sequence[str] | None]
    provenance: FileProvenance
    timeout: float = TIMEOUT
    calls: int = MAX_CALLS
    network: bool = False


class ExecuteCode:
    name = "execute_code"

    def __init__(self, deps: CodeDeps) -> None:
        self._deps = deps
        self._arguments = Arguments(self.name, CodeArgs)
        self._child = Path(__file__).with_name("child.py").read_text("utf-8")
        self.spec = self._arguments.spec(
            __file__,
            Effect.OUTSIDE,
            timeout=MAX_SECONDS,
            toolset="code_execution",
            refunded=True,
            changes_files=True,
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        code = self._arguments.decode(args).code
        _check(code)
        folder = self._deps.paths.cwd(ctx.scope)
        confinement = await self._confinement()
        await self._require_approval(code, folder, ctx, confinement)
        isolated = default_isolation(confinement) is Isolation.INSIDE
        look = partial(self._provenance, code, folder, ctx, isolated=isolated)
        foreign = await anyio.to_thread.run_sync(look)
        began = self._deps.clock.monotonic()
        try:
            with record_fetches(self._deps.provenance, foreign, MAX_BACKGROUND) as files:
                tools = _ProgramTools(ctx, files)
                spec = self._process_spec(folder, ctx.scope, confinement)
                async with self._deps.sandbox.open(spec) as process:
                    program = RunningProgram(process, tools.call, self._deps.calls)
                    with anyio.move_on_after(self._deps.timeout) as limit:
                        await program.run(code, self._tools(), limit)
        except SandboxError as error:
            note = reset_remote_folder(self._deps.paths, ctx.scope.session)
            hint = f"{error.hint} {note}".strip()
            raise ToolError(f"execute_code: {error}", hint=hint) from error
        took = self._deps.clock.monotonic() - began
        output = self._output(program, took, late=limit.cancelled_caught)
        return structs.replace(
            output,
            foreign=foreign.shown or tools.foreign,
            unverified=foreign.unverified or tools.unverified,
        )

    async def _confinement(self) -> Confinement:
        try:
            return await self._deps.sandbox.confinement()
        except SandboxError as error:
            raise ToolError(f"execute_code: {error}", hint=error.hint) from error

    def _provenance(
        self, code: str, folder: Path, ctx: ToolContext, *, isolated: bool
    ) -> CommandProvenance:
        """In the sandbox only files and tools can bring in untrusted content."""
        found = program_provenance(code, folder, self._deps.provenance, isolated=isolated)
        online = has_network(self._deps.network, ctx.scope)
        brought = found.fetched or online or ctx.quotes(code)
        unverified = may_show_unverified(
            code, folder, ctx.scope, self._deps.provenance, program=True
        )
        return CommandProvenance(
            found.shown or online, brought, found.folders, untrusted_workspace(ctx), unverified
        )

    async def _require_approval(
        self, code: str, folder: Path, ctx: ToolContext, confinement: Confinement
    ) -> None:
        request = ApprovalRequest(
            tool=self.name,
            action=code,
            reaching=default_isolation(confinement),
            code=True,
            folder=str(folder),
            reason=outside_reason(confinement, ""),
            foreign=ctx.foreign,
        )
        await require_approval(ctx, request)

    def _process_spec(self, folder: Path, scope: Scope, confinement: Confinement) -> ProcessSpec:
        return ProcessSpec(
            argv=(self._deps.python(folder), "-u", "-c", self._child),
            cwd=str(folder),
            env=self._deps.env(scope) | {"PYTHONDONTWRITEBYTECODE": "1"},
            timeout=self._deps.timeout,
            permissions=process_permissions(
                scope, confinement, default_isolation(confinement), network=self._deps.network
            ),
            stdin=b"\n",
            principal=scope.principal,
        )

    def _tools(self) -> dict[str, list[str]]:
        found = ((name, self._deps.parameters(name)) for name in CALLABLE_TOOLS)
        return {name: list(names) for name, names in found if names is not None}

    def _output(self, program: RunningProgram, took: float, *, late: bool) -> ToolOutput:
        code = 124 if late else (1 if program.exit_code is None else program.exit_code)
        status: Status = "timeout" if late else "success" if code == 0 else "error"
        shown = program.out.text(self._clean)
        problem = program.err.text(self._clean).strip()
        if late:
            problem = f"The program was stopped after {self._deps.timeout:g} s.\n{problem}".strip()
        answer = CodeResult(
            status=status,
            output=shown,
            exit_code=code,
            tool_calls_made=program.calls,
            duration_seconds=round(took, 2),
            error=problem or UNSET,
            stdout_truncated=True if program.out.cut else UNSET,
            stdout_chars=program.out.total if program.out.cut else UNSET,
        )
        return ToolOutput.text(encode_result(answer), shown=shown or problem, failed=code != 0)

    def _clean(self, text: str) -> str:
        return self._deps.redact(strip_controls(text))


class _ProgramTools:
    """The turn's tools, restricted to what a program that waits for answers can use.

    Records whether they gave it untrusted content, which it may write into files.
    """

    def __init__(self, ctx: ToolContext, files: FetchRecorder) -> None:
        self._ctx = ctx
        self._files = files
        self.foreign = False
        self.unverified = False

    async def call(self, name: str, args: Raw) -> ToolOutput:
        if name not in CALLABLE_TOOLS:
            raise ToolError(f"{name} cannot be called from a program.")
        arguments = msgspec.json.decode(args, type=dict[str, Raw])
        if name == "terminal" and (wrong := sorted(_UNSUPPORTED_ARGUMENTS & arguments.keys())):
            raise ToolError(f"terminal does not support {', '.join(wrong)} inside a program.")
        output = await self._ctx.call_tool(name, args)
        self.unverified |= output.unverified
        if output.foreign:
            self.foreign = True
            self._files.start()
        return output


def _check(code: str) -> None:
    if not code.strip():
        raise ToolError("execute_code: `code` is empty.")
    if len(code) > MAX_CODE:
        raise ToolError(f"execute_code: `code` is longer than {MAX_CODE:,} characters.")


def build_execute_code(deps: ToolCollaborators) -> ExecuteCode:
    specs = load_specs()

    def parameters(name: str) -> Sequence[str] | None:
        return list(specs[name].schema["properties"]) if name in specs else None

    return ExecuteCode(
        CodeDeps(
            sandbox=deps.sandbox,
            env=deps.env,
            paths=deps.command_paths,
            redact=deps.redact,
            clock=deps.clock,
            python=(lambda folder: "python3") if deps.remote_programs else required(deps.python),
            parameters=parameters,
            timeout=deps.code_timeout,
            calls=deps.code_calls,
            network=deps.network,
            provenance=deps.provenance,
        )
    )
