"""Discord bots: discord.py keeps the gateway connection, our own client calls the HTTP API."""

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

UPLOAD_LIMIT = 20 * 1024 * 1024
"""The largest file that a bot may upload to a server without boosts."""
DOWNLOAD_LIMIT = 33_554_432
SEND_SECONDS = 320.0
"""Longer than the timeout of an upload."""


class AllowedMentions(Struct, frozen=True, kw_only=True):
    """Whom the agent's posts may notify."""

    everyone: bool = False
    roles: bool = False
    users: bool = True
    replied_user: bool = True


class MissedMessages(Struct, frozen=True, kw_only=True):
    """Which messages are fetched after an outage if Discord does not replay them.

    `channels` restricts this to some channels; `limit` is per channel and `max_dispatches` for all
    channels together. 0 means no limit.
    """

    enabled: bool = True
    channels: tuple[str, ...] = ()
    window_seconds: float = 21_600.0
    limit: int = 100
    max_dispatches: int = 0


class DiscordOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    The gateway applies `require_mention`, `free_response_channels` and `allowed_roles`, too; here
    they decide whether a thread is opened, and whether earlier messages and roles are fetched.
    `base_url` is another server with the same API.
    """

    base_url: str = "https://discord.com/api/v10"
    proxy_url: str = ""
    require_mention: bool = True
    thread_require_mention: bool = False
    free_response_channels: tuple[str, ...] = ()
    ignored_channels: tuple[str, ...] = ()
    no_thread_channels: tuple[str, ...] = ()
    auto_thread: bool = True
    ignore_no_mention: bool = True
    bots_require_inline_mention: bool = False
    allowed_roles: tuple[str, ...] = ()
    dm_role_auth_guild: str = ""
    history_backfill: bool = True
    history_backfill_limit: int = 50
    missed_message_backfill: MissedMessages = MissedMessages()
    allow_mentions: AllowedMentions = AllowedMentions()
    max_attachment_bytes: int = DOWNLOAD_LIMIT
    slash_commands: bool = True
    hide_slash_commands: bool = False
    command_sync_policy: Literal["safe", "bulk", "off"] = "safe"
    websocket_heartbeat_ack_max_age_seconds: float = 50.0


_VARIABLES = (
    "require_mention",
    "thread_require_mention",
    "free_response_channels",
    "ignored_channels",
    "no_thread_channels",
    "auto_thread",
    "ignore_no_mention",
    "bots_require_inline_mention",
    "allowed_roles",
    "dm_role_auth_guild",
    "history_backfill",
    "history_backfill_limit",
    "max_attachment_bytes",
    "slash_commands",
    "hide_slash_commands",
    "command_sync_policy",
)

MANIFEST = ChannelManifest(
    name="discord",
    label="Discord",
    factory="hermes.channels.discord.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=2000,
        groups=True,
        rate=20.0,  # with a burst of the same size, at most 40 of 50 allowed requests per second
        chat_rate=5.0,  # limits per channel come from Discord's responses
        unit=LengthUnit.UTF16,
        markup=Markup.DISCORD,
        edit=True,
        typing=True,
        reactions=True,
        threads=True,
        buttons=25,
        button_label=80,
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
        mention_required=True,
        native_commands=True,
        idempotent=True,
        send_seconds=SEND_SECONDS,
    ),
    enabled_by=("DISCORD_BOT_TOKEN",),
    options=DiscordOptions,
    variables={
        **{name: f"DISCORD_{name.upper()}" for name in _VARIABLES},
        "proxy_url": "DISCORD_PROXY",
    },
    extra="discord",
    setup=ChannelSetup(
        check="hermes.channels.discord.setup:check_account",
        variable="DISCORD_BOT_TOKEN",
        steps=(
            "Open https://discord.com/developers/applications and choose New Application.",
            "On the page Bot, turn on Message Content Intent and save.",
            "On the same page, choose Reset Token and copy the token.",
        ),
        user_pattern=r"\d+",
        user_id="a number: turn on Developer Mode in Discord's settings (Advanced), then "
        "right-click your name and choose Copy User ID",
    ),
)
