"""Settings for turns, tools, the terminal and limits."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from hermes.config.sections import (
    AllowsUnknownKeys,
    BoolOrMode,
    Count,
    Dollars,
    FreeTable,
    NameList,
    Port,
    Seconds,
)


class Agent(Struct, frozen=True, kw_only=True):
    """A turn's budget, timeouts and prompt."""

    max_turns: Count = 90
    gateway_timeout: Seconds = 1800
    gateway_timeout_warning: Seconds = 900
    gateway_notify_interval: Seconds = 180
    gateway_auto_continue_freshness: Seconds = 3600
    restart_drain_timeout: Seconds = 0
    api_max_retries: Count = 3
    service_tier: str = ""
    tool_use_enforcement: BoolOrMode | NameList = "auto"
    intent_ack_continuation: BoolOrMode | NameList = "auto"
    task_completion_guidance: bool = True
    parallel_tool_call_guidance: bool = True
    environment_probe: bool = True
    environment_hint: str = ""
    coding_context: BoolOrMode = "auto"
    verify_guidance: bool = True
    max_verify_nudges: Count = 3
    verify_on_stop: BoolOrMode = "auto"
    clarify_timeout: Seconds = 3600
    local_stream_stale_timeout: Seconds = 900
    image_input_mode: str = "auto"
    disabled_toolsets: NameList = ()
    reasoning_overrides: FreeTable = {}
    reasoning_effort: str = ""
    system_prompt: str = ""
    personalities: FreeTable = {}
    verbose: bool = False


