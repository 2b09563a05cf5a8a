"""Slash commands that show the state of session and gateway, and administer the gateway."""

from collections.abc import Sequence

from hermes import __version__
from hermes.approvals.policy import ApprovalMode
from hermes.approvals.service import ApprovalService
from hermes.commands.command import Availability, Command, CommandContext, require_service
from hermes.commands.context_window import usage_line
from hermes.commands.registry import LINE_WIDTH, format_columns
from hermes.commands.services import PlatformControl, ToolsetControl
from hermes.kit.text import one_line, plural
from hermes.schema.errors import UsageError
from hermes.schema.scope import Role
from hermes.schema.terminal import CommandReply, TextReply
from hermes.schema.tools import ToolSpec

_ROLE_TEXT = {
    Role.OWNER: "everything",
    Role.MEMBER: "talk with the agent and use its tools",
    Role.GUEST: "talk with the agent",
}

_WHEN_ASKED = "before leaving the sandbox, or without one before anything dangerous"
_MODE_TEXT = {
    ApprovalMode.SMART: f"{_WHEN_ASKED} (smart)",
    ApprovalMode.MANUAL: f"{_WHEN_ASKED}; only you decide (manual)",
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
        facts += [("directory", session.cwd), *context.status_facts.status(session)]
        if context.services.approvals is not None:
            facts.append(("approvals", await _approval_text(context, context.services.approvals)))
    if context.in_chat:
        facts.append(("now", _activity_text(context)))
    return TextReply(_fact_lines(context, facts))


async def _approval_text(context: CommandContext, approvals: ApprovalService) -> str:
    if approvals.rules.yolo or await approvals.yolo(context.conversation.session.id):
        return "off: /yolo is on"
    return _MODE_TEXT[approvals.rules.mode]


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
    lines = [usage_line(use) for use in uses]
    known = [use.cost for use in uses if use.cost is not None]
    if len(uses) > 1 and known:
        more = "" if len(known) == len(uses) else ", not counting models of unknown price"
        lines.append(f"  total: ${sum(known):,.4f}{more}")
    return TextReply("\n".join(lines))


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
    facts.append(("allowed", _ROLE_TEXT[context.role]))
    if caller.permitted is not None:
        facts.append(("commands", "those listed by /help"))
    return TextReply(_fact_lines(context, facts))


async def _profile(context: CommandContext, args: str) -> CommandReply:
    program = require_service(context.services.program, "The profile is not available here.")
    where = f", in {program.home}" if context.is_owner else ""
    return TextReply(f"Profile {program.profile}{where}.")


def _toolset_control(context: CommandContext) -> ToolsetControl:
    return require_service(context.services.toolsets, "Tools are not available here.")


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
                "/tools takes list, or enable or disable with toolset names.",
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


async def _sethome(context: CommandContext, args: str) -> CommandReply:
    address, settings = context.caller.address, context.services.settings
    if address is None or settings is None:
        raise UsageError("Settings cannot be changed from here.")
    await settings.save_home_channel(address, args)
    return TextReply(f"This chat is now the home channel on {context.caller.platform}.")


async def _config(context: CommandContext, args: str) -> CommandReply:
    if args:
        raise UsageError(
            "/config takes no arguments: it shows the settings that differ from the defaults.",
            hint="To see one setting, run in a shell: hermes config get NAME",
        )
    settings = require_service(context.services.settings, "Settings are not available here.")
    return TextReply(await settings.describe_changed())


async def _restart(context: CommandContext, args: str) -> CommandReply:
    message = "The gateway cannot be restarted from here."
    restart = require_service(
        context.services.restart, message, hint="Run `hermes gateway restart`."
    )
    await restart(context.caller.address)
    return TextReply("Restarting. Running turns may finish first; queued messages are kept.")


async def _platform(context: CommandContext, args: str) -> CommandReply:
    platforms = require_service(
        context.services.platforms,
        "Platforms are not available here.",
        hint="`hermes gateway status` shows them.",
    )
    match args.split():
        case [] | ["list"]:
            return TextReply(_platform_lines(platforms))
        case ["pause", name]:
            caller = context.caller
            if name in {caller.platform, caller.address and caller.address.channel}:
                raise UsageError(
                    "You are using this platform, so I could no longer reply to you.",
                    hint="Pause it from another platform.",
                )
            platforms.pause(_known_platform(platforms, name))
            return TextReply(f"{name} is paused. Resume it with: /platform resume {name}")
        case ["resume", name]:
            platforms.resume(_known_platform(platforms, name))
            return TextReply(f"{name} is resumed.")
        case _:
            raise UsageError(
                "/platform takes list, pause or resume.", hint="For example: /platform pause slack"
            )


async def _reload_mcp(context: CommandContext, args: str) -> CommandReply:
    servers = context.services.mcp_servers
    servers = require_service(servers, "MCP servers cannot be reloaded from here.")
    if servers.confirms_reload and args != "now":
        return TextReply(
            "This reconnects all MCP servers. If the tools change, the model reads the whole "
            "conversation again, which costs tokens. To confirm: /reload-mcp now"
        )
    return TextReply(await servers.reload())


def _known_platform(platforms: PlatformControl, name: str) -> str:
    names = [state.name for state in platforms.states()]
    if name not in names:
        raise UsageError(f"Unknown platform: {name}.", hint=f"Known: {', '.join(names)}.")
    return name


def _platform_lines(platforms: PlatformControl) -> str:
    states = platforms.states()
    if not states:
        return "No platforms are configured."
    width = max(len(state.name) for state in states)
    return "\n".join(
        f"  {state.name:<{width}}  {state.state}  {state.reason}".rstrip() for state in states
    )


COMMANDS = (
    Command(name="status", summary="Show the state of this session.", run=_status),
    Command(
        name="usage",
        aliases=("cost",),
        summary="Show tokens and cost of this session.",
        run=_usage,
    ),
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
    Command(
        name="config",
        summary="Show settings that differ from the defaults.",
        availability=Availability.TERMINAL,
        owner_only=True,
        is_available=lambda context: context.services.settings is not None,
        run=_config,
    ),
    Command(
        name="sethome",
        aliases=("set-home",),
        usage="[name]",
        summary="Make this chat its platform's home channel.",
        availability=Availability.CHAT,
        owner_only=True,
        run=_sethome,
    ),
    Command(
        name="restart",
        summary="Restart the gateway.",
        owner_only=True,
        is_available=lambda context: context.services.restart is not None,
        run=_restart,
    ),
    Command(
        name="reload-mcp",
        usage="[now]",
        summary="Reload the MCP servers from the settings.",
        owner_only=True,
        is_available=lambda context: context.services.mcp_servers is not None,
        run=_reload_mcp,
    ),
    Command(
        name="platform",
        aliases=("platforms", "gateway"),
        usage="[list | pause name | resume name]",
        summary="List messaging platforms, or pause or resume one.",
        owner_only=True,
        is_available=lambda context: context.services.platforms is not None,
        run=_platform,
    ),
)
