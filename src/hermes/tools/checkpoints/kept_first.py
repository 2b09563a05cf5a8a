"""A tool that changes files: what is there is kept before the first change of a turn."""

from collections.abc import Sequence

from msgspec import Raw

from hermes.ports.checkpoints import Checkpoints
from hermes.ports.tool import Output, Restores, Tool, ToolContext
from hermes.schema.messages import Message
from hermes.schema.tools import ToolSpec


class KeptFirst:
    def __init__(self, tool: Tool, checkpoints: Checkpoints) -> None:
        self._tool = tool
        self._checkpoints = checkpoints

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        if complaint := await self._checkpoints.before(ctx.scope):
            await ctx.progress(complaint)
        return await self._tool.run(args, ctx)

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        if isinstance(self._tool, Restores):
            self._tool.restore(session, messages)
