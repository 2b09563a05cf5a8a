"""Commands that look: the state of the session, what it has cost, who you are, what there is."""

from collections.abc import Sequence

from hermes import __version__
from hermes.approvals.policy import Mode
from hermes.commands.columns import COLUMNS, in_columns
from hermes.commands.command import Command, Context, Reply, Told
from hermes.commands.context import use_line
from hermes.commands.services import Toolbox
from hermes.kit.text import one_line, plural
from hermes.schema.errors import UsageError
from hermes.schema.scope import Role
from hermes.schema.tools import ToolSpec

_MAY = {
    Role.OWNER: "everything",
    Role.MEMBER: "talk with the agent and use its tools",
    Role.GUEST: "talk with the agent",
}

_ASKING = {
    Mode.SMART: "for what leaves the sandbox or, where there is none, looks dangerous (smart)",
    Mode.MANUAL: "for what leaves the sandbox or, where there is none, looks dangerous, and only "
    "you decide (manual)",
    Mode.OFF: "nothing (off)",
}


async def _status(context: Context, words: str) -> Reply:
    session = context.conversation.session
    rows = await context.conversation.messages()
    facts = [
        ("session", session.id + (f" “{session.title}”" if session.title else "")),
        ("messages", str(len(rows))),
        ("model", _model(context)),
    ]
    if context.is_owner:
        facts += [("folder", session.cwd), *context.facts.status(session)]
        facts += await _leave(context)
    if context.in_chat:
        facts.append(("now", _doing(context)))
    return Told(_facts(context, facts))


async def _leave(context: Context) -> list[tuple[str, str]]:
    desk = context.services.approvals
    if desk is None:
        return []
    if desk.rules.yolo or await desk.yolo(context.conversation.session.id):
        return [("asking", "nothing: /yolo is on")]
    return [("asking", _ASKING[desk.rules.mode])]


def _model(context: Context) -> str:
    session = context.conversation.session
    if context.role is Role.GUEST:
        # Where it is reached is nothing for strangers.
        return session.model or "the usual one"
    return context.models.current(session)


def _doing(context: Context) -> str:
    activity = context.work.activity()
    doing = f"running for {activity.seconds:.0f} s" if activity.running else "idle"
    return f"{doing}, {plural(activity.waiting, 'message')} waiting"


def _facts(context: Context, facts: list[tuple[str, str]]) -> str:
    if not context.in_chat:
        return in_columns(facts)
    # How wide a chat is, nobody knows.
    width = max(len(name) for name, _ in facts)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in facts)


async def _usage(context: Context, words: str) -> Reply:
    uses = await context.conversation.usage()
    if not uses:
        return Told("Nothing has been used in this session yet.")
    return Told("\n".join(use_line(use) for use in uses))


async def _whoami(context: Context, words: str) -> Reply:
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
    facts.append(("may", _MAY[context.role]))
    if seat.permitted is not None:
        facts.append(("commands", "those that /help lists"))
    return Told(_facts(context, facts))


async def _profile(context: Context, words: str) -> Reply:
    house = context.services.house
    if house is None:
        raise UsageError("The profile is not known here.")
    where = f", at home in {house.home}" if context.is_owner else ""
    return Told(f"This is the profile {house.profile}{where}.")


def _toolbox(context: Context) -> Toolbox:
    if context.services.toolbox is None:
        raise UsageError("The tools are not known here.")
    return context.services.toolbox


def _offered(context: Context, toolbox: Toolbox) -> Sequence[ToolSpec]:
    session = context.conversation.session
    return toolbox.offered(context.seat.platform or session.source, context.role, session)


async def _tools(context: Context, words: str) -> Reply:
    if words:
        return Told(await _switched(context, words.split()))
    specs = _offered(context, _toolbox(context))
    if not specs:
        return Told("No tools are offered to you.")
    room = COLUMNS - 4 - max(len(spec.name) for spec in specs)
    rows = [(spec.name, one_line(spec.description, room)) for spec in specs]
    return Told(_facts(context, rows))


async def _switched(context: Context, words: Sequence[str]) -> str:
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


async def _toolsets(context: Context, words: str) -> Reply:
    toolbox = _toolbox(context)
    offered = {spec.name for spec in _offered(context, toolbox)}
    sets = [
        (name, [tool for tool in tools if tool in offered])
        for name, tools in sorted(toolbox.toolsets().items())
    ]
    facts = [(name, ", ".join(tools)) for name, tools in sets if tools]
    return Told(_facts(context, facts) if facts else "No tools are offered to you.")


async def _version(context: Context, words: str) -> Reply:
    return Told(f"Hermes {__version__}")


async def _debug(context: Context, words: str) -> Reply:
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
    return Told(_facts(context, facts))


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
