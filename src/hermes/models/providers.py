"""The known providers: addresses, key variables, default models and what these support."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, structs

from hermes.config.setting_warnings import EFFORTS


class EffortFormat(StrEnum):
    """Where in the request body the reasoning effort is set."""

    NONE = "nowhere"
    FIELD = "reasoning_effort"
    OBJECT = "reasoning"
    SWITCH = "thinking"
    TEMPLATE = "chat_template_kwargs"
    BUDGET = "budget"
    """As a number of reasoning tokens."""
    ADAPTIVE = "adaptive"
    """The model decides how long to reason; the effort is only guidance."""
    LEVEL = "level"


class ReasoningReplay(StrEnum):
    """Whether, and as which field, earlier reasoning is sent back."""

    NEVER = "never"
    CONTENT = "reasoning_content"
    DETAILS = "reasoning_details"
    TAGS = "think_tags"
    """In the text, between think tags, as the model wrote it."""


class ModelProfile(Struct, frozen=True, kw_only=True):
    """`efforts` are the accepted values; others are mapped to the nearest one.

    `empty_content` is the content of an answer that has tool calls but no text. `short_call_ids` is
    for providers that accept only call ids of nine letters and digits. `default_max_output` is sent
    where a wire requires a limit and none is set; `budgets` are reasoning tokens, one for each of
    `EFFORTS`; `betas` are beta features to request. A small model is offered only the `tools` named
    here, and gets only this `prompt`. `stores_responses` means that the server stores earlier
    answers and can continue from one, `json_output` that it can be asked to answer in JSON.
    """

    max_tokens_field: str = "max_tokens"
    stream_usage: bool = True
    effort: EffortFormat = EffortFormat.NONE
    efforts: tuple[str, ...] = ("low", "medium", "high")
    replay: ReasoningReplay = ReasoningReplay.NEVER
    images: bool = True
    empty_content: str | None = None
    short_call_ids: bool = False
    default_max_output: int = 32_000
    budgets: tuple[int, ...] = (0, 1024, 4096, 8192, 16_384, 32_000, 32_000, 32_000)
    betas: tuple[str, ...] = ()
    stores_responses: bool = False
    json_output: bool = True
    tools: tuple[str, ...] = ()
    prompt: str = ""

    def budget(self, wanted: str) -> int:
        """Return the number of reasoning tokens for this effort."""
        return self.budgets[EFFORTS.index(wanted)] if wanted in EFFORTS else self.budgets[3]


def nearest_effort(wanted: str, offered: tuple[str, ...]) -> str | None:
    """Return the offered effort closest to the wanted one, the lower of two, or None."""
    if wanted in offered:
        return wanted
    if not offered or wanted not in EFFORTS:
        return None
    position = EFFORTS.index(wanted)
    return min(offered, key=lambda effort: (abs(EFFORTS.index(effort) - position), effort))


class ServedModel(Struct, frozen=True, kw_only=True):
    """A model at a provider. `cache_ttl` is for wires with explicit caching."""

    model: str
    provider: str
    window: int
    profile: ModelProfile = ModelProfile()
    max_output: int | None = None
    extra: Mapping[str, Any] = {}
    key_env: str = ""
    local: bool = False
    cache_ttl: str = "5m"


class Provider(Struct, frozen=True, kw_only=True):
    """`reasoning_models` matches the models that accept a reasoning effort; others reject it.

    `router` marks providers whose model names begin with a vendor (`vendor/model`). `idle` is how
    long they may send nothing in mid-answer, if not the default.
    """

    name: str
    title: str
    base_url: str
    key_env: tuple[str, ...] = ()
    url_env: tuple[str, ...] = ()
    default_model: str = ""
    aliases: tuple[str, ...] = ()
    local: bool = False
    router: bool = False
    profile: ModelProfile = ModelProfile()
    reasoning_models: str = ""
    idle: float | None = None
    headers: Mapping[str, str] = {}


EMBEDDED = "embedded"
"""Needs no server: it runs in a child process."""

_LOCAL_PROFILE = ModelProfile(empty_content="", effort=EffortFormat.TEMPLATE)

PROVIDERS: tuple[Provider, ...] = (
    Provider(
        name="openrouter",
        title="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        key_env=("OPENROUTER_API_KEY",),
        url_env=("OPENROUTER_BASE_URL",),
        default_model="anthropic/claude-sonnet-4.5",
        router=True,
        profile=ModelProfile(
            effort=EffortFormat.OBJECT,
            efforts=("minimal", "low", "medium", "high", "xhigh"),
            replay=ReasoningReplay.DETAILS,
        ),
        reasoning_models=r".",
        headers={"x-title": "Hermes"},
    ),
    Provider(
        name="openai",
        title="OpenAI",
        base_url="https://api.openai.com/v1",
        key_env=("OPENAI_API_KEY",),
        url_env=("OPENAI_BASE_URL",),
        default_model="gpt-5",
        profile=ModelProfile(
            max_tokens_field="max_completion_tokens",
            effort=EffortFormat.FIELD,
            efforts=("minimal", "low", "medium", "high"),
        ),
        reasoning_models=r"^(o\d|gpt-5|codex)",
        # Its reasoning models send nothing until they have finished reasoning.
        idle=600.0,
    ),
    Provider(
        name="anthropic",
        title="Anthropic",
        base_url="https://api.anthropic.com/v1",
        key_env=("ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN"),
        url_env=("ANTHROPIC_BASE_URL",),
        default_model="claude-sonnet-4-5",
        aliases=("claude",),
    ),
    Provider(
        name="gemini",
        title="Google Gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_env=("GEMINI_BASE_URL",),
        default_model="gemini-2.5-pro",
        aliases=("google",),
        profile=ModelProfile(effort=EffortFormat.FIELD),
        reasoning_models=r"gemini-(2\.5|3)",
    ),
    Provider(
        name="xai",
        title="xAI",
        base_url="https://api.x.ai/v1",
        key_env=("XAI_API_KEY",),
        url_env=("XAI_BASE_URL",),
        default_model="grok-4",
        aliases=("grok",),
        profile=ModelProfile(effort=EffortFormat.FIELD, efforts=("low", "high")),
        reasoning_models=r"^grok-3-mini",
        idle=600.0,
    ),
    Provider(
        name="deepseek",
        title="DeepSeek",
        base_url="https://api.deepseek.com/v1",
        key_env=("DEEPSEEK_API_KEY",),
        url_env=("DEEPSEEK_BASE_URL",),
        default_model="deepseek-chat",
        profile=ModelProfile(
            effort=EffortFormat.SWITCH, replay=ReasoningReplay.CONTENT, images=False
        ),
        reasoning_models=r"^deepseek-chat",
    ),
    Provider(
        name="zai",
        title="Z.ai (GLM)",
        base_url="https://api.z.ai/api/paas/v4",
        key_env=("GLM_API_KEY", "ZAI_API_KEY", "Z_AI_API_KEY"),
        url_env=("GLM_BASE_URL",),
        default_model="glm-4.6",
        aliases=("glm", "z.ai", "zhipu"),
        profile=ModelProfile(effort=EffortFormat.SWITCH, replay=ReasoningReplay.CONTENT),
        reasoning_models=r"glm-(4\.[5-9]|[5-9])",
    ),
    Provider(
        name="kimi",
        title="Moonshot Kimi",
        base_url="https://api.moonshot.ai/v1",
        key_env=("KIMI_API_KEY", "MOONSHOT_API_KEY"),
        url_env=("KIMI_BASE_URL",),
        default_model="kimi-k2-turbo-preview",
        aliases=("moonshot",),
        profile=ModelProfile(replay=ReasoningReplay.CONTENT),
    ),
    Provider(
        name="minimax",
        title="MiniMax",
        base_url="https://api.minimax.io/v1",
        key_env=("MINIMAX_API_KEY",),
        url_env=("MINIMAX_BASE_URL",),
        default_model="MiniMax-M2",
        profile=ModelProfile(replay=ReasoningReplay.TAGS, images=False),
    ),
    Provider(
        name="dashscope",
        title="Alibaba DashScope (Qwen)",
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_env=("DASHSCOPE_API_KEY",),
        url_env=("DASHSCOPE_BASE_URL",),
        default_model="qwen3-max",
        aliases=("qwen", "alibaba"),
    ),
    Provider(
        name="groq",
        title="Groq",
        base_url="https://api.groq.com/openai/v1",
        key_env=("GROQ_API_KEY",),
        url_env=("GROQ_BASE_URL",),
        default_model="openai/gpt-oss-120b",
        router=True,
        profile=ModelProfile(effort=EffortFormat.FIELD),
        reasoning_models=r"gpt-oss",
    ),
    Provider(
        name="mistral",
        title="Mistral",
        base_url="https://api.mistral.ai/v1",
        key_env=("MISTRAL_API_KEY",),
        url_env=("MISTRAL_BASE_URL",),
        default_model="mistral-large-latest",
        profile=ModelProfile(stream_usage=False, short_call_ids=True, empty_content=""),
    ),
    Provider(
        name="together",
        title="Together",
        base_url="https://api.together.xyz/v1",
        key_env=("TOGETHER_API_KEY",),
        url_env=("TOGETHER_BASE_URL",),
        default_model="moonshotai/Kimi-K2-Instruct-0905",
        router=True,
    ),
    Provider(
        name="nvidia",
        title="NVIDIA NIM",
        base_url="https://integrate.api.nvidia.com/v1",
        key_env=("NVIDIA_API_KEY",),
        url_env=("NVIDIA_BASE_URL",),
        default_model="nvidia/llama-3.3-nemotron-super-49b-v1.5",
        router=True,
    ),
    Provider(
        name="nous",
        title="Nous Research",
        base_url="https://inference-api.nousresearch.com/v1",
        key_env=("NOUS_API_KEY",),
        url_env=("NOUS_BASE_URL",),
        default_model="Hermes-4-405B",
        router=True,
    ),
    Provider(
        name="huggingface",
        title="Hugging Face",
        base_url="https://router.huggingface.co/v1",
        key_env=("HF_TOKEN",),
        url_env=("HF_BASE_URL",),
        default_model="Qwen/Qwen3-235B-A22B-Instruct-2507",
        aliases=("hf",),
        router=True,
    ),
    Provider(
        name="ollama",
        title="Ollama",
        base_url="http://127.0.0.1:11434/v1",
        key_env=("OLLAMA_API_KEY",),
        url_env=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        local=True,
        profile=ModelProfile(empty_content="", effort=EffortFormat.FIELD),
        reasoning_models=r"gpt-oss|qwen3|deepseek-r1|magistral",
    ),
    Provider(
        name="lmstudio",
        title="LM Studio",
        base_url="http://127.0.0.1:1234/v1",
        key_env=("LM_API_KEY",),
        url_env=("LM_BASE_URL",),
        aliases=("lm-studio",),
        local=True,
        profile=_LOCAL_PROFILE,
    ),
    Provider(
        name="llamacpp",
        title="llama.cpp",
        base_url="http://127.0.0.1:8080/v1",
        key_env=("LLAMA_API_KEY",),
        url_env=("LLAMACPP_BASE_URL",),
        aliases=("llama.cpp", "llama-cpp"),
        local=True,
        profile=_LOCAL_PROFILE,
        reasoning_models=r"(?i)qwen3",
    ),
    Provider(
        name="vllm",
        title="vLLM",
        base_url="http://127.0.0.1:8000/v1",
        key_env=("VLLM_API_KEY",),
        url_env=("VLLM_BASE_URL",),
        local=True,
        profile=_LOCAL_PROFILE,
        reasoning_models=r"(?i)qwen3",
    ),
    Provider(
        name=EMBEDDED,
        title="A small model inside Hermes",
        base_url="embedded://here",
        local=True,
    ),
)

CUSTOM = Provider(
    name="custom",
    title="Custom OpenAI-compatible server",
    base_url="",
    key_env=("OPENAI_API_KEY",),
    url_env=("OPENAI_BASE_URL",),
    profile=ModelProfile(empty_content=""),
)
"""Any other address; the settings say what it serves."""


def find_provider(name: str) -> Provider | None:
    """Find a provider by name or alias, ignoring case."""
    folded = name.strip().lower().replace("_", "-")
    matching = (one for one in (*PROVIDERS, CUSTOM) if folded in (one.name, *one.aliases))
    return next(matching, None)


def model_profile_for(provider: Provider, model: str) -> ModelProfile:
    """Return the provider's profile, without the reasoning effort for models that reject it."""
    if provider.reasoning_models and re.search(provider.reasoning_models, model):
        return provider.profile
    return structs.replace(provider.profile, effort=EffortFormat.NONE)