class Terminal(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """Where commands run. `ssh_*` and the images matter only to the backend they name.

    `auto` is the strongest sandbox available on this machine; `backend_by_platform` names
    another backend for some platforms, such as `docker` for `telegram`. With `network`, commands
    have network access without asking; `network_by_platform` sets it for some platforms.
    `unix_sockets` lets commands use Unix sockets, including those of other programs that
    bubblewrap does not hide.
    """

    backend: str = "auto"
    backend_by_platform: Mapping[str, str] = {}
    network: bool = False
    network_by_platform: Mapping[str, bool] = {}
    unix_sockets: bool = False
    cwd: str = "."
    timeout: Seconds = 180
    home_mode: str = "auto"
    env_passthrough: NameList = ()
    shell_init_files: NameList = ()
    auto_source_bashrc: bool = True
    persistent_shell: bool = True
    daemon_term_grace_seconds: Seconds = 2.0
    lifetime_seconds: Seconds | None = None
    docker_image: str = "nikolaik/python-nodejs:python3.11-nodejs20"
    docker_volumes: NameList = ()
    docker_env: Mapping[str, str] = {}
    docker_forward_env: NameList = ()
    docker_network: BoolOrMode = True
    docker_mount_cwd_to_workspace: bool = False
    docker_run_as_host_user: bool = False
    docker_extra_args: NameList = ()
    singularity_image: str = ""
    modal_image: str = ""
    daytona_image: str = ""
    container_cpu: float = 1
    container_memory: Count = 5120
    container_disk: Count = 51200
    container_persistent: bool = True
    modal_mode: str = "auto"
    ssh_host: str = ""
    ssh_user: str = ""
    ssh_port: Port = 22
    ssh_key: str = ""


class Web(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    backend: str = ""
    search_backend: str = ""
    extract_backend: str = ""
    extract_char_limit: Count = 15000


class Browser(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    inactivity_timeout: Seconds = 120
    command_timeout: Seconds = 30
    engine: str = "auto"
    headed: bool = False
    allow_private_urls: bool = False
    auto_local_for_private_urls: bool = True
    cdp_url: str = ""
    dialog_policy: str = "must_respond"
    dialog_timeout_s: Seconds = 300
    restrict_evaluate: bool = False
    record_sessions: bool = False
    cloud_provider: str = ""
    camofox: FreeTable = {}


class Checkpoints(Struct, frozen=True, kw_only=True):
    """Copies of files before a turn changes them, for `/rollback`.

    `auto` copies the files that a call names, and all of a small workspace before commands; `true`
    takes a snapshot of the whole workspace with git, which is slower.
    """

    enabled: BoolOrMode = "auto"
    max_snapshots: Count = 20
    max_total_size_mb: Count = 500
    max_file_size_mb: Count = 10
    auto_prune: bool = True
    retention_days: Count = 7


class ToolOutput(Struct, frozen=True, kw_only=True):
    max_bytes: Count = 50000
    max_lines: Count = 2000
    max_line_length: Count = 2000


class WarnAfter(Struct, frozen=True, kw_only=True):
    exact_failure: Count = 2
    same_tool_failure: Count = 3
    idempotent_no_progress: Count = 2


class HardStopAfter(Struct, frozen=True, kw_only=True):
    exact_failure: Count = 5
    same_tool_failure: Count = 8
    idempotent_no_progress: Count = 5


class ToolLoopGuardrails(Struct, frozen=True, kw_only=True):
    warnings_enabled: bool = True
    hard_stop_enabled: bool = True
    warn_after: WarnAfter = WarnAfter()
    hard_stop_after: HardStopAfter = HardStopAfter()


class ToolSearch(Struct, frozen=True, kw_only=True):
    """When server and plugin tools are found by search instead of listed in every request.

    `auto`: if they would take more than `threshold_pct` of the context window, or all tools
    together more than `max_bytes` of a request.
    """

    enabled: BoolOrMode = "auto"
    threshold_pct: float = 10
    search_default_limit: Count = 5
    max_search_limit: Count = 20
    max_bytes: Count = 24000


class Tools(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    tool_search: ToolSearch = ToolSearch()


class CodeExecution(Struct, frozen=True, kw_only=True):
    mode: Literal["project", "strict"] = "project"
    timeout: Seconds = 300
    max_tool_calls: Count = 50


class Memory(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    memory_enabled: bool = True
    user_profile_enabled: bool = True
    write_approval: bool = False
    memory_char_limit: Count = 2200
    user_char_limit: Count = 1375
    provider: str = ""
    nudge_interval: Count = 10
    flush_min_turns: Count | None = None


class Skills(Struct, frozen=True, kw_only=True):
    external_dirs: NameList = ()
    template_vars: bool = True
    inline_shell: bool = False
    inline_shell_timeout: Seconds = 10
    guard_agent_created: bool = False
    write_approval: bool = False
    creation_nudge_interval: Count = 10
    disabled: NameList = ()
    platform_disabled: Mapping[str, NameList] = {}
    config: FreeTable = {}


class CuratorBackup(Struct, frozen=True, kw_only=True):
    enabled: bool = True
    keep: Count = 5


class Curator(Struct, frozen=True, kw_only=True):
    enabled: bool = True
    interval_hours: float = 168
    min_idle_hours: float = 2
    stale_after_days: Count = 30
    archive_after_days: Count = 90
    consolidate: bool = False
    prune_builtins: bool = True
    backup: CuratorBackup = CuratorBackup()


class Goals(Struct, frozen=True, kw_only=True):
    """Limits of a goal; `max_cost` in dollars."""

    max_turns: Count = 20
    max_cost: float | None = None


class Kanban(Struct, frozen=True, kw_only=True):
    dispatch_in_gateway: bool = True
    dispatch_interval_seconds: Seconds = 60
    failure_limit: Count = 2
    default_assignee: str = ""
    max_in_progress: Count | None = None
    max_in_progress_per_profile: Count | None = None
    max_spawn: Count | None = None
    auto_decompose: bool = True
    auto_decompose_per_tick: Count = 3
    dispatch_stale_timeout_seconds: Seconds = 14400
    worker_log_rotate_bytes: Count = 2097152
    worker_processes: bool = False
    orchestrator_profile: str = ""
    auto_subscribe_on_create: bool = True


class Cron(Struct, frozen=True, kw_only=True):
    wrap_response: bool = True
    mirror_delivery: bool = False
    max_parallel_jobs: Count | None = None
    output_retention: Count = 50
    provider: str = ""
    model: str = ""  # of jobs that name none; empty: the default of when a job was created
    model_provider: str = ""
    heartbeat: str = "30m"  # how often HEARTBEAT.md is worked on; empty: never


class Lsp(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    enabled: bool = True
    wait_mode: str = "document"
    wait_timeout: Seconds = 5.0
    install_strategy: str = "auto"


class ShellHook(Struct, frozen=True, kw_only=True):
    """A command that runs on an event."""

    command: str = ""
    matcher: str = ""
    timeout: Seconds = 60


class QuickCommand(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """A custom slash command: a shell command, or an alias."""

    type: str = "exec"
    command: str = ""
    target: str = ""
    description: str = ""


class McpTools(Struct, frozen=True, kw_only=True):
    include: NameList = ()
    exclude: NameList = ()
    resources: bool = True
    prompts: bool = True


class McpSampling(Struct, frozen=True, kw_only=True):
    enabled: bool = True
    model: str = ""
    max_tokens_cap: Count = 4096
    timeout: Seconds = 30
    max_rpm: Count = 10
    allowed_models: NameList = ()
    max_tool_rounds: Count = 5
    log_level: str = ""


class McpServer(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """An MCP server: a command to start, or a URL to call.

    `sandbox` runs the command in the same sandbox as the agent's commands.
    """

    enabled: bool = True
    sandbox: bool = False
    command: str = ""
    args: NameList = ()
    env: Mapping[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = {}
    transport: str = ""
    auth: str = ""
    timeout: Seconds = 300
    connect_timeout: Seconds = 60
    keepalive_interval: Seconds = 180
    idle_timeout_seconds: Seconds | None = None
    max_lifetime_seconds: Seconds | None = None
    tools: McpTools = McpTools()
    supports_parallel_tool_calls: bool = False
    skip_preflight: bool = False
    sampling: McpSampling = McpSampling()


class Limits(Struct, frozen=True, kw_only=True):
    """Spending limits in dollars; None means no limit. Models of unknown price count as free.

    A day begins at midnight UTC; `usd_per_principal` is per user and day.
    """

    usd_per_session: Dollars | None = None
    usd_per_day: Dollars | None = None
    usd_per_principal: Dollars | None = None


class Context(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """The engine that keeps the conversation within the context window."""

    engine: str = "compressor"
