"""The command that shows what a session left running."""

from hermes.commands.command import Command, Context, Reply, Told
from hermes.kit.text import one_line
from hermes.schema.errors import UsageError


async def _agents(context: Context, words: str) -> Reply:
    background = context.services.background
    if background is None:
        raise UsageError("Nothing can be left running here.")
    found = await background.of(context.conversation.session)
    if not found:
        return Told("Nothing runs in the background.")
    lines: list[str] = []
    for one in found:
        state, asked = one.state or "running", one_line(one.command, 60)
        lines.append(f"  {one.name}  {state}  {one.seconds:.0f} s  {asked}")
        if one.doing:
            lines.append(f"    {one_line(one.doing, 72)}")
    return Told("\n".join([*lines, "/stop ends what runs."]))


COMMANDS = (
    Command(
        name="agents",
        aliases=("tasks", "ps"),
        summary="Show what this session left running.",
        needs=lambda context: context.services.background is not None,
        run=_agents,
    ),
)
