"""Commands for what goes on beside the talk: begin something there, see what runs."""

from hermes.commands.command import Command, CommandContext, CommandReply, TextReply
from hermes.commands.services import BackgroundJobs
from hermes.kit.text import one_line
from hermes.schema.errors import UsageError
from hermes.schema.scope import Requester, Scope


async def _background(context: CommandContext, words: str) -> CommandReply:
    background = _service(context)
    if not words:
        raise UsageError("What is to be done?", hint="For example: /background read the new mails")
    session, seat, house = context.conversation.session, context.seat, context.services.house
    scope = Scope(
        profile=house.profile if house is not None else "",
        session=session.id,
        run="",
        workspace=session.cwd,
        principal=seat.principal,
        address=seat.address,
        role=context.role,
        source=session.source,
        key=session.key,
        asker=Requester(user=seat.person.id, name=seat.person.name),
    )
    name = await background.begin(scope, words)
    return TextReply(f"{name} has begun. It tells what came of it; /agents shows it meanwhile.")


def _service(context: CommandContext) -> BackgroundJobs:
    if context.services.background is None:
        raise UsageError("Nothing can be left running here.")
    return context.services.background


async def _agents(context: CommandContext, words: str) -> CommandReply:
    found = await _service(context).of(context.conversation.session)
    if not found:
        return TextReply("Nothing runs in the background.")
    lines: list[str] = []
    for one in found:
        state, asked = one.state or "running", one_line(one.command, 60)
        lines.append(f"  {one.name}  {state}  {one.seconds:.0f} s  {asked}")
        if one.doing:
            lines.append(f"    {one_line(one.doing, 72)}")
    return TextReply("\n".join([*lines, "/stop ends what runs."]))


def _has_background(context: CommandContext) -> bool:
    return context.services.background is not None


COMMANDS = (
    Command(
        name="background",
        aliases=("bg", "btw"),
        usage="<prompt>",
        summary="Have something done in a session of its own, and hear what came of it.",
        # What others may ask for in an hour is counted by their messages.
        owners=True,
        needs=_has_background,
        run=_background,
    ),
    Command(
        name="agents",
        aliases=("tasks", "ps"),
        summary="Show what this session left running.",
        needs=_has_background,
        run=_agents,
    ),
)
