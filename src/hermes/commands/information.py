"""Slash commands that show the session, its cost, the user, the profile and the tools."""

from collections.abc import Sequence

from hermes import __version__
from hermes.approvals.policy import ApprovalMode
from hermes.commands.command import Command, CommandContext, CommandReply, TextReply
from hermes.commands.context_window import usage_line
from hermes.commands.registry import LINE_WIDTH, format_columns
from hermes.commands.services import ToolsetControl
from hermes.kit.text import one_line, plural
from hermes.schema.errors import UsageError
from hermes.schema.scope import Role
from hermes.schema.tools import ToolSpec

_ROLE_TEXT = {
    Role.OWNER: "everything",
    Role.MEMBER: "talk with the agent and use its tools",
    Role.GUEST: "talk with the agent",
}

_MODE_TEXT = {
    ApprovalMode.SMART: "before leaving the sandbox, or without one before anything dangerous "
    "(smart)",
    ApprovalMode.MANUAL: "before leaving the sandbox, or without one before anything dangerous; "
    "only you decide (manual)",
    ApprovalMode.OFF: "never (off)",
}


async def _status(context: CommandContext, args: str) -> CommandReply:
    session = context.conversation.session
    rows = await context.conversation.messages()
    facts = [
        ("session", session.id + (f" “{session.title}”" if session.title else "")),
        ("messages", str(len(rows))),
        ("model", _model_text(context)),
    ]
    if context.is_owner:
        facts += [("folder", session.cwd), *context.status_facts.status(session)]
        facts += await _approval_facts(context)
    if context.in_chat:
        facts.append(("now", _activity_text(context)))
    return TextReply(_fact_lines(context, facts))


async def _approval_facts(context: CommandContext) -> list[tuple[str, str]]:
    approvals = context.services.approvals
    if approvals is None:
        return []
    if approvals.rules.yolo or await approvals.yolo(context.conversation.session.id):
        return [("approvals", "off: /yolo is on")]
    return [("approvals", _MODE_TEXT[approvals.rules.mode])]


def _model_text(context: CommandContext) -> str:
    session = context.conversation.session
    if context.role is Role.GUEST:
        # Guests do not see where the model runs.
        return session.model or "the default model"
    return context.models.current(session)


def _activity_text(context: CommandContext) -> str:
    activity = context.control.activity()
    doing = f"running for {activity.seconds:.0f} s" if activity.running else "idle"
    return f"{doing}, {plural(activity.queued, 'message')} queued"


def _fact_lines(context: CommandContext, facts: list[tuple[str, str]]) -> str:
    if not context.in_chat:
        return format_columns(facts)
    # The width of a chat is unknown.
    width = max(len(name) for name, _ in facts)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in facts)


async def _usage(context: CommandContext, args: str) -> CommandReply:
    uses = await context.conversation.usage()
    if not uses:
        return TextReply("This session has used no tokens yet.")
    return TextReply("\n".join(usage_line(use) for use in uses))


async def _whoami(context: CommandContext, args: str) -> CommandReply:
    caller = context.caller
    person = caller.person
    facts = [("role", context.role.value)]
    if context.in_chat:
        facts = [
            ("name", person.name or "unknown"),
            ("id", person.id or "unknown"),
            ("platform", caller.platform),
            *facts,
        ]
    facts.append(("may", _ROLE_TEXT[context.role]))
    if caller.permitted is not None:
        facts.append(("commands", "those listed by /help"))
    return TextReply(_fact_lines(context, facts))


async def _profile(context: CommandContext, args: str) -> CommandReply:
    program = context.services.program
    if program is None:
        raise UsageError("The profile is not available here.")
    where = f", in {program.home}" if context.is_owner else ""
    return TextReply(f"Profile {program.profile}{where}.")


def _toolset_control(context: CommandContext) -> ToolsetControl:
    if context.services.toolsets is None:
        raise UsageError("Tools are not available here.")
    return context.services.toolsets


def _offered(context: CommandContext, toolsets: ToolsetControl) -> Sequence[ToolSpec]:
    session = context.conversation.session
    return toolsets.offered(context.caller.platform or session.source, context.role, session)


async def _tools(context: CommandContext, args: str) -> CommandReply:
    if args:
        return TextReply(await _switch_toolsets(context, args.split()))
    specs = _offered(context, _toolset_control(context))
    if not specs:
        return TextReply("You have no tools here.")
    room = LINE_WIDTH - 4 - max(len(spec.name) for spec in specs)
    rows = [(spec.name, one_line(spec.description, room)) for spec in specs]
    return TextReply(_fact_lines(context, rows))


async def _switch_toolsets(context: CommandContext, args: Sequence[str]) -> str:
    if not context.is_owner:
        raise UsageError("Only an owner may change toolsets.")
    toolsets = _toolset_control(context)
    match args:
        case ["list"]:
            return await toolsets.describe()
        case ["enable" | "disable" as action, *names, "--platform", platform] if names:
            return await toolsets.switch(names, platform, on=action == "enable")
        case ["enable" | "disable" as action, *names] if names and "--platform" not in names:
            return await toolsets.switch(names, "", on=action == "enable")
        case _:
            raise UsageError(
                "/tools takes list, or enable or disable with names of toolsets.",
                hint="For example: /tools disable terminal --platform telegram",
            )


async def _toolsets(context: CommandContext, args: str) -> CommandReply:
    toolsets = _toolset_control(context)
    offered = {spec.name for spec in _offered(context, toolsets)}
    sets = [
        (name, [tool for tool in tools if tool in offered])
        for name, tools in sorted(toolsets.toolsets().items())
    ]
    facts = [(name, ", ".join(tools)) for name, tools in sets if tools]
    return TextReply(_fact_lines(context, facts) if facts else "You have no tools here.")


async def _version(context: CommandContext, args: str) -> CommandReply:
    return TextReply(f"Hermes {__version__}")


async def _debug(context: CommandContext, args: str) -> CommandReply:
    import platform  # noqa: PLC0415 - rarely needed

    program = context.services.program
    session = context.conversation.session
    facts = [
        ("hermes", __version__),
        ("python", platform.python_version()),
        ("system", f"{platform.system()} {platform.release()} ({platform.machine()})"),
        ("surface", context.caller.platform or context.caller.surface.name.lower()),
        ("model", context.models.current(session)),
        ("messages", str(len(await context.conversation.messages()))),
        *(await program.report() if program is not None else ()),
    ]
    return TextReply(_fact_lines(context, facts))


COMMANDS = (
    Command(name="status", summary="Show the state of this session.", run=_status),
    Command(name="usage", summary="Show tokens and cost of this session.", run=_usage),
    Command(name="whoami", summary="Show your identity and role here.", run=_whoami),
    Command(name="profile", summary="Show the active profile.", run=_profile),
    Command(
        name="tools",
        usage="[list | enable name | disable name]",
        summary="List the agent's tools, or enable or disable toolsets.",
        run=_tools,
    ),
    Command(name="toolsets", summary="List toolsets.", run=_toolsets),
    Command(name="version", aliases=("v",), summary="Show the version.", run=_version),
    Command(
        name="debug",
        summary="Show diagnostics for a bug report.",
        owner_only=True,
        run=_debug,
    ),
)
