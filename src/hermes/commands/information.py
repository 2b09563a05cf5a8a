"""Commands that look: the state of the session, what it has cost, who you are, what there is."""

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
    ApprovalMode.SMART: "for what leaves the sandbox or, where there is none, looks dangerous "
    "(smart)",
    ApprovalMode.MANUAL: "for what leaves the sandbox or, where there is none, looks dangerous, "
    "and only you decide (manual)",
    ApprovalMode.OFF: "nothing (off)",
}


async def _status(context: CommandContext, words: str) -> CommandReply:
    session = context.conversation.session
    rows = await context.conversation.messages()
    facts = [
        ("session", session.id + (f" “{session.title}”" if session.title else "")),
        ("messages", str(len(rows))),
        ("model", _model_text(context)),
    ]
    if context.is_owner:
        facts += [("folder", session.cwd), *context.facts.status(session)]
        facts += await _approval_facts(context)
    if context.in_chat:
        facts.append(("now", _activity_text(context)))
    return TextReply(_fact_lines(context, facts))


async def _approval_facts(context: CommandContext) -> list[tuple[str, str]]:
    desk = context.services.approvals
    if desk is None:
        return []
    if desk.rules.yolo or await desk.yolo(context.conversation.session.id):
        return [("asking", "nothing: /yolo is on")]
    return [("asking", _MODE_TEXT[desk.rules.mode])]


def _model_text(context: CommandContext) -> str:
    session = context.conversation.session
    if context.role is Role.GUEST:
        # Where it is reached is nothing for strangers.
        return session.model or "the usual one"
    return context.models.current(session)


def _activity_text(context: CommandContext) -> str:
    activity = context.work.activity()
    doing = f"running for {activity.seconds:.0f} s" if activity.running else "idle"
    return f"{doing}, {plural(activity.waiting, 'message')} waiting"


def _fact_lines(context: CommandContext, facts: list[tuple[str, str]]) -> str:
    if not context.in_chat:
        return format_columns(facts)
    # How wide a chat is, nobody knows.
    width = max(len(name) for name, _ in facts)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in facts)


async def _usage(context: CommandContext, words: str) -> CommandReply:
    uses = await context.conversation.usage()
    if not uses:
        return TextReply("Nothing has been used in this session yet.")
    return TextReply("\n".join(usage_line(use) for use in uses))


async def _whoami(context: CommandContext, words: str) -> CommandReply:
    seat = context.seat
    person = seat.person
    facts = [("role", context.role.value)]
    if context.in_chat:
        facts = [
            ("name", person.name or "unknown"),
            ("id", person.id or "unknown"),
            ("platform", seat.platform),
            *facts,
        ]
    facts.append(("may", _ROLE_TEXT[context.role]))
    if seat.permitted is not None:
        facts.append(("commands", "those that /help lists"))
    return TextReply(_fact_lines(context, facts))


async def _profile(context: CommandContext, words: str) -> CommandReply:
    house = context.services.house
    if house is None:
        raise UsageError("The profile is not known here.")
    where = f", at home in {house.home}" if context.is_owner else ""
    return TextReply(f"This is the profile {house.profile}{where}.")


def _toolbox(context: CommandContext) -> ToolsetControl:
    if context.services.toolbox is None:
        raise UsageError("The tools are not known here.")
    return context.services.toolbox


def _offered(context: CommandContext, toolbox: ToolsetControl) -> Sequence[ToolSpec]:
    session = context.conversation.session
    return toolbox.offered(context.seat.platform or session.source, context.role, session)


async def _tools(context: CommandContext, words: str) -> CommandReply:
    if words:
        return TextReply(await _switch_toolsets(context, words.split()))
    specs = _offered(context, _toolbox(context))
    if not specs:
        return TextReply("No tools are offered to you.")
    room = LINE_WIDTH - 4 - max(len(spec.name) for spec in specs)
    rows = [(spec.name, one_line(spec.description, room)) for spec in specs]
    return TextReply(_fact_lines(context, rows))


async def _switch_toolsets(context: CommandContext, words: Sequence[str]) -> str:
    if not context.is_owner:
        raise UsageError("Only an owner chooses the tools.")
    toolbox = _toolbox(context)
    match words:
        case ["list"]:
            return await toolbox.listed()
        case ["enable" | "disable" as how, *names, "--platform", platform] if names:
            return await toolbox.switch(names, platform, on=how == "enable")
        case ["enable" | "disable" as how, *names] if names and "--platform" not in names:
            return await toolbox.switch(names, "", on=how == "enable")
        case _:
            raise UsageError(
                "/tools takes list, or enable or disable and names of toolsets.",
                hint="For example: /tools disable terminal --platform telegram",
            )


async def _toolsets(context: CommandContext, words: str) -> CommandReply:
    toolbox = _toolbox(context)
    offered = {spec.name for spec in _offered(context, toolbox)}
    sets = [
        (name, [tool for tool in tools if tool in offered])
        for name, tools in sorted(toolbox.toolsets().items())
    ]
    facts = [(name, ", ".join(tools)) for name, tools in sets if tools]
    return TextReply(_fact_lines(context, facts) if facts else "No tools are offered to you.")


async def _version(context: CommandContext, words: str) -> CommandReply:
    return TextReply(f"Hermes {__version__}")


async def _debug(context: CommandContext, words: str) -> CommandReply:
    import platform  # noqa: PLC0415 - seldom needed

    house = context.services.house
    session = context.conversation.session
    facts = [
        ("hermes", __version__),
        ("python", platform.python_version()),
        ("system", f"{platform.system()} {platform.release()} ({platform.machine()})"),
        ("surface", context.seat.platform or context.seat.surface.name.lower()),
        ("model", context.models.current(session)),
        ("messages", str(len(await context.conversation.messages()))),
        *(await house.report() if house is not None else ()),
    ]
    return TextReply(_fact_lines(context, facts))


COMMANDS = (
    Command(name="status", summary="Show this session and its surroundings.", run=_status),
    Command(name="usage", summary="Show tokens and cost of this session.", run=_usage),
    Command(name="whoami", summary="Show who you are here and what you may do.", run=_whoami),
    Command(name="profile", summary="Show which profile this is.", run=_profile),
    Command(
        name="tools",
        usage="[list | enable name | disable name]",
        summary="List the tools that the agent has, or switch toolsets on and off.",
        run=_tools,
    ),
    Command(name="toolsets", summary="List the groups of tools.", run=_toolsets),
    Command(name="version", aliases=("v",), summary="Show the version.", run=_version),
    Command(
        name="debug",
        summary="Show what belongs into a report of a problem.",
        owners=True,
        run=_debug,
    ),
)
