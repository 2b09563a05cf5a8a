"""SMS through Twilio: messages arrive by webhook and are sent over its API."""

from msgspec import Struct

from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelManifest,
    ChannelSetup,
    LengthUnit,
    Markup,
    MediaLimits,
    SetupQuestion,
)

MEDIA_LIMIT = 5_000_000
"""The largest file that Twilio accepts in a message."""


class SmsOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    `phone_number` is the agent's number, or the id of a messaging service (`MG…`). `webhook_url` is
    the public address that Twilio calls; signatures cover it. With `insecure_no_signature`, anyone
    who can reach the port can send messages as anyone.
    """

    account_sid: str = ""
    auth_token: str = ""
    phone_number: str = ""
    webhook_url: str = ""
    webhook_host: str = "127.0.0.1"
    webhook_port: int = 8080
    insecure_no_signature: bool = False
    base_url: str = "https://api.twilio.com"
    proxy_url: str = ""


MANIFEST = ChannelManifest(
    name="sms",
    label="SMS (Twilio)",
    factory="hermes.channels.sms.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=1600,
        unit=LengthUnit.UTF16,  # an emoji counts as several characters
        rate=10.0,
        chat_rate=1.0,
        markup=Markup.PLAIN,
        media_in=MediaLimits(
            image=MEDIA_LIMIT, audio=MEDIA_LIMIT, video=MEDIA_LIMIT, document=MEDIA_LIMIT
        ),
    ),
    enabled_by=("TWILIO_ACCOUNT_SID",),
    account_option="phone_number",
    options=SmsOptions,
    variables={
        "account_sid": "TWILIO_ACCOUNT_SID",
        "auth_token": "TWILIO_AUTH_TOKEN",
        "phone_number": "TWILIO_PHONE_NUMBER",
        "webhook_url": "SMS_WEBHOOK_URL",
        "webhook_host": "SMS_WEBHOOK_HOST",
        "webhook_port": "SMS_WEBHOOK_PORT",
        "insecure_no_signature": "SMS_INSECURE_NO_SIGNATURE",
        "proxy_url": "SMS_PROXY",
    },
    setup=ChannelSetup(
        check="hermes.channels.sms.setup:check_account",
        variable="TWILIO_AUTH_TOKEN",
        secret="Auth token",  # noqa: S106 - what it is called
        questions=(
            SetupQuestion("TWILIO_ACCOUNT_SID", "Account SID"),
            SetupQuestion("TWILIO_PHONE_NUMBER", "The agent's phone number"),
            SetupQuestion("SMS_WEBHOOK_URL", "Public URL for incoming messages"),
        ),
        steps=(
            "Sign in at https://console.twilio.com and buy a number that can send SMS.",
            "Copy the account SID and the auth token from the first page of the console.",
            "Set up a public HTTPS address that forwards to port 8080 of this machine.",
        ),
        user_pattern=r"\+?\d+",
        user_id="a phone number, such as +15551234567",
    ),
)
