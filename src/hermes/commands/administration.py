"""Commands for whoever runs the house: its home channels, its platforms, its restart."""

from hermes.commands.command import Availability, Command, CommandContext, CommandReply, TextReply
from hermes.commands.services import PlatformControl
from hermes.schema.errors import UsageError


async def _sethome(context: CommandContext, words: str) -> CommandReply:
    address, settings = context.seat.address, context.services.settings
    if address is None or settings is None:
        raise UsageError("The settings cannot be changed from here.")
    await settings.save_home_channel(address, words)
    return TextReply(f"This chat is now the home of {context.seat.platform}.")


async def _config(context: CommandContext, words: str) -> CommandReply:
    settings = context.services.settings
    if words:
        raise UsageError(
            "/config takes nothing: it shows what differs from the defaults.",
            hint="For one setting, in a shell: hermes config get NAME",
        )
    if settings is None:
        raise UsageError("The settings are not known here.")
    return TextReply(await settings.shown())


async def _restart(context: CommandContext, words: str) -> CommandReply:
    if context.services.restart is None:
        raise UsageError(
            "No gateway can be restarted from here.", hint="`hermes gateway restart` does that."
        )
    await context.services.restart(context.seat.address)
    return TextReply("Restarting. Turns that run may end first, and nothing that waits is lost.")


async def _platform(context: CommandContext, words: str) -> CommandReply:
    platforms = context.services.platforms
    if platforms is None:
        raise UsageError(
            "No platforms are listened to here.", hint="`hermes gateway status` shows them."
        )
    match words.split():
        case [] | ["list"]:
            return TextReply(_platform_lines(platforms))
        case ["pause", name]:
            if name in {
                context.seat.platform,
                context.seat.address and context.seat.address.channel,
            }:
                raise UsageError(
                    "That is where you are, and you could not be answered any more.",
                    hint="Pause it from another platform.",
                )
            platforms.pause(_known_platform(platforms, name))
            return TextReply(f"{name} is paused. /platform resume {name} goes on.")
        case ["resume", name]:
            platforms.resume(_known_platform(platforms, name))
            return TextReply(f"{name} listens again.")
        case _:
            raise UsageError(
                "/platform takes list, pause or resume.", hint="For example: /platform pause slack"
            )


async def _reload_mcp(context: CommandContext, words: str) -> CommandReply:
    servers = context.services.servers
    if servers is None:
        raise UsageError("MCP servers cannot be connected from here.")
    if servers.confirms_reload and words != "now":
        return TextReply(
            "The servers of the settings are connected anew, and with other tools the model reads "
            "the whole conversation once more, which costs. To do it: /reload-mcp now"
        )
    return TextReply(await servers.reload())


def _known_platform(platforms: PlatformControl, name: str) -> str:
    names = [state.name for state in platforms.states()]
    if name not in names:
        raise UsageError(f"There is no platform {name!r}.", hint=f"There are: {', '.join(names)}.")
    return name


def _platform_lines(platforms: PlatformControl) -> str:
    states = platforms.states()
    if not states:
        return "No platforms are set up."
    width = max(len(one.name) for one in states)
    return "\n".join(f"  {one.name:<{width}}  {one.state}  {one.reason}".rstrip() for one in states)


COMMANDS = (
    Command(
        name="config",
        summary="Show which settings differ from the defaults.",
        where=Availability.TERMINAL,
        owners=True,
        needs=lambda context: context.services.settings is not None,
        run=_config,
    ),
    Command(
        name="sethome",
        aliases=("set-home",),
        usage="[name]",
        summary="Make this chat the home of its platform.",
        where=Availability.CHAT,
        owners=True,
        run=_sethome,
    ),
    Command(
        name="restart",
        summary="Restart the gateway.",
        owners=True,
        needs=lambda context: context.services.restart is not None,
        run=_restart,
    ),
    Command(
        name="reload-mcp",
        usage="[now]",
        summary="Read the MCP servers of the settings again.",
        owners=True,
        needs=lambda context: context.services.servers is not None,
        run=_reload_mcp,
    ),
    Command(
        name="platform",
        aliases=("platforms", "gateway"),
        usage="[list | pause name | resume name]",
        summary="Show the messaging platforms, or pause one.",
        owners=True,
        needs=lambda context: context.services.platforms is not None,
        run=_platform,
    ),
)
