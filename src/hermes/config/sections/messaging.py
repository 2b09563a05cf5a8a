"""Settings for the gateway and its platforms: sessions, routes, delivery, streaming."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, structs

from hermes.config.sections import (
    AllowsUnknownKeys,
    BoolOrMode,
    Count,
    FreeTable,
    NameList,
    Seconds,
)
from hermes.config.values import join_lists

DENIED = "deny_from"
"""A list that is merged from all places, so that no place can lift another's denial."""


class SessionReset(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """When a chat starts a new session automatically."""

    mode: Literal["none", "idle", "daily", "both"] = "none"
    at_hour: Count = 4
    idle_minutes: Count = 1440
    notify: bool = True
    notify_exclude: NameList = ("api_server", "webhook")
    bg_process_max_age_hours: float = 24


class ProfileRoute(Struct, frozen=True, kw_only=True):
    """Routes messages that match all given fields to a profile."""

    name: str = ""
    platform: str = ""
    profile: str = ""
    guild_id: str = ""
    chat_id: str = ""
    thread_id: str = ""
    enabled: bool = True


class ApiServer(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    max_concurrent_runs: Count = 10


class RestartLoopGuard(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """Detection of restart loops."""

    enabled: bool = True
    max_restarts: Count = 3
    window_seconds: Seconds = 60


class RespawnStorm(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """Limit on the number of starts within a time window."""

    enabled: bool = True
    max_starts: Count = 5
    window_seconds: Seconds = 120


class MessageTimestamps(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    enabled: bool = False


class ScaleToZero(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    enabled: bool = False
    idle_timeout_minutes: float = 5


class Proxy(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """Timeouts for a remote gateway that runs the turns; a total of 0 means no limit.

    `idle_timeout` applies while the remote is silent, `link_timeout` while it is unreachable.
    """

    connect_timeout: Seconds = 30
    idle_timeout: Seconds = 1800
    link_timeout: Seconds = 120
    total_timeout: Seconds = 0


class Gateway(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    delivery_ledger: bool = True
    platform_connect_timeout: Seconds = 30
    write_sessions_json: bool = True
    max_inbound_media_bytes: Count = 134217728
    max_stored_media_bytes: Count = 10_737_418_240
    strict: bool = False
    media_delivery_allow_dirs: NameList = ()
    trust_recent_files: bool = True
    trust_recent_files_seconds: Seconds = 600
    api_server: ApiServer = ApiServer()
    restart_loop_guard: RestartLoopGuard = RestartLoopGuard()
    respawn_storm: RespawnStorm = RespawnStorm()
    message_timestamps: MessageTimestamps = MessageTimestamps()
    scale_to_zero: ScaleToZero = ScaleToZero()
    proxy_url: str = ""
    proxy: Proxy = Proxy()
    relay_url: str = ""
    multiplex_profiles: bool = False
    served_profiles: NameList = ()
    debounce_seconds: Seconds = 0.0
    profile_routes: tuple[ProfileRoute, ...] = ()


class Streaming(Struct, frozen=True, kw_only=True):
    """Streaming of answers in chats."""

    enabled: bool = False
    transport: Literal["auto", "draft", "edit", "off"] = "auto"
    edit_interval: Seconds = 0.8
    buffer_threshold: Count = 24
    cursor: str = " ▉"
    fresh_final_after_seconds: Seconds = 0.0


class Sessions(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    auto_prune: bool = False
    retention_days: Count = 90
    vacuum_after_prune: bool = True
    min_interval_hours: float = 24


class HomeChannel(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    platform: str = ""
    chat_id: str = ""
    name: str = ""
    thread_id: str = ""


class ChannelOverride(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    model: str = ""
    provider: str = ""
    system_prompt: str = ""
    streaming: bool | None = None
    tool_progress: BoolOrMode | None = None


class PlatformAccount(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """A further account of a platform; unset fields are inherited from the platform."""

    enabled: bool = True
    token: str = ""
    api_key: str = ""
    home_channel: HomeChannel | str | None = None
    extra: FreeTable = {}


class Platform(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """One entry of `platforms`; `extra` holds settings specific to the platform.

    It describes one account. More of them have names in `accounts`; the channel of such an account
    is called `platform/account`. With `inbound_reactions: context`, the model learns of reactions
    with the next message. Unless `enabled` is set, a token enables the platform.
    """

    enabled: bool | None = None
    token: str = ""
    api_key: str = ""
    home_channel: HomeChannel | str | None = None
    reply_to_mode: Literal["off", "first", "all"] = "first"
    gateway_restart_notification: bool = True
    typing_indicator: bool = True
    typing_status_text: str = ""
    channel_overrides: Mapping[str, ChannelOverride] = {}
    inbound_reactions: Literal["ignore", "context"] = "ignore"
    extra: FreeTable = {}
    accounts: Mapping[str, PlatformAccount] = {}


def channel_settings(platforms: Mapping[str, Platform]) -> dict[str, Platform]:
    """Return the settings of each channel: those of a platform, and of each further account."""
    channels = dict(platforms)
    for name, settings in platforms.items():
        denied = settings.extra.get(DENIED)
        for account, own in settings.accounts.items():
            extra = {**settings.extra, **own.extra}
            if denied is not None:
                extra[DENIED] = join_lists(denied, own.extra.get(DENIED) or [])
            channels[f"{name}/{account}"] = structs.replace(
                settings,
                enabled=settings.enabled if own.enabled else False,
                token=own.token,
                api_key=own.api_key,
                home_channel=own.home_channel,
                extra=extra,
                accounts={},
            )
    return channels


class ChatPlatform(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """A platform's section at the root of the file: its behavior in groups."""

    require_mention: bool | None = None
    free_response_channels: NameList = ()
    allowed_channels: NameList = ()
    channel_prompts: Mapping[str, str] = {}
    reactions: BoolOrMode | None = None
    auto_thread: bool | None = None


class Telegram(ChatPlatform, frozen=True, kw_only=True):
    """Telegram calls groups chats; the keys of its channel may be set here, too."""

    free_response_chats: NameList = ()
    free_response_topics: NameList = ()
    allowed_chats: NameList = ()
    guest_mode: bool = False
    allow_from: NameList = ()
    group_allow_from: NameList = ()
    group_allowed_chats: NameList = ()
    allow_bots: str = ""
    mention_patterns: NameList = ()
    exclusive_bot_mentions: bool = True
    allowed_topics: NameList = ()
    ignored_threads: NameList = ()
    proxy_url: str = ""
    disable_link_previews: bool = False


class Slack(ChatPlatform, frozen=True, kw_only=True):
    """Slack's behavior in channels; the keys of its channel may be set here, too."""

    allow_from: NameList = ()
    group_allow_from: NameList = ()
    allow_bots: str = ""
    strict_mention: bool = False
    mention_patterns: NameList = ()
    reply_in_thread: bool = True
    reply_broadcast: bool = False
    dm_top_level_threads_as_sessions: bool = True
    rich_blocks: bool = False
    suggested_prompts: tuple[FreeTable, ...] = ()
    assistant_thread_titles: bool = True
    proxy_url: str = ""


class Mattermost(ChatPlatform, frozen=True, kw_only=True):
    """The keys of Mattermost's channel may be set here, too."""

    url: str = ""
    reply_mode: Literal["off", "thread"] = "off"
    allow_from: NameList = ()
    group_allow_from: NameList = ()
    allow_bots: str = ""
    proxy_url: str = ""


class Matrix(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """Matrix's behavior in rooms; the keys of its channel may be set here, too."""

    require_mention: bool | None = None
    thread_require_mention: bool = False
    free_response_rooms: NameList = ()
    allowed_rooms: NameList = ()
    channel_prompts: Mapping[str, str] = {}
    allow_from: NameList = ()
    group_allow_from: NameList = ()
    allowed_users: NameList = ()
    allow_public_rooms: bool = False
    allow_room_mentions: bool = False
    auto_thread: bool = True
    dm_auto_thread: bool = False
    dm_mention_threads: bool = False
    session_scope: Literal["auto", "room", "thread"] = "auto"
    ignore_user_patterns: NameList = ()
    process_notices: bool = False
    reactions: bool = True
    encryption: bool = True
    e2ee_mode: Literal["", "off", "optional", "required"] = ""
    max_media_bytes: Count = 104857600
    max_message_length: Count = 16000
    room_identity_ttl_seconds: Seconds = 60
    proxy_url: str = ""


class Discord(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """Discord's behavior in servers; the keys of its channel may be set here, too."""

    require_mention: bool = True
    thread_require_mention: bool = False
    free_response_channels: NameList = ()
    allowed_channels: NameList = ()
    ignored_channels: NameList = ()
    no_thread_channels: NameList = ()
    channel_prompts: Mapping[str, str] = {}
    auto_thread: bool = True
    ignore_no_mention: bool = True
    allow_from: NameList = ()
    group_allow_from: NameList = ()
    allowed_users: NameList = ()
    allowed_roles: NameList = ()
    dm_role_auth_guild: str = ""
    allow_bots: str = ""
    bots_require_inline_mention: bool = False
    history_backfill: bool = True
    history_backfill_limit: Count = 50
    missed_message_backfill: FreeTable = {}
    reactions: bool = True
    allow_mentions: FreeTable = {}
    max_attachment_bytes: Count = 33554432
    slash_commands: bool = True
    command_sync_policy: Literal["safe", "bulk", "off"] = "safe"
    websocket_heartbeat_ack_max_age_seconds: Seconds = 50
    proxy_url: str = ""
