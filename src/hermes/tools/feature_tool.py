"""Wrap a tool that a feature registered as plain data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct

from hermes.ports.feature import FeatureTool
from hermes.ports.feature_catalog import feature_tool
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import StoreError, ToolError, UsageError
from hermes.schema.tools import ToolSpec
from hermes.tools.collaborators import ToolCollaborators, required
from hermes.tools.tool_io import Arguments, encode_result


class WrappedTool:
    """Decodes the arguments, runs the feature's tool and encodes its answer."""

    def __init__(self, tool: FeatureTool[Any], service: Callable[[], Any]) -> None:
        self._tool = tool
        self._service = service
        self._arguments = Arguments[Struct](tool.name, tool.arguments)
        self.spec = ToolSpec(
            tool.name,
            Path(tool.description).read_text("utf-8").strip(),
            _listed(self._arguments.schema, tool.unlisted),
            tool.effect,
            timeout=tool.timeout,
            toolset=tool.toolset,
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        try:
            answer = await self._tool.run(self._service(), arguments, ctx)
        except (UsageError, StoreError) as error:
            raise ToolError(f"{self._tool.name}: {error}", hint=error.hint) from error
        return ToolOutput.text(encode_result(answer), foreign=self._tool.foreign)


def _listed(schema: dict[str, Any], unlisted: frozenset[str]) -> dict[str, Any]:
    """The schema without some of its properties."""
    properties: dict[str, Any] = schema["properties"]
    shown = {name: one for name, one in properties.items() if name not in unlisted}
    return {**schema, "properties": shown}


def build_feature_tool(feature: str, name: str, deps: ToolCollaborators) -> WrappedTool:
    services = required(deps.features)
    return WrappedTool(feature_tool(feature, name), lambda: services.get(feature))
