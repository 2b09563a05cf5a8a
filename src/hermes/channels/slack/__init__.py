"""Slack apps: events arrive by Socket Mode and posts go to the Web API, for any workspaces."""

from msgspec import Struct

from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelManifest,
    ChannelSetup,
    Markup,
    MediaLimits,
    SetupQuestion,
)

UPLOAD_LIMIT = 100 * 1024 * 1024
DOWNLOAD_LIMIT = 20 * 1024 * 1024


class SuggestedPrompt(Struct, frozen=True, kw_only=True):
    """A prompt that Slack offers at the start of a conversation with the assistant."""

    title: str
    message: str


class SlackOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    The gateway applies `require_mention` and `free_response_channels`, too; here they decide
    whether files are downloaded. `base_url` is another server with the same API.
    """

    base_url: str = "https://slack.com/api"
    app_token: str = ""
    proxy_url: str = ""
    require_mention: bool = True
    strict_mention: bool = False
    mention_patterns: tuple[str, ...] = ()
    free_response_channels: tuple[str, ...] = ()
    reply_in_thread: bool = True
    reply_broadcast: bool = False
    dm_top_level_threads_as_sessions: bool = True
    rich_blocks: bool = False
    suggested_prompts: tuple[SuggestedPrompt, ...] = ()
    assistant_thread_titles: bool = True


_VARIABLES = (
    "app_token",
    "require_mention",
    "strict_mention",
    "mention_patterns",
    "free_response_channels",
    "reply_in_thread",
    "reply_broadcast",
    "rich_blocks",
)

MANIFEST = ChannelManifest(
    name="slack",
    label="Slack",
    factory="hermes.channels.slack.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=10_000,  # an edited text must fit in blocks (decision 0106)
        groups=True,
        rate=4.0,  # in each workspace; Slack allows several hundred messages per minute
        burst=8.0,  # reactions and the status count here, but not in Slack's limit of posts
        chat_rate=1.0,
        markup=Markup.SLACK,
        edit=True,
        typing=True,
        reactions=True,
        threads=True,
        buttons=25,
        button_label=75,
        media_in=MediaLimits(
            image=DOWNLOAD_LIMIT,
            audio=DOWNLOAD_LIMIT,
            video=DOWNLOAD_LIMIT,
            document=DOWNLOAD_LIMIT,
        ),
        media_out=MediaLimits(
            image=UPLOAD_LIMIT, audio=UPLOAD_LIMIT, video=UPLOAD_LIMIT, document=UPLOAD_LIMIT
        ),
        mention_required=True,
        native_commands=True,
        send_seconds=320.0,  # longer than an upload may take
    ),
    enabled_by=("SLACK_BOT_TOKEN",),
    options=SlackOptions,
    variables={
        **{name: f"SLACK_{name.upper()}" for name in _VARIABLES},
        "proxy_url": "SLACK_PROXY",
    },
    setup=ChannelSetup(
        check="hermes.channels.slack.setup:check_account",
        variable="SLACK_BOT_TOKEN",
        secret="Bot token",  # noqa: S106 - what it is called
        questions=(
            SetupQuestion("SLACK_APP_TOKEN", "App token (xapp-...)", secret=True),
        ),
        steps=(
            "Run: hermes slack manifest",
            "At https://api.slack.com/apps choose Create New App, From a manifest, and paste that.",
            "Basic Information, App-Level Tokens: create one with connections:write (xapp-...).",
            "Install App: install it to the workspace, copy the Bot User OAuth Token (xoxb-...).",
        ),
        user_pattern=r"[UW][A-Z0-9]+",
        user_id="a code such as U012AB3CD: open a profile in Slack, click the three dots and "
        "choose Copy member ID",
    ),
)  # fmt: skip
