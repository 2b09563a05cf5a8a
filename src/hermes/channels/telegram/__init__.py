"""Telegram bots over the Bot API, by long polling or webhook."""

from typing import Literal

from msgspec import Struct

from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelManifest,
    ChannelSetup,
    LengthUnit,
    Markup,
    MediaLimits,
)

DOWNLOAD_LIMIT = 20_000_000
"""The largest file that the public server lets bots download."""
UPLOAD_LIMIT = 50_000_000
SEND_SECONDS = 320.0
"""Longer than the timeout of an upload."""


class CommandMenu(Struct, frozen=True, kw_only=True):
    """The list of commands that Telegram shows: how many, and which ones first.

    `priority_mode` puts `priority` before or after the commands that normally come first, or in
    their place.
    """

    max_commands: int = 60
    priority: tuple[str, ...] = ()
    priority_mode: Literal["prepend", "append", "replace"] = "prepend"


class TelegramOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    `mention_patterns` are regular expressions that count as a mention. With
    `exclusive_bot_mentions`, a message that names only other bots is ignored. `allowed_topics` and
    `ignored_threads` are topic ids; the general topic is `1`. `base_url` is a self-hosted Bot API
    server; with `local_mode` it stores files on this machine.
    """

    base_url: str = "https://api.telegram.org"
    base_file_url: str = ""
    local_mode: bool = False
    proxy_url: str = ""
    mention_patterns: tuple[str, ...] = ()
    exclusive_bot_mentions: bool = True
    allowed_topics: tuple[str, ...] = ()
    ignored_threads: tuple[str, ...] = ()
    disable_link_previews: bool = False
    command_menu: CommandMenu = CommandMenu()
    webhook_url: str = ""
    webhook_host: str = "0.0.0.0"  # noqa: S104 - Telegram calls it from outside
    webhook_port: int = 8443
    webhook_secret: str = ""


MANIFEST = ChannelManifest(
    name="telegram",
    label="Telegram",
    factory="hermes.channels.telegram.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=4096,
        groups=True,
        # At most 25 in any second. Telegram allows 30, but delayed calls may arrive together.
        rate=20.0,
        burst=5.0,
        chat_rate=1.0,
        group_rate=20 / 60,
        group_prefix="-",
        unit=LengthUnit.UTF16,
        markup=Markup.TELEGRAM,
        edit=True,
        typing=True,
        reactions=True,
        threads=True,
        buttons=24,
        media_in=MediaLimits(
            image=DOWNLOAD_LIMIT,
            audio=DOWNLOAD_LIMIT,
            video=DOWNLOAD_LIMIT,
            document=DOWNLOAD_LIMIT,
        ),
        media_out=MediaLimits(
            image=UPLOAD_LIMIT, audio=UPLOAD_LIMIT, video=UPLOAD_LIMIT, document=UPLOAD_LIMIT
        ),
        voice=True,
        native_commands=True,
        send_seconds=SEND_SECONDS,
    ),
    enabled_by=("TELEGRAM_BOT_TOKEN",),
    options=TelegramOptions,
    variables={
        "proxy_url": "TELEGRAM_PROXY",
        "mention_patterns": "TELEGRAM_MENTION_PATTERNS",
        "exclusive_bot_mentions": "TELEGRAM_EXCLUSIVE_BOT_MENTIONS",
        "allowed_topics": "TELEGRAM_ALLOWED_TOPICS",
        "ignored_threads": "TELEGRAM_IGNORED_THREADS",
        "disable_link_previews": "TELEGRAM_DISABLE_LINK_PREVIEWS",
        "webhook_url": "TELEGRAM_WEBHOOK_URL",
        "webhook_host": "TELEGRAM_WEBHOOK_HOST",
        "webhook_port": "TELEGRAM_WEBHOOK_PORT",
        "webhook_secret": "TELEGRAM_WEBHOOK_SECRET",
    },
    setup=ChannelSetup(
        check="hermes.channels.telegram.setup:check_account",
        variable="TELEGRAM_BOT_TOKEN",
        steps=(
            "Open https://t.me/BotFather in Telegram and send /newbot.",
            "Choose a name, and a user name that ends with bot.",
            "Copy the token; it looks like 123456789:AAE…",
        ),
        user_pattern=r"\d+",
        user_id="a number; @userinfobot in Telegram tells you yours",
    ),
)
