"""QQ bots: events arrive over the platform's websocket, messages are sent over its REST API."""

from msgspec import Struct

from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelManifest,
    ChannelSetup,
    Markup,
    MediaLimits,
    SetupQuestion,
)

MAX_TEXT = 4000
MAX_BUTTONS = 25
"""Five rows of five."""
FILE_LIMIT = 100 * 1024 * 1024
"""The largest file that is downloaded."""
UPLOAD_LIMIT = 10 * 1024 * 1024
"""The largest file that is sent, as part of a JSON request."""


class QqbotOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    `markdown_support` is for bots that may send Markdown; buttons need it, too. `base_url` is
    https://sandbox.api.sgroup.qq.com for the sandbox.
    """

    app_id: str = ""
    client_secret: str = ""
    markdown_support: bool = True
    base_url: str = "https://api.sgroup.qq.com"
    token_url: str = "https://bots.qq.com/app/getAppAccessToken"  # noqa: S105 - an address
    proxy_url: str = ""


MANIFEST = ChannelManifest(
    name="qqbot",
    label="QQ",
    factory="hermes.channels.qqbot.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=MAX_TEXT,
        groups=True,
        chat_rate=5.0,  # the documented limit of a channel in a guild
        markup=Markup.MARKDOWN,
        buttons=MAX_BUTTONS,
        button_label=30,
        media_in=MediaLimits(
            image=FILE_LIMIT, audio=FILE_LIMIT, video=FILE_LIMIT, document=FILE_LIMIT
        ),
        media_out=MediaLimits(
            image=UPLOAD_LIMIT, audio=UPLOAD_LIMIT, video=UPLOAD_LIMIT, document=UPLOAD_LIMIT
        ),
        send_seconds=340.0,  # longer than an upload and the following message may take
    ),
    enabled_by=("QQ_CLIENT_SECRET",),
    account_option="app_id",
    options=QqbotOptions,
    variables={
        "app_id": "QQ_APP_ID",
        "client_secret": "QQ_CLIENT_SECRET",
        "proxy_url": "QQ_PROXY",
    },
    setup=ChannelSetup(
        check="hermes.channels.qqbot.setup:check_account",
        variable="QQ_CLIENT_SECRET",
        secret="App secret",  # noqa: S106 - what it is called
        questions=(SetupQuestion("QQ_APP_ID", "App ID"),),
        steps=(
            "Sign in at https://q.qq.com with a QQ account and create a bot (机器人).",
            "Under development settings (开发设置), copy the AppID and make an AppSecret.",
            "Choose the websocket for events, and add this machine's address to the IP list.",
            "Until it is published, add yourself under sandbox settings (沙箱配置).",
        ),
        user_id="an openid of 32 letters and digits: write to the bot and approve the pairing "
        "code, or find it in the log",
    ),
)
