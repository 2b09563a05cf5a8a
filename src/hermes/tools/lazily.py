"""Tools that are made when they are first called.

Most turns call few tools and every turn tells the model of all of them, so what is told is
kept in a file of its own, and the code behind a tool is loaded with its first call.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Raw

from hermes.ports.tool import Output, Restores, Tool, ToolContext
from hermes.schema.messages import Message
from hermes.schema.tools import ToolSpec
from hermes.tools.transcript import results

SPECS = Path(__file__).with_name("specs.json")


class Lazily:
    """Stands for a tool until somebody needs it."""

    def __init__(self, spec: ToolSpec, make: Callable[[], Tool]) -> None:
        self.spec = spec
        self._make = make
        self._tool: Tool | None = None

    @property
    def tool(self) -> Tool:
        if self._tool is None:
            self._tool = self._make()
        return self._tool

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        return await self.tool.run(args, ctx)

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        """A tool that was never used in a session has nothing to be restored there."""
        if self._tool is None and not self._was_used(messages):
            return
        if isinstance(self.tool, Restores):
            self.tool.restore(session, messages)

    def _was_used(self, messages: Sequence[Message]) -> bool:
        return bool(messages) and next(iter(results(self.spec.name, messages)), None) is not None


def known_specs() -> Mapping[str, ToolSpec]:
    """What the model is told of each tool, as `write_specs` left it."""
    return msgspec.json.decode(SPECS.read_bytes(), type=dict[str, ToolSpec])


def specs_text(tools: Mapping[str, Tool]) -> bytes:
    specs = {name: tool.spec for name, tool in sorted(tools.items())}
    return msgspec.json.format(msgspec.json.encode(specs), indent=1) + b"\n"
