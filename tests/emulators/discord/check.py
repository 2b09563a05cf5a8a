"""Questions on the emulated Discord, for runs with kills and whole gateways."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from emulators.discord.markdown import read_markdown
from emulators.discord.server import DiscordServer
from emulators.discord.state import EmulatedDiscord, EmulatedMessage
from support.chat_platform.state import PlatformPost
from support.gateway_process import GatewaySpec
from support.kill_run import KillRun, write_home

ACCOUNT = "discord"


def kill_run(server: DiscordServer, database: Path) -> KillRun[EmulatedMessage]:
    return KillRun(
        account=ACCOUNT,
        server=server,
        changes=server.discord.changes,
        read=lambda message: _post("", message),
        database=database,
    )


def own_posts(discord: EmulatedDiscord) -> Iterator[PlatformPost]:
    """What the bot has written."""
    for (chat, _), message in discord.messages.items():
        if message.author == discord.bot.id:
            yield _post(chat, message)


def _post(chat: str, message: EmulatedMessage) -> PlatformPost:
    shown = read_markdown(message.text).text
    return PlatformPost(f"{chat}/{message.id}", ACCOUNT, chat, shown)


def discord_home(
    folder: Path,
    url: str,
    api_url: str,
    token: str,
    people: Sequence[str],
    settings: dict[str, object],
) -> GatewaySpec:
    """Write the home of a gateway on the emulator and return its spec; the first one is owner."""
    return write_home(
        folder,
        ACCOUNT,
        model_url=url,
        extra={"base_url": api_url},
        variables={"DISCORD_BOT_TOKEN": token},
        settings=settings,
        people=people,
    )
