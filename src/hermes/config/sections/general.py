"""Settings for display, approvals, privacy, speech and maintenance."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from hermes.config.sections import (
    AllowsUnknownKeys,
    BoolOrMode,
    Count,
    FreeTable,
    NameList,
    Port,
    Seconds,
)


class RuntimeFooter(Struct, frozen=True, kw_only=True):
    enabled: bool = False
    fields: NameList = ("model", "context_pct", "cwd")


class DisplayPlatform(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """Display settings for one platform."""

    streaming: bool | None = None
    tool_progress: BoolOrMode | None = None


PLATFORM_STREAMING: Mapping[str, bool] = {"telegram": True, "discord": False}


class Display(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    busy_input_mode: Literal["interrupt", "queue", "steer", "collect"] = "interrupt"
    interface: Literal["auto", "tui", "cli", "plain"] = "auto"
    """Full screen or line by line; `auto` uses the full screen if possible."""
    streaming: bool = False
    show_reasoning: bool = True
    reasoning_full: bool = False
    memory_notifications: str = "on"
    resume_display: str = "full"
    resume_exchanges: Count = 10
    final_response_markdown: str = "strip"
    inline_diffs: bool = True
    file_mutation_verifier: bool = True
    turn_completion_explainer: bool = True
    show_cost: bool = False
    skin: str = "default"
    language: str = "en"
    timestamps: bool = False
    bell_on_complete: bool = False
    tool_progress: str = "all"
    tool_progress_grouping: str = "accumulate"
    tool_progress_command: bool = False
    tool_preview_length: Count = 0
    background_process_notifications: str = "all"
    interim_assistant_messages: bool = True
    runtime_footer: RuntimeFooter = RuntimeFooter()
    platforms: Mapping[str, DisplayPlatform] = {}
    ephemeral_system_ttl: Seconds = 0
    personality: str = ""
    compact: bool = False

    def __post_init__(self) -> None:
        merged = dict(self.platforms)
        for name, streaming in PLATFORM_STREAMING.items():
            display = merged.get(name, DisplayPlatform())
            if display.streaming is None:
                merged[name] = replace(display, streaming=streaming)
        force_setattr(self, "platforms", merged)


class Approvals(Struct, frozen=True, kw_only=True):
    """Approval of commands that leave the sandbox.

    `timeout` limits the time for an answer, everywhere if it is set. With `members`, members may
    answer their own requests; without it only owners can.
    """

    mode: Literal["manual", "smart", "off"] = "smart"
    timeout: Seconds | None = None  # in chats and the API 60; none at the owner's terminal
    cron_mode: str = "deny"
    deny: NameList = ()
    members: bool = False
    mcp_reload_confirm: bool = True
    destructive_slash_confirm: bool = True


class WebsiteBlocklist(Struct, frozen=True, kw_only=True):
    enabled: bool = False
    domains: NameList = ()
    shared_files: NameList = ()


class Security(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    redact_secrets: bool = True
    allow_private_urls: bool = False
    tirith_enabled: bool = True
    tirith_fail_open: bool = True
    tirith_path: str = ""
    tirith_timeout: Seconds = 5
    website_blocklist: WebsiteBlocklist = WebsiteBlocklist()
    allow_lazy_installs: bool = True


class Privacy(Struct, frozen=True, kw_only=True):
    redact_pii: bool = False


class Logging(Struct, frozen=True, kw_only=True):
    level: str = "INFO"
    max_size_mb: Count = 5
    backup_count: Count = 3


class Tts(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """Text to speech. Each provider has its own table."""

    provider: str = "edge"


class SpeechProgram(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """The values of {model} and {language} in `HERMES_LOCAL_STT_COMMAND`."""

    model: str = "base"
    language: str = ""


class SpeechServer(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """A server for transcriptions; one at another `base_url` gets only this `api_key`."""

    model: str = ""
    language: str = ""
    base_url: str = ""
    api_key: str = ""


class Stt(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """Speech to text. Each provider has its own table."""

    enabled: bool = True
    provider: str = "local"
    echo_transcripts: bool = True
    local: SpeechProgram = SpeechProgram()
    openai: SpeechServer = SpeechServer()
    groq: SpeechServer = SpeechServer()
    mistral: SpeechServer = SpeechServer()
    deepinfra: SpeechServer = SpeechServer()
    elevenlabs: SpeechServer = SpeechServer()


class BasicAuth(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    username: str = ""
    password_hash: str = ""


class OidcLogin(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """An OpenID Connect provider, and which of its users may log in to the dashboard."""

    issuer: str = ""
    client_id: str = ""
    client_secret: str = ""
    scopes: str = "openid profile email"
    allowed_subjects: NameList = ()
    allowed_emails: NameList = ()
    allowed_groups: NameList = ()


class DashboardOauth(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """`client_id` and `portal_url` belong to the vendor's own service, which is not supported."""

    provider: Literal["", "self-hosted"] = ""
    client_id: str = ""
    portal_url: str = ""
    self_hosted: OidcLogin = OidcLogin()


class DashboardKanban(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """How programs that use the API should show boards."""

    default_tenant: str = ""
    lane_by_profile: bool = True
    include_archived_by_default: bool = False
    render_markdown: bool = True


class Dashboard(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """The dashboard. `trusted_proxies` are addresses that handle TLS for it."""

    enabled: bool = False
    host: str = "127.0.0.1"
    port: Port = 9119
    tls_cert: str = ""
    tls_key: str = ""
    trusted_proxies: NameList = ()
    allowed_hosts: NameList = ()
    max_upload_mb: Count = 25
    theme: str = ""
    basic_auth: BasicAuth = BasicAuth()
    oauth: DashboardOauth = DashboardOauth()
    drain_auth: FreeTable = {}
    public_url: str = ""
    kanban: DashboardKanban = DashboardKanban()


class Secrets(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """External secret stores."""

    bitwarden: FreeTable = {}
    onepassword: FreeTable = {}


class Updates(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    pre_update_backup: BoolOrMode = "quick"
    backup_keep: Count = 5
    non_interactive_local_changes: str = "stash"


class PluginEntry(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    allow_tool_override: bool = False


class Plugins(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    enabled: NameList = ()
    disabled: NameList = ()
    entries: Mapping[str, PluginEntry] = {}
