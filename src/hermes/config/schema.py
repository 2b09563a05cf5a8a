"""All settings of config.yaml with their defaults."""

from collections.abc import Mapping

from msgspec import Struct, field

from hermes.config.sections import (
    Count,
    FreeTable,
    NameList,
    Seconds,
    execution,
    general,
    messaging,
    models,
)


class Config(Struct, frozen=True, kw_only=True):
    """The root of config.yaml."""

    config_version: int = field(default=0, name="_config_version")

    model: str | models.Model = ""
    providers: Mapping[str, models.Provider] = {}
    custom_providers: tuple[models.Provider, ...] = ()
    fallback_providers: tuple[models.Fallback | str, ...] = ()
    fallback_model: models.Fallback | str | None = None
    credential_pool_strategies: Mapping[str, models.PoolStrategy] = {}
    auxiliary: models.Auxiliary = models.Auxiliary()
    prompt_caching: models.PromptCaching = models.PromptCaching()
    compression: models.Compression = models.Compression()
    delegation: models.Delegation = models.Delegation()

    toolsets: NameList = ("hermes-cli",)
    platform_toolsets: Mapping[str, NameList] = {}
    agent: execution.Agent = execution.Agent()
    terminal: execution.Terminal = execution.Terminal()
    web: execution.Web = execution.Web()
    browser: execution.Browser = execution.Browser()
    checkpoints: execution.Checkpoints = execution.Checkpoints()
    tool_output: execution.ToolOutput = execution.ToolOutput()
    tool_loop_guardrails: execution.ToolLoopGuardrails = execution.ToolLoopGuardrails()
    tools: execution.Tools = execution.Tools()
    code_execution: execution.CodeExecution = execution.CodeExecution()
    memory: execution.Memory = execution.Memory()
    skills: execution.Skills = execution.Skills()
    curator: execution.Curator = execution.Curator()
    goals: execution.Goals = execution.Goals()
    kanban: execution.Kanban = execution.Kanban()
    cron: execution.Cron = execution.Cron()
    lsp: execution.Lsp = execution.Lsp()
    context: execution.Context = execution.Context()
    limits: execution.Limits = execution.Limits()
    mcp_servers: Mapping[str, execution.McpServer] = {}
    mcp_discovery_timeout: Seconds = 1.5
    hooks: Mapping[str, tuple[execution.ShellHook, ...]] = {}
    hooks_auto_accept: bool = False
    quick_commands: Mapping[str, execution.QuickCommand] = {}
    command_allowlist: NameList = ()
    context_file_max_chars: Count | None = None
    file_read_max_chars: Count = 100000
    prefill_messages_file: str = ""
    personalities: FreeTable = {}
    image_gen: FreeTable = {}
    video_gen: FreeTable = {}

    platforms: Mapping[str, messaging.Platform] = {}
    gateway: messaging.Gateway = messaging.Gateway()
    streaming: messaging.Streaming = messaging.Streaming()
    sessions: messaging.Sessions = messaging.Sessions()
    session_reset: messaging.SessionReset = messaging.SessionReset()
    reset_by_type: Mapping[str, messaging.SessionReset] = {}
    reset_by_platform: Mapping[str, messaging.SessionReset] = {}
    profile_routes: tuple[messaging.ProfileRoute, ...] = ()
    multiplex_profiles: bool = False
    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    unauthorized_dm_behavior: str = "pair"
    reset_triggers: NameList = ()
    max_concurrent_sessions: Count | None = None
    max_live_sessions: Count = 16
    platform_hints: FreeTable = {}
    discord: messaging.Discord = messaging.Discord()
    telegram: messaging.Telegram = messaging.Telegram()
    slack: messaging.Slack = messaging.Slack()
    mattermost: messaging.Mattermost = messaging.Mattermost()
    whatsapp: messaging.ChatPlatform = messaging.ChatPlatform()
    matrix: messaging.Matrix = messaging.Matrix()

    display: general.Display = general.Display()
    approvals: general.Approvals = general.Approvals()
    security: general.Security = general.Security()
    privacy: general.Privacy = general.Privacy()
    logging: general.Logging = general.Logging()
    tts: general.Tts = general.Tts()
    stt: general.Stt = general.Stt()
    dashboard: general.Dashboard = general.Dashboard()
    secrets: general.Secrets = general.Secrets()
    updates: general.Updates = general.Updates()
    plugins: general.Plugins = general.Plugins()
    timezone: str = ""
    paste_collapse_threshold: Count = 5
    paste_collapse_char_threshold: Count = 2000
    worktree: bool = False

    bedrock: FreeTable = {}
    honcho: FreeTable = {}
    human_delay: FreeTable = {}
    moa: FreeTable = {}
    model_catalog: FreeTable = {}
    network: FreeTable = {}
    onboarding: FreeTable = {}
    openrouter: FreeTable = {}
    smart_model_routing: FreeTable = {}
    voice: FreeTable = {}
    x_search: FreeTable = {}

    @property
    def main_model(self) -> models.Model:
        """The main model, whether written as a name or a section."""
        return models.Model(default=self.model) if isinstance(self.model, str) else self.model

    @property
    def multiplexed(self) -> bool:
        """Whether one gateway serves all profiles; the key may be in two places."""
        return self.multiplex_profiles or self.gateway.multiplex_profiles
