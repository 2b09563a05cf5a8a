"""Read a complete tool list at once."""

from collections.abc import Sequence

import mcp_types as types

from hermes.mcp.server_config import ServerConfig
from hermes.mcp.tool_list import ActingTools, ToolListReader, ToolSpecs


def listed_specs(
    server: ServerConfig, tools: Sequence[types.Tool], acting: ActingTools | None = None
) -> ToolSpecs:
    listing = ToolListReader(server, acting)
    listing.add_page(tools)
    return listing.finish()
