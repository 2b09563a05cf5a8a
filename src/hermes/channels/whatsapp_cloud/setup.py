"""Check a WhatsApp number for `hermes gateway setup`."""

from collections.abc import Mapping

from hermes.channels.account import BotToken
from hermes.channels.whatsapp_cloud import MANIFEST, WhatsAppOptions
from hermes.channels.whatsapp_cloud.graph_api import open_graph_api
from hermes.config.sections import FreeTable
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options

WEBHOOK = (
    "At WhatsApp > Configuration, set the callback URL to the public HTTPS address that forwards "
    "to port {port}{path} of this machine, the verify token to WHATSAPP_CLOUD_VERIFY_TOKEN, and "
    "subscribe to the field messages. Meta checks it at once: start the gateway first."
)
CALLBACK = "Meta posts messages to {}."
NOT_SUBSCRIBED = "No app is subscribed to the account {}, so no messages arrive."
LOW_QUALITY = "Meta rates the number's quality as {}: it may be limited."
MISSING = "{} is not set: without it, no message is accepted."


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Ask Meta about the number. Raises `HermesError` if it does not accept the token."""
    options = read_options(WhatsAppOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    notes: list[str] = []
    async with open_graph_api(options, BotToken(lambda: token), env) as api:
        number = await api.number()
        if options.waba_id and not (await api.subscribed_apps(options.waba_id)).data:
            notes.append(NOT_SUBSCRIBED.format(options.waba_id))
        callback = ""
        if options.app_id and options.app_secret:
            callback = await api.callback_url(options.app_id, options.app_secret)
    if number.quality_rating in {"RED", "YELLOW"}:
        notes.append(LOW_QUALITY.format(number.quality_rating.lower()))
    notes += [
        MISSING.format(MANIFEST.variables[name])
        for name in ("app_secret", "verify_token")
        if not getattr(options, name)
    ]
    if callback:
        notes.append(CALLBACK.format(callback))
    else:
        notes.append(WEBHOOK.format(port=options.webhook_port, path=options.webhook_path))
    account = f"{number.display_phone_number} ({number.verified_name})"
    return AccountCheck(account=account, notes=tuple(notes))
