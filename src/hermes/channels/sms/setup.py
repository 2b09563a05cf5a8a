"""Check a Twilio account for `hermes gateway setup`."""

from collections.abc import Mapping

from hermes.channels.account import BotToken
from hermes.channels.sms import MANIFEST, SmsOptions
from hermes.channels.sms.channel import check_numbers
from hermes.channels.sms.twilio_api import PhoneNumber, open_twilio
from hermes.config.sections import FreeTable
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options

TRIAL = "This is a trial account: it can only write to numbers that you have verified at Twilio."
NOT_OWN = "The account does not have the number {}: buy it, or correct TWILIO_PHONE_NUMBER."
NO_SMS = "The number {} cannot send and receive SMS."
OTHER_URL = (
    "Twilio does not call {}: in the console open the number, and under Messaging set "
    '"A message comes in" to Webhook, this URL and HTTP POST.'
)
NO_URL = "SMS_WEBHOOK_URL is not set: without it the channel does not start."


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Ask Twilio about the account. Raises `HermesError` if it does not accept the login."""
    options = read_options(SmsOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    check_numbers(options)
    async with open_twilio(options, BotToken(lambda: token), env) as api:
        account = await api.account()
        # Short codes and messaging services are not listed as numbers.
        is_number = options.phone_number.startswith("+")
        notes = _number_notes(options, await api.number()) if is_number else []
    if account.type.lower() == "trial":
        notes.append(TRIAL)
    if not options.webhook_url:
        notes.append(NO_URL)
    return AccountCheck(
        account=f"{options.phone_number} of {account.friendly_name}", notes=tuple(notes)
    )


def _number_notes(options: SmsOptions, number: PhoneNumber | None) -> list[str]:
    if number is None:
        return [NOT_OWN.format(options.phone_number)]
    notes: list[str] = []
    capabilities = {name.lower(): has for name, has in number.capabilities.items()}
    if not capabilities.get("sms", True):
        notes.append(NO_SMS.format(options.phone_number))
    posts = (number.sms_method or "POST").upper() == "POST"
    if options.webhook_url and (number.sms_url != options.webhook_url or not posts):
        notes.append(OTHER_URL.format(options.webhook_url))
    return notes
