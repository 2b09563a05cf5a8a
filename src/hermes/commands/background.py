"""Slash commands for background jobs."""

from hermes.commands.command import Command, CommandContext, CommandReply, TextReply
from hermes.commands.services import BackgroundJobs
from hermes.kit.text import one_line
from hermes.schema.errors import UsageError
from hermes.schema.scope import Requester, Scope


async def _background(context: CommandContext, args: str) -> CommandReply:
    background = _service(context)
    if not args:
        raise UsageError(
            "/background needs a prompt.", hint="For example: /background read the new mails"
        )
    session, caller, program = (
        context.conversation.session,
        context.caller,
        context.services.program,
    )
    scope = Scope(
        profile=program.profile if program is not None else "",
        session=session.id,
        run="",
        workspace=session.cwd,
        principal=caller.principal,
        address=caller.address,
        role=context.role,
        source=session.source,
        key=session.key,
        asker=Requester(user=caller.person.id, name=caller.person.name),
    )
    name = await background.start(scope, args)
    return TextReply(f"Started {name}. It reports when it is done; /agents shows its progress.")


def _service(context: CommandContext) -> BackgroundJobs:
    if context.services.background is None:
        raise UsageError("Background jobs are not available here.")
    return context.services.background


async def _agents(context: CommandContext, args: str) -> CommandReply:
    jobs = await _service(context).list_jobs(context.conversation.session)
    if not jobs:
        return TextReply("No background jobs are running.")
    lines: list[str] = []
    for job in jobs:
        state, command = job.state or "running", one_line(job.command, 60)
        lines.append(f"  {job.name}  {state}  {job.seconds:.0f} s  {command}")
        if job.activity:
            lines.append(f"    {one_line(job.activity, 72)}")
    return TextReply("\n".join([*lines, "/stop ends them."]))


def _has_background(context: CommandContext) -> bool:
    return context.services.background is not None


COMMANDS = (
    Command(
        name="background",
        aliases=("bg", "btw"),
        usage="<prompt>",
        summary="Run a prompt in the background and report the result.",
        # The rate limit of other users counts messages only.
        owner_only=True,
        is_available=_has_background,
        run=_background,
    ),
    Command(
        name="agents",
        aliases=("tasks", "ps"),
        summary="List the background jobs of this session.",
        is_available=_has_background,
        run=_agents,
    ),
)
