"""Ask for approval before private files are read or files are written."""

from pathlib import Path

from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.tools.paths import SessionPaths


async def require_read_approval(ctx: ToolContext, real: Path) -> None:
    """Ask to read one of the user's secret files. Raises `ToolError` if it is denied."""
    decision = await ctx.request_approval(
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
            f"{real} is one of the user's private files and was not read. {decision.why}".strip()
        )


async def require_write_approval(
    ctx: ToolContext, paths: SessionPaths, real: Path, tool: str, content: str = ""
) -> None:
    """Ask to write `content` to `real`, a path without links.

    Raises `ToolError` if it is denied.
    """
    beyond = paths.needs_write_approval(ctx.scope, real)
    request = ApprovalRequest(
        tool=tool,
        action=str(real),
        reaching=Isolation.BEYOND if beyond else Isolation.INSIDE,
        folder=str(real.parent),
        foreign=ctx.foreign,
        detail=content if beyond else "",
    )
    decision = await ctx.request_approval(request)
    if not decision.allowed:
        existing = "existing folders of " if paths.contains_home(ctx.scope) else ""
        raise ToolError(
            f"{real} was not written. {decision.why}".strip(),
            hint=f"Files in {existing}{ctx.scope.workspace} and /tmp need no approval."
            if beyond
            else "",
        )
