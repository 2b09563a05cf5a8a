"""A tool whose every word is masked before anybody reads it."""

from collections.abc import Callable

from msgspec import Raw, structs

from hermes.ports.tool import Output, Tool, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.tools import ToolSpec


class Masked:
    """For tools that quote files: diffs and errors show lines nobody asked to see."""

    def __init__(self, tool: Tool, redact: Callable[[str], str]) -> None:
        self._tool = tool
        self._redact = redact

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        try:
            output = await self._tool.run(args, ctx)
        except ToolError as error:
            raise ToolError(self._redact(str(error)), hint=self._redact(error.hint)) from None
        parts = tuple(
            Text(self._redact(part.text)) if isinstance(part, Text) else part
            for part in output.parts
        )
        return structs.replace(output, parts=parts, shown=self._redact(output.shown))
