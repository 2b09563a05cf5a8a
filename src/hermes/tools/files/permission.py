"""Ask before files: what is written is told, and what is beyond or private needs leave."""

from pathlib import Path

from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.tools.paths import SessionPaths


async def require_read_approval(ctx: ToolContext, real: Path) -> None:
    """For a file of the user's own secrets. Raises `ToolError` when it may not be read."""
    decision = await ctx.ask(
        ApprovalRequest(
            tool="read_file",
            action=str(real),
            reaching=Isolation.BEYOND,
            folder=str(real.parent),
            foreign=ctx.foreign,
        )
    )
    if not decision.allowed:
        raise ToolError(
            f"{real} is one of the user's own secrets and was not read. {decision.why}".strip()
        )


async def require_write_approval(
    ctx: ToolContext, places: SessionPaths, real: Path, tool: str, content: str = ""
) -> None:
    """`real` is a path without links, `content` what would be put there or changed.

    Raises `ToolError` when it may not be written.
    """
    beyond = places.beyond(ctx.scope, real)
    wish = ApprovalRequest(
        tool=tool,
        action=str(real),
        reaching=Isolation.BEYOND if beyond else Isolation.INSIDE,
        folder=str(real.parent),
        foreign=ctx.foreign,
        detail=content if beyond else "",
    )
    decision = await ctx.ask(wish)
    if not decision.allowed:
        free = "folders that are in " if places.holds_home(ctx.scope) else ""
        raise ToolError(
            f"{real} was not written. {decision.why}".strip(),
            hint=f"Files in {free}{ctx.scope.workspace} and /tmp can be written without asking."
            if beyond
            else "",
        )
