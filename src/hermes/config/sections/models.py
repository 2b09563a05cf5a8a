"""Settings for models, providers and fallbacks."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from hermes.config.sections import AllowsUnknownKeys, Count, Fraction, FreeTable, NameList, Seconds

PoolStrategy = Literal["fill_first", "round_robin", "random", "least_used"]

SLOT_TIMEOUTS: Mapping[str, float] = {
    "vision": 120,
    "web_extract": 360,
    "compression": 120,
    "approval": 30,
    "title_generation": 30,
    "goal_judge": 60,
    "curator": 600,
    "background_review": 120,
    "triage_specifier": 120,
    "kanban_decomposer": 180,
    "profile_describer": 60,
    "mcp": 30,
    "skills_hub": 30,
    "memory_query_rewrite": 8,
    "tts_audio_tags": 30,
    "monitor": 60,
    "moa_reference": 900,
    "moa_aggregator": 900,
    "session_search": 120,
    "flush_memories": 120,
}


class Model(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """The main model; in the file a bare name sets `default`."""

    default: str = ""
    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    api_mode: str = ""
    context_length: Count | None = None
    max_tokens: Count | None = None
    keeps_responses: bool = False
    openai_runtime: Literal["auto", "codex_app_server"] = "auto"
    ollama_num_ctx: Count | None = None
    auth_mode: str = ""


class DeviceLogin(Struct, frozen=True, kw_only=True):
    """Endpoints for the OAuth device flow of `hermes auth add NAME --oauth`."""

    device_url: str
    token_url: str
    client_id: str
    scope: str = ""
    pkce: bool = False


class Provider(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """A provider; `enabled: false` hides it."""

    enabled: bool = True
    name: str = ""
    base_url: str = ""
    api_key: str = ""
    key_env: str = ""
    api_mode: str = ""
    model: str = ""
    models: object = None
    context_length: Count | None = None
    rate_limit_delay: Seconds | None = None
    keeps_responses: bool = False
    extra_body: FreeTable = {}
    ssl_verify: bool = True
    ssl_ca_cert: str = ""
    oauth: DeviceLogin | None = None


class Fallback(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """A model to use when the previous ones fail."""

    provider: str = ""
    model: str = ""
    base_url: str = ""
    api_key: str = ""
    key_env: str = ""
    api_mode: str = ""


class AuxiliarySlot(Struct, frozen=True, kw_only=True):
    """The model for an auxiliary task; `timeout` defaults to the slot's own value."""

    provider: str = "auto"
    model: str = ""
    base_url: str = ""
    api_key: str = ""
    api_mode: str = ""
    timeout: Seconds | None = None
    download_timeout: Seconds | None = None
    extra_body: FreeTable = {}
    reasoning_effort: str = ""
    enabled: bool = True
    language: str = ""
    max_concurrency: Count | None = None


class Auxiliary(Struct, AllowsUnknownKeys, frozen=True, kw_only=True):
    """Auxiliary tasks, each optionally with its own model."""

    transient_retries: Count = 2
    vision: AuxiliarySlot = AuxiliarySlot()
    web_extract: AuxiliarySlot = AuxiliarySlot()
    compression: AuxiliarySlot = AuxiliarySlot()
    approval: AuxiliarySlot = AuxiliarySlot()
    title_generation: AuxiliarySlot = AuxiliarySlot()
    goal_judge: AuxiliarySlot = AuxiliarySlot()
    curator: AuxiliarySlot = AuxiliarySlot()
    background_review: AuxiliarySlot = AuxiliarySlot()
    triage_specifier: AuxiliarySlot = AuxiliarySlot()
    kanban_decomposer: AuxiliarySlot = AuxiliarySlot()
    profile_describer: AuxiliarySlot = AuxiliarySlot()
    mcp: AuxiliarySlot = AuxiliarySlot()
    skills_hub: AuxiliarySlot = AuxiliarySlot()
    memory_query_rewrite: AuxiliarySlot = AuxiliarySlot()
    tts_audio_tags: AuxiliarySlot = AuxiliarySlot()
    monitor: AuxiliarySlot = AuxiliarySlot()
    moa_reference: AuxiliarySlot = AuxiliarySlot()
    moa_aggregator: AuxiliarySlot = AuxiliarySlot()
    session_search: AuxiliarySlot = AuxiliarySlot()
    flush_memories: AuxiliarySlot = AuxiliarySlot()

    def __post_init__(self) -> None:
        for name, timeout in SLOT_TIMEOUTS.items():
            slot: AuxiliarySlot = getattr(self, name)
            if slot.timeout is None:
                force_setattr(self, name, replace(slot, timeout=timeout))


class PromptCaching(Struct, frozen=True, kw_only=True):
    cache_ttl: Literal["5m", "1h"] = "5m"


class Compression(Struct, frozen=True, kw_only=True):
    """When and how long conversations are compacted."""

    enabled: bool = True
    threshold: Fraction = 0.5
    target_ratio: Fraction = 0.2
    protect_last_n: Count = 20
    protect_first_n: Count = 3
    hygiene_hard_message_limit: Count = 5000
    abort_on_summary_failure: bool = False
    in_place: bool = True
    codex_gpt55_autoraise: bool = True
    codex_app_server_auto: Literal["native", "hermes", "off"] = "native"
    summary_model: str = ""
    summary_provider: str = ""
    summary_base_url: str = ""


class Delegation(Struct, frozen=True, kw_only=True):
    """Subagents: their model and their limits.

    Subagents cannot ask for approval, so what needs it is denied; with `subagent_auto_approve`
    it is allowed for the owner's own work.
    """

    model: str = ""
    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    api_mode: str = ""
    reasoning_effort: str = ""
    default_toolsets: NameList = ()
    inherit_mcp_toolsets: bool = True
    max_iterations: Count = 50
    max_summary_chars: Count = 24000
    child_timeout_seconds: Seconds = 0
    max_concurrent_children: Count = 3
    max_spawn_depth: Count = 1
    orchestrator_enabled: bool = True
    subagent_auto_approve: bool = False
