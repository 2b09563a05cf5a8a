"""WhatsApp through Meta's Cloud API: messages arrive by webhook and are sent over the Graph API."""

from msgspec import Struct

from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelManifest,
    ChannelSetup,
    Markup,
    MediaLimits,
    SetupQuestion,
)

MEDIA = MediaLimits(image=5_000_000, audio=16_000_000, video=16_000_000, document=100_000_000)
"""The largest files that the Cloud API accepts."""
MAX_LIST = 10
MAX_REPLY_BUTTONS = 3
SEND_SECONDS = 340.0
"""Longer than the timeouts of an upload and of the message that follows it."""


class WhatsAppOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    `phone_number_id` is the id of the agent's number, not the number. `verify_token` is any text,
    which Meta sends when the webhook is set up; `app_secret` signs Meta's calls. Each post begins
    with `reply_prefix`.
    """

    phone_number_id: str = ""
    access_token: str = ""
    app_secret: str = ""
    verify_token: str = ""
    app_id: str = ""
    waba_id: str = ""
    api_version: str = "v20.0"
    webhook_host: str = "0.0.0.0"  # noqa: S104 - Meta calls it from outside
    webhook_port: int = 8090
    webhook_path: str = "/whatsapp/webhook"
    base_url: str = "https://graph.facebook.com"
    reply_prefix: str = ""
    proxy_url: str = ""


MANIFEST = ChannelManifest(
    name="whatsapp_cloud",
    label="WhatsApp (Cloud API)",
    factory="hermes.channels.whatsapp_cloud.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=4096,
        # Meta allows 80 messages per second, and after a burst one every six seconds to the same
        # person.
        rate=40.0,
        chat_rate=1.0,
        markup=Markup.WHATSAPP,
        typing=True,
        reactions=True,
        buttons=MAX_LIST,
        button_label=20,
        media_in=MEDIA,
        media_out=MEDIA,
        voice=True,
        send_seconds=SEND_SECONDS,
    ),
    enabled_by=("WHATSAPP_CLOUD_ACCESS_TOKEN",),
    account_option="phone_number_id",
    options=WhatsAppOptions,
    variables={
        "phone_number_id": "WHATSAPP_CLOUD_PHONE_NUMBER_ID",
        "access_token": "WHATSAPP_CLOUD_ACCESS_TOKEN",
        "app_secret": "WHATSAPP_CLOUD_APP_SECRET",
        "verify_token": "WHATSAPP_CLOUD_VERIFY_TOKEN",
        "app_id": "WHATSAPP_CLOUD_APP_ID",
        "waba_id": "WHATSAPP_CLOUD_WABA_ID",
        "api_version": "WHATSAPP_CLOUD_API_VERSION",
        "webhook_host": "WHATSAPP_CLOUD_WEBHOOK_HOST",
        "webhook_port": "WHATSAPP_CLOUD_WEBHOOK_PORT",
        "webhook_path": "WHATSAPP_CLOUD_WEBHOOK_PATH",
        "reply_prefix": "WHATSAPP_CLOUD_REPLY_PREFIX",
        "proxy_url": "WHATSAPP_CLOUD_PROXY",
    },
    setup=ChannelSetup(
        check="hermes.channels.whatsapp_cloud.setup:check_account",
        variable="WHATSAPP_CLOUD_ACCESS_TOKEN",
        secret="Access token",  # noqa: S106 - what it is called
        questions=(
            SetupQuestion("WHATSAPP_CLOUD_PHONE_NUMBER_ID", "Phone number ID"),
            SetupQuestion("WHATSAPP_CLOUD_APP_SECRET", "App secret"),
            SetupQuestion("WHATSAPP_CLOUD_VERIFY_TOKEN", "Verify token (any text you choose)"),
        ),
        steps=(
            "Create a Business app with WhatsApp at https://developers.facebook.com/apps.",
            "Under WhatsApp > API setup, add a phone number and copy its phone number ID.",
            "In the business settings, create a system user and give it the app.",
            "Create a token for it that does not expire.",
            "Its permissions: whatsapp_business_messaging and whatsapp_business_management.",
            "Copy the app secret from App settings > Basic.",
        ),
        user_pattern=r"\+?\d+",
        user_id="a phone number with its country code, such as 15551234567",
    ),
)
