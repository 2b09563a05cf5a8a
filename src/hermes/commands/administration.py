"""Slash commands that administer the gateway: settings, platforms, MCP servers, restart."""

from hermes.commands.command import Availability, Command, CommandContext, CommandReply, TextReply
from hermes.commands.services import PlatformControl
from hermes.schema.errors import UsageError


async def _sethome(context: CommandContext, args: str) -> CommandReply:
    address, settings = context.caller.address, context.services.settings
    if address is None or settings is None:
        raise UsageError("Settings cannot be changed from here.")
    await settings.save_home_channel(address, args)
    return TextReply(f"This chat is now the home chat of {context.caller.platform}.")


async def _config(context: CommandContext, args: str) -> CommandReply:
    settings = context.services.settings
    if args:
        raise UsageError(
            "/config takes no arguments: it shows the settings that differ from the defaults.",
            hint="To see one setting, run in a shell: hermes config get NAME",
        )
    if settings is None:
        raise UsageError("Settings are not available here.")
    return TextReply(await settings.describe_changed())


async def _restart(context: CommandContext, args: str) -> CommandReply:
    if context.services.restart is None:
        raise UsageError(
            "The gateway cannot be restarted from here.", hint="Run `hermes gateway restart`."
        )
    await context.services.restart(context.caller.address)
    return TextReply("Restarting. Running turns may finish first; queued messages are kept.")


async def _platform(context: CommandContext, args: str) -> CommandReply:
    platforms = context.services.platforms
    if platforms is None:
        raise UsageError(
            "Platforms are not available here.", hint="`hermes gateway status` shows them."
        )
    match args.split():
        case [] | ["list"]:
            return TextReply(_platform_lines(platforms))
        case ["pause", name]:
            if name in {
                context.caller.platform,
                context.caller.address and context.caller.address.channel,
            }:
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
    if servers is None:
        raise UsageError("MCP servers cannot be reloaded from here.")
    if servers.confirms_reload and args != "now":
        return TextReply(
            "This reconnects all MCP servers. If the tools change, the model reads the whole "
            "conversation again, which costs tokens. To confirm: /reload-mcp now"
        )
    return TextReply(await servers.reload())


def _known_platform(platforms: PlatformControl, name: str) -> str:
    names = [state.name for state in platforms.states()]
    if name not in names:
        raise UsageError(f"Unknown platform {name!r}.", hint=f"Known: {', '.join(names)}.")
    return name


def _platform_lines(platforms: PlatformControl) -> str:
    states = platforms.states()
    if not states:
        return "No platforms are configured."
    width = max(len(one.name) for one in states)
    return "\n".join(f"  {one.name:<{width}}  {one.state}  {one.reason}".rstrip() for one in states)


COMMANDS = (
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
        summary="Make this chat the home chat of its platform.",
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
