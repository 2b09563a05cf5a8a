"""Ask before files: what is written is told, and what is beyond or private needs leave."""

from pathlib import Path

from hermes.ports.counsel import Reaching, Wish
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.tools.places import Places


async def may_read(ctx: ToolContext, real: Path) -> None:
    """For a file of the user's own secrets. Raises `ToolError` when it may not be read."""
    ruling = await ctx.ask(
        Wish(
            tool="read_file",
            action=str(real),
            reaching=Reaching.BEYOND,
            folder=str(real.parent),
            foreign=ctx.foreign,
        )
    )
    if not ruling.allowed:
        raise ToolError(
            f"{real} is one of the user's own secrets and was not read. {ruling.why}".strip()
        )


async def may_write(
    ctx: ToolContext, places: Places, real: Path, tool: str, content: str = ""
) -> None:
    """`real` is a path without links, `content` what would be put there or changed.

    Raises `ToolError` when it may not be written.
    """
    beyond = places.beyond(ctx.scope, real)
    wish = Wish(
        tool=tool,
        action=str(real),
        reaching=Reaching.BEYOND if beyond else Reaching.INSIDE,
        folder=str(real.parent),
        foreign=ctx.foreign,
        detail=content if beyond else "",
    )
    ruling = await ctx.ask(wish)
    if not ruling.allowed:
        free = "folders that are in " if places.holds_home(ctx.scope) else ""
        raise ToolError(
            f"{real} was not written. {ruling.why}".strip(),
            hint=f"Files in {free}{ctx.scope.workspace} and /tmp can be written without asking."
            if beyond
            else "",
        )
