"""All known environment variables, with description and whether they are secret."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from hermes.config.env import Env
from hermes.config.platforms import PLATFORMS


class Category(StrEnum):
    PROVIDER = "provider"
    TOOL = "tool"
    MESSAGING = "messaging"
    SETTING = "setting"


class Variable(Struct, frozen=True):
    """A known variable; `url` is where to get the value."""

    name: str
    description: str
    category: Category
    secret: bool = False
    url: str = ""


class _Service(Struct, frozen=True):
    """A provider with `_API_KEY` and `_BASE_URL` variables."""

    prefix: str
    label: str
    url: str = ""


_SERVICES = (
    _Service("OPENROUTER", "OpenRouter", "https://openrouter.ai/keys"),
    _Service("ANTHROPIC", "Anthropic", "https://console.anthropic.com/settings/keys"),
    _Service("OPENAI", "OpenAI", "https://platform.openai.com/api-keys"),
    _Service("GOOGLE", "Google AI Studio", "https://aistudio.google.com/app/apikey"),
    _Service("GEMINI", "Gemini", "https://aistudio.google.com/app/apikey"),
    _Service("XAI", "xAI", "https://console.x.ai"),
    _Service("GLM", "Z.AI (GLM)", "https://z.ai/manage-apikey/apikey-list"),
    _Service("KIMI", "Kimi (Moonshot)", "https://platform.moonshot.ai/console/api-keys"),
    _Service("MINIMAX", "MiniMax", "https://platform.minimax.io"),
    _Service("DEEPSEEK", "DeepSeek", "https://platform.deepseek.com/api_keys"),
    _Service("DASHSCOPE", "Alibaba DashScope (Qwen)", "https://bailian.console.alibabacloud.com"),
    _Service("NVIDIA", "NVIDIA NIM", "https://build.nvidia.com"),
    _Service("LM", "LM Studio or another local server"),
    _Service("OLLAMA", "Ollama", "https://ollama.com/settings/keys"),
    _Service("AZURE_FOUNDRY", "Azure AI Foundry", "https://ai.azure.com"),
    _Service("MISTRAL", "Mistral", "https://console.mistral.ai/api-keys"),
    _Service("GROQ", "Groq", "https://console.groq.com/keys"),
    _Service("TOGETHER", "Together AI", "https://api.together.ai/settings/api-keys"),
    _Service("FIREWORKS", "Fireworks AI", "https://fireworks.ai/account/api-keys"),
    _Service("CEREBRAS", "Cerebras", "https://cloud.cerebras.ai"),
    _Service("DEEPINFRA", "DeepInfra", "https://deepinfra.com/dash/api_keys"),
    _Service("ARCEE", "Arcee AI"),
    _Service("XIAOMI", "Xiaomi MiMo"),
    _Service("KILOCODE", "Kilo Code"),
    _Service("OPENCODE_ZEN", "OpenCode Zen"),
    _Service("OPENCODE_GO", "OpenCode Go"),
    _Service("AI_GATEWAY", "Vercel AI Gateway"),
    _Service("NOUS", "Nous"),
)

_OTHER_PROVIDERS = (
    ("ANTHROPIC_TOKEN", "Token for Anthropic in place of a key", True),
    ("CLAUDE_CODE_OAUTH_TOKEN", "Token of a Claude subscription", True),
    ("HF_TOKEN", "Token for Hugging Face inference", True),
    ("HF_BASE_URL", "Another address for Hugging Face inference", False),
    ("OLLAMA_HOST", "Where the Ollama server listens", False),
    ("AWS_ACCESS_KEY_ID", "Access key for Amazon Bedrock", True),
    ("AWS_SECRET_ACCESS_KEY", "Secret key for Amazon Bedrock", True),
    ("AWS_SESSION_TOKEN", "Session token for Amazon Bedrock", True),
    ("AWS_BEARER_TOKEN_BEDROCK", "Bearer token for Amazon Bedrock", True),
    ("AWS_REGION", "Region of Amazon Bedrock", False),
    ("AWS_PROFILE", "Named profile of the AWS credentials", False),
    ("AZURE_FOUNDRY_ENDPOINT", "Endpoint of the Azure AI Foundry resource", False),
    ("GOOGLE_APPLICATION_CREDENTIALS", "File with the service account for Vertex AI", False),
    ("GOOGLE_CLOUD_PROJECT", "Project for Vertex AI", False),
    ("GOOGLE_CLOUD_LOCATION", "Region for Vertex AI", False),
    ("COPILOT_GITHUB_TOKEN", "Token for GitHub Copilot", True),
)

_TOOLS = (
    ("EXA_API_KEY", "Web search with Exa", True, "https://dashboard.exa.ai/api-keys"),
    ("TAVILY_API_KEY", "Web search with Tavily", True, "https://app.tavily.com"),
    ("FIRECRAWL_API_KEY", "Web pages with Firecrawl", True, "https://www.firecrawl.dev/app/api-keys"),
    ("FIRECRAWL_API_URL", "Address of your own Firecrawl", False, ""),
    ("PARALLEL_API_KEY", "Web search with Parallel", True, "https://platform.parallel.ai"),
    ("BRAVE_SEARCH_API_KEY", "Web search with Brave", True, "https://api-dashboard.search.brave.com"),
    ("SEARXNG_URL", "Address of your own SearXNG", False, ""),
    ("BROWSERBASE_API_KEY", "Cloud browser of Browserbase", True, "https://www.browserbase.com"),
    ("BROWSERBASE_PROJECT_ID", "Project at Browserbase", False, ""),
    ("BROWSERBASE_PROXIES", "Whether Browserbase uses its proxies", False, ""),
    ("BROWSERBASE_ADVANCED_STEALTH", "Whether Browserbase hides harder", False, ""),
    ("BROWSER_USE_API_KEY", "Cloud browser of Browser Use", True, "https://cloud.browser-use.com"),
    ("CAMOFOX_URL", "Address of a Camofox browser", False, ""),
    ("FAL_KEY", "Images and videos with fal", True, "https://fal.ai/dashboard/keys"),
    ("ELEVENLABS_API_KEY", "Voices of ElevenLabs", True, "https://elevenlabs.io/app/settings/api-keys"),
    ("VOICE_TOOLS_OPENAI_KEY", "OpenAI key for speech alone", True, "https://platform.openai.com/api-keys"),
    ("GITHUB_TOKEN", "Access to GitHub, for skills and repositories", True, "https://github.com/settings/tokens"),
    ("HONCHO_API_KEY", "Memory in Honcho", True, "https://app.honcho.dev"),
    ("HONCHO_BASE_URL", "Address of your own Honcho", False, ""),
    ("HONCHO_ENVIRONMENT", "Environment at Honcho", False, ""),
    ("MEM0_API_KEY", "Memory in Mem0", True, "https://app.mem0.ai"),
    ("MEM0_USER_ID", "User id at Mem0", False, ""),
    ("MEM0_AGENT_ID", "Agent id at Mem0", False, ""),
    ("SUPERMEMORY_API_KEY", "Memory in Supermemory", True, "https://supermemory.ai"),
    ("HINDSIGHT_API_KEY", "Memory in Hindsight", True, ""),
    ("RETAINDB_API_KEY", "Memory in RetainDB", True, ""),
    ("LANGFUSE_PUBLIC_KEY", "Traces to Langfuse, public key", False, "https://cloud.langfuse.com"),
    ("LANGFUSE_SECRET_KEY", "Traces to Langfuse, secret key", True, "https://cloud.langfuse.com"),
    ("DAYTONA_API_KEY", "Sandboxes of Daytona", True, "https://app.daytona.io"),
    ("MODAL_TOKEN_ID", "Sandboxes of Modal, token id", True, "https://modal.com/settings/tokens"),
    ("MODAL_TOKEN_SECRET", "Sandboxes of Modal, token secret", True, "https://modal.com/settings/tokens"),
)  # fmt: skip

_GATEWAY = (
    ("GATEWAY_ALLOW_ALL_USERS", "Whether anyone may talk to the agent on any platform", False),
    ("GATEWAY_PROXY_URL", "Address of another Hermes that runs the turns of this gateway", False),
    ("GATEWAY_PROXY_KEY", "Key for the Hermes at GATEWAY_PROXY_URL", True),
    ("API_SERVER_ENABLED", "Whether the gateway serves the OpenAI-compatible API", False),
    ("API_SERVER_KEY", "Key that callers of the API must present, 16 characters or more", True),
    ("API_SERVER_HOST", "Address the API listens on", False),
    ("API_SERVER_PORT", "Port the API listens on", False),
    ("API_SERVER_MODEL_NAME", "Name under which the API offers the agent", False),
    ("API_SERVER_CORS_ORIGINS", "Web origins that may call the API, comma-separated", False),
    ("API_SERVER_ALLOWED_HOSTS", "Further names that the API answers to, comma-separated", False),
    ("WEBHOOK_ENABLED", "Whether the gateway takes webhooks", False),
    ("WEBHOOK_PORT", "Port the webhooks arrive on", False),
    ("WEBHOOK_SECRET", "Secret with which webhooks are signed", True),
)

_SETTINGS = (
    ("HERMES_HOME", "Directory where everything is kept", False),
    ("SUDO_PASSWORD", "Password for sudo in the terminal tool", True),
    ("HERMES_PREFILL_MESSAGES_FILE", "File with messages that begin every conversation", False),
    ("HERMES_EPHEMERAL_SYSTEM_PROMPT", "Text added to the system prompt and never stored", False),
    ("HERMES_INFERENCE_MODEL", "Model to use when none is configured", False),
    ("HERMES_INFERENCE_PROVIDER", "Provider to use when none is configured", False),
    ("HERMES_MAX_ITERATIONS", "Most model calls in one turn", False),
    ("HERMES_TIMEZONE", "Time zone, such as Europe/Berlin", False),
    ("HERMES_YOLO_MODE", "Whether commands run without asking", False),
    ("HERMES_CRON_TIMEOUT", "Seconds a cron job may be idle", False),
    ("HERMES_AGENT_TIMEOUT", "Seconds a turn in a chat may be idle", False),
    ("HERMES_ACCEPT_HOOKS", "Whether shell hooks run without asking first", False),
    ("HERMES_GATEWAY_BUSY_INPUT_MODE", "What a message does to a running turn", False),
    ("HERMES_GATEWAY_BUSY_ACK_ENABLED", "Whether a message to a busy agent is acknowledged", False),
    ("HERMES_BACKGROUND_NOTIFICATIONS", "Which finished background processes are reported", False),
    ("HERMES_RESTART_DRAIN_TIMEOUT", "Seconds that running turns get before a restart", False),
    ("HERMES_REDACT_SECRETS", "Whether secrets are masked in logs and tool output", False),
    ("HERMES_ENABLE_PROJECT_PLUGINS", "Whether plugins in ./.hermes/plugins are loaded", False),
    ("CODEX_PATH", "The codex program, where it is not on the PATH", False),
    ("CODEX_HOME", "Directory of codex's own settings and threads", False),
    ("TERMINAL_ENV", "Where commands run: local, docker, ssh, …", False),
    ("TERMINAL_CWD", "Directory in which commands run", False),
    ("TERMINAL_TIMEOUT", "Seconds a command may take", False),
)

_PLATFORM_VARIABLES = (
    ("ALLOWED_USERS", "Who may talk to the agent on {}, ids comma-separated", False),
    ("ALLOW_ALL_USERS", "Whether anyone may talk to the agent on {}", False),
    ("ALLOW_BOTS", "Whether other bots may talk to the agent on {}", False),
    ("HOME_CHANNEL", "Default chat on {} for outgoing messages", False),
    ("HOME_CHANNEL_NAME", "Name of the home chat on {}", False),
)


def _all() -> Iterator[Variable]:
    for service in _SERVICES:
        label = service.label
        yield Variable(
            f"{service.prefix}_API_KEY", f"Key for {label}", Category.PROVIDER, True, service.url
        )
        yield Variable(
            f"{service.prefix}_BASE_URL", f"Another address for {label}", Category.PROVIDER
        )
    for name, description, secret in _OTHER_PROVIDERS:
        yield Variable(name, description, Category.PROVIDER, secret)
    for name, description, secret, url in _TOOLS:
        yield Variable(name, description, Category.TOOL, secret, url)
    for platform in PLATFORMS:
        for suffix, description, secret in platform.variables:
            yield Variable(
                f"{platform.prefix}_{suffix}",
                f"{platform.label}: {description}",
                Category.MESSAGING,
                secret,
                platform.url if secret else "",
            )
        for suffix, description, secret in _PLATFORM_VARIABLES:
            text = description.format(platform.label)
            yield Variable(f"{platform.prefix}_{suffix}", text, Category.MESSAGING, secret)
    for name, description, secret in _GATEWAY:
        yield Variable(name, description, Category.MESSAGING, secret)
    for name, description, secret in _SETTINGS:
        yield Variable(name, description, Category.SETTING, secret)


VARIABLES: Mapping[str, Variable] = {variable.name: variable for variable in _all()}

_SECRET_ENDINGS = (
    "_KEY", "_TOKEN", "_SECRET", "_PASS", "_PWD", "_PAT", "_CREDENTIAL", "_CREDENTIALS", "_DSN",
    "_AUTH", "APIKEY", "PASSWORD", "PASSWD", "PASSPHRASE", "COOKIE", "COOKIES", "WEBHOOK",
    "WEBHOOK_URL", "DATABASE_URL", "CONNECTION_STRING", "CONNECTIONSTRING", "CONN_STR",
)  # fmt: skip
_SECRET_NAMES = frozenset({"KEY", "TOKEN", "SECRET", "PASS", "DSN", "AUTHORIZATION"})
_ORDINARY = frozenset(
    {
        "EDITOR", "HOME", "LANG", "LANGUAGE", "LOGNAME", "PAGER", "PATH", "SHELL", "SSL_CERT_DIR",
        "SSL_CERT_FILE", "TERM", "TMPDIR", "TZ", "USER", "VISUAL",
    }
)  # fmt: skip
_ORDINARY_BEGINNINGS = ("LC_", "XDG_")
_ORDINARY_ENDINGS = (
    "_DIR", "_ENABLED", "_HOST", "_LEVEL", "_MODE", "_MODEL", "_PATH", "_PORT", "_PROXY",
    "_REGION", "_TIMEOUT",
)  # fmt: skip
_TRIVIAL = re.compile(
    r"\W*[A-Za-z]{0,12}\W*|[\d.,:+-]*|[~.]{0,2}/[\w./ -]*|https?://[\w.-]+(:\d+)?/?"
)
"""A word, number, path or host: masking these would garble all output."""


def is_variable(name: str) -> bool:
    """Whether this names an environment variable rather than a setting of config.yaml."""
    return name in VARIABLES or (name.isupper() and is_secret_name(name))


def is_secret_name(name: str) -> bool:
    """Whether the name looks like that of a secret: `X_API_KEY`, `x-api-key`, `apiKey_2`."""
    words = _CAMEL.sub("_", name).upper()
    folded = _FOLDED.sub("_", words).rstrip("0123456789").removesuffix("_")
    return folded in _SECRET_NAMES or folded.endswith(_SECRET_ENDINGS)


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FOLDED = re.compile(r"[-.\s]")


def is_secret(name: str) -> bool:
    """Whether the value must not be shown; unknown variables are judged by their name."""
    known = VARIABLES.get(name)
    return known.secret if known is not None else is_secret_name(name)


def is_harmless(name: str) -> bool:
    """Whether the value certainly need not be hidden."""
    known = VARIABLES.get(name)
    if known is not None:
        return not known.secret
    upper = name.upper()
    plain = upper in _ORDINARY or upper.startswith(_ORDINARY_BEGINNINGS)
    return not is_secret_name(name) and (plain or upper.endswith(_ORDINARY_ENDINGS))


def withheld_names(env: Mapping[str, str]) -> set[str]:
    """Variables withheld from child processes: secrets, and those set by the profile."""
    own = env.profile_names if isinstance(env, Env) else ()
    secret = {name for name, variable in VARIABLES.items() if variable.secret}
    return secret.union(name for name in env if is_secret(name)).union(
        name for name in own if not is_harmless(name)
    )


def secret_values(env: Mapping[str, str]) -> list[str]:
    """The values that must not be shown.

    Values set in the profile's own `.env` count as secret, unless the name is known to be
    harmless or the value is trivial.
    """
    own = env.profile_names if isinstance(env, Env) else ()
    found: list[str] = []
    for name, value in env.items():
        if is_secret(name) or (
            name in own and not is_harmless(name) and not is_trivial_value(value)
        ):
            found += secret_parts(value)
    return found


def is_trivial_value(value: str) -> bool:
    """Whether the value is too simple to be a secret."""
    return len(value) < 8 or _TRIVIAL.fullmatch(value) is not None


def secret_parts(value: str) -> list[str]:
    """The value, and its parts if it lists several keys."""
    parts = [value, *(key.strip().removeprefix("Bearer ") for key in value.split(","))]
    return [part for part in dict.fromkeys(parts) if part]


def as_optional_env_vars() -> dict[str, dict[str, str | bool]]:
    """The registry in the format that plugins expect."""
    return {
        variable.name: {
            "description": variable.description,
            "prompt": variable.description,
            "url": variable.url,
            "password": variable.secret,
            "category": variable.category.value,
        }
        for variable in VARIABLES.values()
    }
