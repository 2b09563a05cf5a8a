"""Check a Mattermost bot for `hermes gateway setup`."""

from collections.abc import Mapping

from hermes.channels.account import BotToken
from hermes.channels.mattermost import MANIFEST, MattermostOptions
from hermes.channels.mattermost.channel import with_checked_url
from hermes.channels.mattermost.objects import DIRECT
from hermes.channels.mattermost.rest_api import open_mattermost
from hermes.config.sections import FreeTable
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options

NO_TEAM = "The bot is not in any team: invite it, or people cannot find it."
NO_CHANNEL = (
    "The bot is not in any channel yet: invite it with /invite @{}, or write to it directly."
)
A_PERSON = "This is the token of a person, not of a bot: the agent will write in their name."


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Ask the server about the token. Raises `HermesError` if it does not accept it."""
    options = read_options(MattermostOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    async with open_mattermost(with_checked_url(options), BotToken(lambda: token), env) as api:
        bot, teams, channels = await api.me(), await api.teams(), await api.channels()
    notes = [] if bot.is_bot else [A_PERSON]
    if not teams:
        notes.append(NO_TEAM)
    elif all(channel.type == DIRECT for channel in channels):
        notes.append(NO_CHANNEL.format(bot.username))
    return AccountCheck(account=f"@{bot.username}", notes=tuple(notes))
