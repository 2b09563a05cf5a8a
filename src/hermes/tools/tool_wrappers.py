"""Wrap tools: load them lazily, redact their output, take checkpoints before them.

A turn lists all tools to the model but calls few, so their specs are kept in `specs.json` and
the code is imported at the first call.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Raw, structs

from hermes.ports.checkpoints import Checkpoint, Checkpoints, RestoreResult
from hermes.ports.tool import SupportsRestore, Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.messages import Message, Text
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec
from hermes.tools.tool_io import earlier_results

SPECS_FILE = Path(__file__).with_name("specs.json")


class LazyTool:
    """Imports the actual tool at its first use."""

    def __init__(self, spec: ToolSpec, make: Callable[[], Tool]) -> None:
        self.spec = spec
        self._make = make
        self._tool: Tool | None = None

    @property
    def tool(self) -> Tool:
        if self._tool is None:
            self._tool = self._make()
        return self._tool

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        return await self.tool.run(args, ctx)

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        """Skip loading a tool that the session never used."""
        if self._tool is None and next(earlier_results(self.spec.name, messages), None) is None:
            return
        if isinstance(self.tool, SupportsRestore):
            self.tool.restore(session, messages)


@cache
def load_specs() -> Mapping[str, ToolSpec]:
    """Read the tool specs written by `scripts/specs.py`, in the order of their registration."""
    return msgspec.json.decode(SPECS_FILE.read_bytes(), type=dict[str, ToolSpec])


def encode_specs(tools: Mapping[str, Tool]) -> bytes:
    specs = {name: tool.spec for name, tool in tools.items()}
    return msgspec.json.format(msgspec.json.encode(specs), indent=1) + b"\n"


class ToolWrapper:
    """A tool whose calls a subclass changes."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        return await self._tool.run(args, ctx)

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        if isinstance(self._tool, SupportsRestore):
            self._tool.restore(session, messages)


class RedactedTool(ToolWrapper):
    """Redacts the output and errors of tools that quote files."""

    def __init__(self, tool: Tool, redact: Callable[[str], str]) -> None:
        super().__init__(tool)
        self._redact = redact

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        try:
            output = await super().run(args, ctx)
        except ToolError as error:
            raise ToolError(self._redact(str(error)), hint=self._redact(error.hint)) from None
        parts = tuple(
            Text(self._redact(part.text)) if isinstance(part, Text) else part
            for part in output.parts
        )
        return structs.replace(output, parts=parts, shown=self._redact(output.shown))


class LazyCheckpoints:
    """Imports the code of the checkpoints at their first use."""

    def __init__(self, make: Callable[[], Checkpoints]) -> None:
        self._make = make
        self._made: Checkpoints | None = None

    @property
    def _checkpoints(self) -> Checkpoints:
        if self._made is None:
            self._made = self._make()
        return self._made

    async def checkpoint_before(self, scope: Scope, args: Raw) -> str:
        return await self._checkpoints.checkpoint_before(scope, args)

    async def changed(self, run: str) -> bool | None:
        return await self._checkpoints.changed(run)

    async def take(self, workspace: str, session: str, reason: str = "") -> Checkpoint:
        return await self._checkpoints.take(workspace, session, reason)

    async def list(self, workspace: str) -> Sequence[Checkpoint]:
        return await self._checkpoints.list(workspace)

    async def restore(self, checkpoint: Checkpoint, session: str) -> RestoreResult:
        return await self._checkpoints.restore(checkpoint, session)


class CheckpointedTool(ToolWrapper):
    def __init__(self, tool: Tool, checkpoints: Checkpoints) -> None:
        super().__init__(tool)
        self._checkpoints = checkpoints

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        if problem := await self._checkpoints.checkpoint_before(ctx.scope, args):
            await ctx.progress(problem)
        return await super().run(args, ctx)
