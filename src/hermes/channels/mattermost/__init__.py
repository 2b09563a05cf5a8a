"""Mattermost bots: events arrive over a websocket, posts are sent over the REST API."""

from typing import Literal

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
"""The limit of old servers; newer ones accept 16,383 characters."""
FILE_LIMIT = 100 * 1024 * 1024
"""The default of a server's MaxFileSize."""


class MattermostOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    With `reply_mode: thread`, an answer in a channel opens a thread below the message. The gateway
    applies `require_mention` and `free_response_channels`, too; here they decide whether files are
    downloaded.
    """

    url: str = ""
    reply_mode: Literal["off", "thread"] = "off"
    require_mention: bool = True
    free_response_channels: tuple[str, ...] = ()
    proxy_url: str = ""


MANIFEST = ChannelManifest(
    name="mattermost",
    label="Mattermost",
    factory="hermes.channels.mattermost.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=MAX_TEXT,
        send_seconds=320.0,  # more than an upload may take
        groups=True,
        rate=8.0,  # a server that limits requests allows 10 per second
        markup=Markup.MARKDOWN,
        edit=True,
        typing=True,
        reactions=True,
        threads=True,
        media_in=MediaLimits(
            image=FILE_LIMIT, audio=FILE_LIMIT, video=FILE_LIMIT, document=FILE_LIMIT
        ),
        media_out=MediaLimits(
            image=FILE_LIMIT, audio=FILE_LIMIT, video=FILE_LIMIT, document=FILE_LIMIT
        ),
        mention_required=True,
    ),
    enabled_by=("MATTERMOST_TOKEN",),
    options=MattermostOptions,
    variables={
        "url": "MATTERMOST_URL",
        "reply_mode": "MATTERMOST_REPLY_MODE",
        "require_mention": "MATTERMOST_REQUIRE_MENTION",
        "free_response_channels": "MATTERMOST_FREE_RESPONSE_CHANNELS",
        "proxy_url": "MATTERMOST_PROXY",
    },
    setup=ChannelSetup(
        check="hermes.channels.mattermost.setup:check_account",
        variable="MATTERMOST_TOKEN",
        questions=(SetupQuestion("MATTERMOST_URL", "Address of the server, https://…"),),
        steps=(
            "An administrator turns on bot accounts: System Console, Integrations, Bot Accounts.",
            "In Mattermost, open Integrations, Bot Accounts and choose Add Bot Account.",
            "Copy the token that is shown once, and invite the bot to a team and its channels.",
        ),
        user_id="26 letters and digits: open the person's profile in the System Console, or ask "
        "for a pairing code by writing to the bot",
    ),
)
