"""The whole of config.yaml as one value: every key the program knows, with its default."""

from collections.abc import Mapping

from msgspec import Struct, field

from hermes.config.sections import chats, comfort, models, work
from hermes.config.sections.words import Count, Names, Seconds, Table


class Config(Struct, frozen=True, kw_only=True):
    """What a file may leave out has the default given here and in `sections/`."""

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

    toolsets: Names = ("hermes-cli",)
    platform_toolsets: Mapping[str, Names] = {}
    agent: work.Agent = work.Agent()
    terminal: work.Terminal = work.Terminal()
    web: work.Web = work.Web()
    browser: work.Browser = work.Browser()
    checkpoints: work.Checkpoints = work.Checkpoints()
    tool_output: work.ToolOutput = work.ToolOutput()
    tool_loop_guardrails: work.ToolLoopGuardrails = work.ToolLoopGuardrails()
    tools: work.Tools = work.Tools()
    code_execution: work.CodeExecution = work.CodeExecution()
    memory: work.Memory = work.Memory()
    skills: work.Skills = work.Skills()
    curator: work.Curator = work.Curator()
    goals: work.Goals = work.Goals()
    kanban: work.Kanban = work.Kanban()
    cron: work.Cron = work.Cron()
    lsp: work.Lsp = work.Lsp()
    context: work.Context = work.Context()
    limits: work.Limits = work.Limits()
    mcp_servers: Mapping[str, work.McpServer] = {}
    mcp_discovery_timeout: Seconds = 1.5
    hooks: Mapping[str, tuple[work.ShellHook, ...]] = {}
    hooks_auto_accept: bool = False
    quick_commands: Mapping[str, work.QuickCommand] = {}
    command_allowlist: Names = ()
    context_file_max_chars: Count | None = None
    file_read_max_chars: Count = 100000
    prefill_messages_file: str = ""
    personalities: Table = {}
    image_gen: Table = {}
    video_gen: Table = {}

    platforms: Mapping[str, chats.Platform] = {}
    gateway: chats.Gateway = chats.Gateway()
    streaming: chats.Streaming = chats.Streaming()
    sessions: chats.Sessions = chats.Sessions()
    session_reset: chats.SessionReset = chats.SessionReset()
    reset_by_type: Mapping[str, chats.SessionReset] = {}
    reset_by_platform: Mapping[str, chats.SessionReset] = {}
    profile_routes: tuple[chats.ProfileRoute, ...] = ()
    multiplex_profiles: bool = False
    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    unauthorized_dm_behavior: str = "pair"
    reset_triggers: Names = ()
    max_concurrent_sessions: Count | None = None
    max_live_sessions: Count = 16
    platform_hints: Table = {}
    discord: chats.Discord = chats.Discord()
    telegram: chats.ChatPlatform = chats.ChatPlatform()
    slack: chats.ChatPlatform = chats.ChatPlatform()
    mattermost: chats.ChatPlatform = chats.ChatPlatform()
    whatsapp: chats.ChatPlatform = chats.ChatPlatform()
    matrix: chats.Matrix = chats.Matrix()

    display: comfort.Display = comfort.Display()
    approvals: comfort.Approvals = comfort.Approvals()
    security: comfort.Security = comfort.Security()
    privacy: comfort.Privacy = comfort.Privacy()
    logging: comfort.Logging = comfort.Logging()
    tts: comfort.Tts = comfort.Tts()
    stt: comfort.Stt = comfort.Stt()
    dashboard: comfort.Dashboard = comfort.Dashboard()
    secrets: comfort.Secrets = comfort.Secrets()
    updates: comfort.Updates = comfort.Updates()
    plugins: comfort.Plugins = comfort.Plugins()
    timezone: str = ""
    paste_collapse_threshold: Count = 5
    paste_collapse_char_threshold: Count = 2000
    worktree: bool = False

    bedrock: Table = {}
    honcho: Table = {}
    human_delay: Table = {}
    moa: Table = {}
    model_catalog: Table = {}
    network: Table = {}
    onboarding: Table = {}
    openrouter: Table = {}
    smart_model_routing: Table = {}
    voice: Table = {}
    x_search: Table = {}

    @property
    def main_model(self) -> models.Model:
        """The main model, however it was written."""
        return models.Model(default=self.model) if isinstance(self.model, str) else self.model

    @property
    def multiplexed(self) -> bool:
        """Whether one gateway serves all profiles; the key has two places."""
        return self.multiplex_profiles or self.gateway.multiplex_profiles
