"""Commands for whoever runs the house: its home channels, its platforms, its restart."""

from hermes.commands.command import Command, Context, Reply, Told, Where
from hermes.commands.services import Platforms
from hermes.schema.errors import UsageError


async def _sethome(context: Context, words: str) -> Reply:
    address, settings = context.seat.address, context.services.settings
    if address is None or settings is None:
        raise UsageError("The settings cannot be changed from here.")
    await settings.keep_home(address, words)
    return Told(f"This chat is now the home of {context.seat.platform}.")


async def _config(context: Context, words: str) -> Reply:
    settings = context.services.settings
    if words:
        raise UsageError(
            "/config takes nothing: it shows what differs from the defaults.",
            hint="For one setting, in a shell: hermes config get NAME",
        )
    if settings is None:
        raise UsageError("The settings are not known here.")
    return Told(await settings.shown())


async def _restart(context: Context, words: str) -> Reply:
    if context.services.restart is None:
        raise UsageError(
            "No gateway can be restarted from here.", hint="`hermes gateway restart` does that."
        )
    await context.services.restart(context.seat.address)
    return Told("Restarting. Turns that run may end first, and nothing that waits is lost.")


async def _platform(context: Context, words: str) -> Reply:
    platforms = context.services.platforms
    if platforms is None:
        raise UsageError(
            "No platforms are listened to here.", hint="`hermes gateway status` shows them."
        )
    match words.split():
        case [] | ["list"]:
            return Told(_states(platforms))
        case ["pause", name]:
            if name in {
                context.seat.platform,
                context.seat.address and context.seat.address.channel,
            }:
                raise UsageError(
                    "That is where you are, and you could not be answered any more.",
                    hint="Pause it from another platform.",
                )
            platforms.pause(_known(platforms, name))
            return Told(f"{name} is paused. /platform resume {name} goes on.")
        case ["resume", name]:
            platforms.resume(_known(platforms, name))
            return Told(f"{name} listens again.")
        case _:
            raise UsageError(
                "/platform takes list, pause or resume.", hint="For example: /platform pause slack"
            )


async def _reload_mcp(context: Context, words: str) -> Reply:
    servers = context.services.servers
    if servers is None:
        raise UsageError("MCP servers cannot be connected from here.")
    if servers.confirms and words != "now":
        return Told(
            "The servers of the settings are connected anew, and with other tools the model reads "
            "the whole conversation once more, which costs. To do it: /reload-mcp now"
        )
    return Told(await servers.reload())


def _known(platforms: Platforms, name: str) -> str:
    names = [state.name for state in platforms.states()]
    if name not in names:
        raise UsageError(f"There is no platform {name!r}.", hint=f"There are: {', '.join(names)}.")
    return name


def _states(platforms: Platforms) -> str:
    states = platforms.states()
    if not states:
        return "No platforms are set up."
    width = max(len(one.name) for one in states)
    return "\n".join(f"  {one.name:<{width}}  {one.state}  {one.reason}".rstrip() for one in states)


COMMANDS = (
    Command(
        name="config",
        summary="Show which settings differ from the defaults.",
        where=Where.TERMINAL,
        owners=True,
        needs=lambda context: context.services.settings is not None,
        run=_config,
    ),
    Command(
        name="sethome",
        aliases=("set-home",),
        usage="[name]",
        summary="Make this chat the home of its platform.",
        where=Where.CHAT,
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
