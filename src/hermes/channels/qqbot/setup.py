"""Check a QQ bot for `hermes gateway setup`."""

from collections.abc import Mapping

from hermes.channels.qqbot import MANIFEST, QqbotOptions
from hermes.channels.qqbot.rest_api import open_qq_api
from hermes.config.sections import FreeTable
from hermes.kit.clock import SystemClock
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options

SANDBOX = "This is the sandbox: only people and groups of the sandbox settings reach the bot."
REPLIES = (
    "QQ accepts up to 5 answers to a message, within an hour (in groups: 5 minutes). Later ones, "
    "such as the result of a scheduled job, wait until someone writes."
)


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Ask QQ about the bot. Raises `HermesError` if it does not accept the secret."""
    options = read_options(QqbotOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    async with open_qq_api(options, lambda: (options.app_id, token), SystemClock(), env) as api:
        bot = await api.me()
        await api.websocket_url()
    notes = [REPLIES]
    if "sandbox" in options.base_url:
        notes.insert(0, SANDBOX)
    return AccountCheck(account=bot.username or options.app_id, notes=tuple(notes))
