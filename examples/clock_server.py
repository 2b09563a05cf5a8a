"""An MCP server with one tool: hermes mcp add clock --command … --args examples/clock_server.py"""

from datetime import datetime
from zoneinfo import ZoneInfo

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("clock", version="1")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def now(zone: str = "UTC") -> str:
    """Return the current time in a time zone such as Europe/Berlin."""
    return f"{datetime.now(ZoneInfo(zone)):%A, %Y-%m-%d %H:%M}"


server.run()
