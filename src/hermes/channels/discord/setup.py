"""Check a bot token for `hermes gateway setup`."""

from collections.abc import Mapping
from importlib.util import find_spec

from msgspec import Struct

from hermes.channels.account import BotToken
from hermes.channels.discord import MANIFEST, DiscordOptions
from hermes.channels.discord.rest_api import open_rest_api
from hermes.config.sections import FreeTable
from hermes.kit.clock import SystemClock
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options

PERMISSIONS = 70_677_981_940_800
"""View channels, send messages (in threads), create threads, embed links, attach files, read
history, add reactions, send voice messages."""
NO_CONTENT = (
    "The bot cannot read messages in servers that do not mention it. Turn on Message Content "
    "Intent on the page Bot at https://discord.com/developers/applications/{}/bot"
)
NO_SERVER = "The bot is not in any server yet. Add it: {}"
NO_PACKAGE = (
    "The extra discord (package discord.py) is not installed. See the section Extras of the README."
)
INVITE = "To add the bot to a server: {}"
_URL = "https://discord.com/oauth2/authorize?client_id={}&scope=bot+applications.commands&permissions={}"


class _Server(Struct, frozen=True):
    id: str


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Ask Discord about the bot. Raises `HermesError` if it does not accept the token."""
    options = read_options(DiscordOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    async with open_rest_api(options, BotToken(lambda: token), SystemClock(), env) as api:
        bot = await api.get_me()
        application = await api.application()
        servers = await api.call_with_retries("GET", "/users/@me/guilds?limit=1", list[_Server])
    url = _URL.format(application.id, PERMISSIONS)
    notes = [] if application.reads_messages else [NO_CONTENT.format(application.id)]
    if find_spec("discord") is None:
        notes.append(NO_PACKAGE)
    notes.append((INVITE if servers else NO_SERVER).format(url))
    return AccountCheck(account=bot.name, notes=tuple(notes))
