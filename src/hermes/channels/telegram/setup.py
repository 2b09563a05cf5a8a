"""Check a bot token for `hermes gateway setup`."""

from collections.abc import Mapping

from hermes.channels.account import BotToken
from hermes.channels.telegram import MANIFEST, TelegramOptions
from hermes.channels.telegram.bot_api import open_bot_api
from hermes.config.sections import FreeTable
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options

PRIVACY = (
    "In groups the bot only sees commands, mentions and replies to it. To let it read everything, "
    "send /setprivacy to @BotFather, choose Disable, then add the bot to the group again; or make "
    "it an administrator there."
)
NO_GROUPS = "The bot cannot be added to groups; /setjoingroups at @BotFather changes that."
OTHER_WEBHOOK = "Another program has set a webhook ({}); it is removed when the gateway starts."


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Ask Telegram about the bot. Raises `HermesError` if it does not accept the token."""
    options = read_options(TelegramOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    async with open_bot_api(options, BotToken(lambda: token), env) as api:
        bot = await api.get_me()
        webhook = await api.get_webhook_info()
    notes: list[str] = []
    if not bot.can_read_all_group_messages:
        notes.append(PRIVACY)
    if not bot.can_join_groups:
        notes.append(NO_GROUPS)
    if webhook.url and webhook.url != options.webhook_url:
        notes.append(OTHER_WEBHOOK.format(webhook.url))
    return AccountCheck(account=f"@{bot.username}", notes=tuple(notes))
