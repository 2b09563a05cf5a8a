"""All known environment variables, with description and whether they are secret."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from hermes.config.env import Env
from hermes.config.platforms import HOME_CHANNEL, PLATFORMS
from hermes.config.schema import Config
from hermes.config.values import as_list, as_mapping
from hermes.kit.redact import MASK, Redactor


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


_SERVICES: tuple[tuple[str, str, str], ...] = (
    ("OPENROUTER", "OpenRouter", "https://openrouter.ai/keys"),
    ("ANTHROPIC", "Anthropic", "https://console.anthropic.com/settings/keys"),
    ("OPENAI", "OpenAI", "https://platform.openai.com/api-keys"),
    ("GOOGLE", "Google AI Studio", "https://aistudio.google.com/app/apikey"),
    ("GEMINI", "Gemini", "https://aistudio.google.com/app/apikey"),
    ("XAI", "xAI", "https://console.x.ai"),
    ("GLM", "Z.AI (GLM)", "https://z.ai/manage-apikey/apikey-list"),
    ("KIMI", "Kimi (Moonshot)", "https://platform.moonshot.ai/console/api-keys"),
    ("MINIMAX", "MiniMax", "https://platform.minimax.io"),
    ("DEEPSEEK", "DeepSeek", "https://platform.deepseek.com/api_keys"),
    ("DASHSCOPE", "Alibaba DashScope (Qwen)", "https://bailian.console.alibabacloud.com"),
    ("NVIDIA", "NVIDIA NIM", "https://build.nvidia.com"),
    ("LM", "LM Studio or another local server", ""),
    ("OLLAMA", "Ollama", "https://ollama.com/settings/keys"),
    ("AZURE_FOUNDRY", "Azure AI Foundry", "https://ai.azure.com"),
    ("MISTRAL", "Mistral", "https://console.mistral.ai/api-keys"),
    ("GROQ", "Groq", "https://console.groq.com/keys"),
    ("TOGETHER", "Together AI", "https://api.together.ai/settings/api-keys"),
    ("FIREWORKS", "Fireworks AI", "https://fireworks.ai/account/api-keys"),
    ("CEREBRAS", "Cerebras", "https://cloud.cerebras.ai"),
    ("DEEPINFRA", "DeepInfra", "https://deepinfra.com/dash/api_keys"),
    ("ARCEE", "Arcee AI", ""),
    ("XIAOMI", "Xiaomi MiMo", ""),
    ("KILOCODE", "Kilo Code", ""),
    ("OPENCODE_ZEN", "OpenCode Zen", ""),
    ("OPENCODE_GO", "OpenCode Go", ""),
    ("AI_GATEWAY", "Vercel AI Gateway", ""),
    ("NOUS", "Nous", ""),
)
"""Providers with `_API_KEY` and `_BASE_URL` variables: prefix, label, where to get a key."""

_OTHER_PROVIDERS = (
    ("ANTHROPIC_TOKEN", "Token for Anthropic instead of a key", True),
    ("CLAUDE_CODE_OAUTH_TOKEN", "Claude subscription token", True),
    ("HF_TOKEN", "Token for Hugging Face inference", True),
    ("HF_BASE_URL", "Custom address for Hugging Face inference", False),
    ("OLLAMA_HOST", "Where the Ollama server listens", False),
    ("AWS_ACCESS_KEY_ID", "Access key for Amazon Bedrock", True),
    ("AWS_SECRET_ACCESS_KEY", "Secret key for Amazon Bedrock", True),
    ("AWS_SESSION_TOKEN", "Session token for Amazon Bedrock", True),
    ("AWS_BEARER_TOKEN_BEDROCK", "Bearer token for Amazon Bedrock", True),
    ("AWS_REGION", "Amazon Bedrock region", False),
    ("AWS_PROFILE", "Named AWS credentials profile", False),
    ("AZURE_FOUNDRY_ENDPOINT", "Azure AI Foundry resource endpoint", False),
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
    ("BROWSERBASE_API_KEY", "Browserbase cloud browser", True, "https://www.browserbase.com"),
    ("BROWSERBASE_PROJECT_ID", "Project at Browserbase", False, ""),
    ("BROWSERBASE_PROXIES", "Whether Browserbase uses its proxies", False, ""),
    ("BROWSERBASE_ADVANCED_STEALTH", "Whether Browserbase uses advanced stealth", False, ""),
    ("BROWSER_USE_API_KEY", "Browser Use cloud browser", True, "https://cloud.browser-use.com"),
    ("CAMOFOX_URL", "Address of a Camofox browser", False, ""),
    ("FAL_KEY", "Images and videos with fal", True, "https://fal.ai/dashboard/keys"),
    ("ELEVENLABS_API_KEY", "ElevenLabs voices", True, "https://elevenlabs.io/app/settings/api-keys"),
    ("VOICE_TOOLS_OPENAI_KEY", "OpenAI key for speech only", True, "https://platform.openai.com/api-keys"),
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
    ("DAYTONA_API_KEY", "Daytona sandboxes", True, "https://app.daytona.io"),
    ("MODAL_TOKEN_ID", "Modal sandboxes, token id", True, "https://modal.com/settings/tokens"),
    ("MODAL_TOKEN_SECRET", "Modal sandboxes, token secret", True, "https://modal.com/settings/tokens"),
)  # fmt: skip

_GATEWAY = (
    ("GATEWAY_ALLOW_ALL_USERS", "Whether anyone may talk to the agent on any platform", False),
    ("GATEWAY_PROXY_URL", "Address of another Hermes that runs this gateway's turns", False),
    ("GATEWAY_PROXY_KEY", "Key for the Hermes at GATEWAY_PROXY_URL", True),
    ("HERMES_DASHBOARD_PUBLIC_URL", "The https address of the dashboard behind a proxy", False),
    ("HERMES_DASHBOARD_BASIC_AUTH_USERNAME", "User name for the dashboard", False),
    ("HERMES_DASHBOARD_BASIC_AUTH_PASSWORD_HASH", "Hash of the dashboard's password", True),
    ("HERMES_DASHBOARD_OIDC_ISSUER", "OpenID Connect provider for the dashboard", False),
    ("HERMES_DASHBOARD_OIDC_CLIENT_ID", "Client id of the dashboard at the provider", False),
    ("HERMES_DASHBOARD_OIDC_CLIENT_SECRET", "Client secret of the dashboard at the provider", True),
    ("HERMES_DASHBOARD_OIDC_SCOPES", "Scopes to request from the provider", False),
    ("API_SERVER_ENABLED", "Whether the gateway serves the OpenAI-compatible API", False),
    ("API_SERVER_KEY", "Key that callers of the API must present, 16 characters or more", True),
    ("API_SERVER_HOST", "Address the API listens on", False),
    ("API_SERVER_PORT", "Port the API listens on", False),
    ("API_SERVER_MODEL_NAME", "Name under which the API offers the agent", False),
    ("API_SERVER_STRICT_MODELS", "Whether the API rejects unknown model names", False),
    ("API_SERVER_CORS_ORIGINS", "Web origins that may call the API, comma-separated", False),
    (
        "API_SERVER_ALLOWED_HOSTS",
        "Other host names that the API answers to, comma-separated",
        False,
    ),
    ("WEBHOOK_ENABLED", "Whether the gateway accepts webhooks", False),
    ("WEBHOOK_PORT", "Port the webhooks arrive on", False),
    ("WEBHOOK_SECRET", "Secret with which webhooks are signed", True),
)

_SETTINGS = (
    ("HERMES_HOME", "Directory with all settings and data", False),
    ("SUDO_PASSWORD", "Password for sudo in the terminal tool", True),
    ("HERMES_PREFILL_MESSAGES_FILE", "File with messages that begin every conversation", False),
    ("HERMES_EPHEMERAL_SYSTEM_PROMPT", "Text added to the system prompt and never stored", False),
    ("HERMES_INFERENCE_MODEL", "Model to use when none is configured", False),
    ("HERMES_INFERENCE_PROVIDER", "Provider to use when none is configured", False),
    ("HERMES_MAX_ITERATIONS", "Maximum number of model calls in one turn", False),
    ("HERMES_TIMEZONE", "Time zone, such as Europe/Berlin", False),
    ("HERMES_YOLO_MODE", "Whether commands run without approval", False),
    ("HERMES_CRON_TIMEOUT", "Seconds a cron job may be idle", False),
    ("HERMES_CRON_MAX_PARALLEL", "Jobs that run at the same time", False),
    ("HERMES_KANBAN_HOME", "Folder with the boards, if not the home", False),
    ("HERMES_KANBAN_BOARD", "Board to use, if not the current one", False),
    ("HERMES_KANBAN_CLAIM_TTL_SECONDS", "Seconds a task stays claimed without a heartbeat", False),
    ("HERMES_KANBAN_CRASH_GRACE_SECONDS", "Seconds before a run may count as crashed", False),
    ("HERMES_KANBAN_RATE_LIMIT_COOLDOWN_SECONDS", "Seconds a rate-limited task waits", False),
    ("HERMES_AGENT_TIMEOUT", "Seconds a turn in a chat may be idle", False),
    ("HERMES_ACCEPT_HOOKS", "Whether shell hooks run without asking", False),
    ("HERMES_GATEWAY_BUSY_INPUT_MODE", "What a message does to a running turn", False),
    ("HERMES_GATEWAY_BUSY_ACK_ENABLED", "Whether a message to a busy agent is acknowledged", False),
    ("HERMES_BACKGROUND_NOTIFICATIONS", "Which finished background processes are reported", False),
    (
        "HERMES_RESTART_DRAIN_TIMEOUT",
        "Seconds for running turns to finish before a restart",
        False,
    ),
    ("HERMES_REDACT_SECRETS", "Whether secrets are masked in logs and tool output", False),
    ("HERMES_ENABLE_PROJECT_PLUGINS", "Whether plugins in ./.hermes/plugins are loaded", False),
    ("CODEX_PATH", "The codex program, if it is not on the PATH", False),
    ("CODEX_HOME", "Directory of codex's own settings and threads", False),
    ("TERMINAL_ENV", "Where commands run: local, docker, ssh, …", False),
    ("TERMINAL_CWD", "Directory in which commands run", False),
    ("TERMINAL_TIMEOUT", "Seconds a command may take", False),
)

_PLATFORM_VARIABLES = (
    ("ALLOWED_USERS", "Who may talk to the agent on {}, ids comma-separated"),
    ("ALLOW_ALL_USERS", "Whether anyone may talk to the agent on {}"),
    ("ALLOW_BOTS", "Whether other bots may talk to the agent on {}"),
    ("HOME_CHANNEL", "Home channel on {}, the default for outgoing messages"),
    ("HOME_CHANNEL_NAME", "Name of the home channel on {}"),
)


def _all() -> Iterator[Variable]:
    for prefix, label, url in _SERVICES:
        yield Variable(f"{prefix}_API_KEY", f"Key for {label}", Category.PROVIDER, True, url)
        yield Variable(f"{prefix}_BASE_URL", f"Custom address for {label}", Category.PROVIDER)
    for name, description, secret in _OTHER_PROVIDERS:
        yield Variable(name, description, Category.PROVIDER, secret)
    for name, description, secret, url in _TOOLS:
        yield Variable(name, description, Category.TOOL, secret, url)
    for platform in PLATFORMS:
        prefix, label = platform.prefix, platform.label
        for suffix, text, secret in platform.variables:
            url = platform.url if secret else ""
            yield Variable(
                f"{prefix}_{suffix}", f"{label}: {text}", Category.MESSAGING, secret, url
            )
        for suffix, text in _PLATFORM_VARIABLES:
            yield Variable(f"{prefix}_{suffix}", text.format(label), Category.MESSAGING)
            if platform.home_prefix and suffix.startswith(HOME_CHANNEL):
                name = f"{platform.home_prefix}_{suffix}"
                yield Variable(name, text.format(label), Category.MESSAGING)
    for name, description, secret in _GATEWAY:
        yield Variable(name, description, Category.MESSAGING, secret)
    for name, description, secret in _SETTINGS:
        yield Variable(name, description, Category.SETTING, secret)


VARIABLES: Mapping[str, Variable] = {variable.name: variable for variable in _all()}

_PLATFORM_BEGINNINGS = tuple(f"{one.prefix}_" for one in PLATFORMS)
"""Additional variables of platforms, without descriptions."""
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
ROOM_LISTS = frozenset({"IRC_CHANNEL", "XMPP_MUC_ROOMS"})
"""Lists of rooms, some with a key or a password."""
_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-.\s]")
_TRIVIAL = re.compile(
    r"\W*[A-Za-z]{0,12}\W*|[\d.,:+-]*|[~.]{0,2}/[\w./ -]*|https?://[\w.-]+(:\d+)?/?"
)
"""A word, number, path or host; masking these would garble all output."""


def is_variable(name: str) -> bool:
    """Whether this names an environment variable rather than a setting in config.yaml."""
    if name in VARIABLES or (name.isupper() and is_secret_name(name)):
        return True
    return name.isupper() and name.startswith(_PLATFORM_BEGINNINGS)


def is_secret_name(name: str) -> bool:
    """Whether the name looks like that of a secret: `X_API_KEY`, `x-api-key`, `apiKey_2`."""
    folded = _WORD_BREAK.sub("_", name).upper().rstrip("0123456789").removesuffix("_")
    return folded in _SECRET_NAMES or folded.endswith(_SECRET_ENDINGS)


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
    secret |= {name for name in ROOM_LISTS if room_keys(env.get(name, ""))}
    return secret.union(name for name in env if is_secret(name)).union(
        name for name in own if not is_harmless(name)
    )


def secret_values(env: Mapping[str, str]) -> list[str]:
    """The values that must not be shown.

    Values set in the profile's own `.env` count as secret, unless the name is known to be
    harmless or the value is trivial.
    """
    own = env.profile_names if isinstance(env, Env) else ()
    of_rooms = [key for name in sorted(ROOM_LISTS & env.keys()) for key in room_keys(env[name])]
    return of_rooms + [
        part
        for name, value in env.items()
        if is_secret(name)
        or (name in own and not is_harmless(name) and not is_trivial_value(value))
        for part in secret_parts(value)
    ]


def is_trivial_value(value: str) -> bool:
    """Whether the value is too simple to be a secret."""
    return len(value) < 8 or _TRIVIAL.fullmatch(value) is not None


def secret_parts(value: str) -> list[str]:
    """The value, and its parts if it lists several keys."""
    parts = [value, *(key.strip().removeprefix("Bearer ") for key in value.split(","))]
    return [part for part in dict.fromkeys(parts) if part]


def room_keys(rooms: str) -> list[str]:
    """The keys in a list of rooms with commas; each is after the name of its room."""
    return [key for room in rooms.split(",") if (key := _room_key(room))]


def mask_room_keys(rooms: str) -> str:
    """The list of rooms with masked keys."""
    return ",".join(map(_masked_room, rooms.split(",")))


def _room_key(room: str) -> str:
    return room.strip().partition(" ")[2].strip()


def _masked_room(room: str) -> str:
    key = _room_key(room)
    return f"{room.rstrip().removesuffix(key)}{MASK}" if key else room


def _is_room_list(path: tuple[str, ...]) -> bool:
    """Whether it lists the rooms of IRC or XMPP."""
    if not path:
        return False
    name = path[-1].lower()
    is_channel = name == "channel" and "irc" in map(str.lower, path)
    return name == "muc_rooms" or is_channel or name.upper() in ROOM_LISTS


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


def proxy_url(config: Config, env: Mapping[str, str]) -> str | None:
    """The URL of the gateway that runs the turns of chats; the environment overrides settings."""
    url = env.get("GATEWAY_PROXY_URL", "").strip() or config.gateway.proxy_url.strip()
    return url.rstrip("/") or None


_KEY_LOCATIONS = frozenset({"ssh_key", "key_env"})
_FREE_MAPS = ("_env", "_environment", "_headers", "_cookies")
"""Names of settings with free-form variables or headers, and suffixes of their names."""
_HARMLESS_HEADERS = frozenset({"accept", "content-type", "user-agent"})


def mask_secrets(
    value: object, redactor: Redactor, path: tuple[str, ...] = (), *, inside: bool = False
) -> object:
    """Return the value with secrets masked, by key and by content.

    `path` are the keys that lead to it. `inside` a map of variables or headers, everything not
    known to be harmless is masked.
    """
    name = path[-1] if path else ""
    if (mapping := as_mapping(value)) is not None:
        inner = inside or f"_{name}".lower().endswith(_FREE_MAPS)
        return {
            key: mask_secrets(item, redactor, (*path, str(key)), inside=inner)
            for key, item in mapping.items()
        }
    if (entries := as_list(value)) is not None:
        return [
            _masked_room(item)
            if isinstance(item, str) and _is_room_list(path)
            else mask_secrets(item, redactor, path, inside=inside)
            for item in entries
        ]
    if value is None or isinstance(value, bool) or value == "":
        return value
    if _is_secret_setting(name) or (inside and not _is_harmless(name)):
        return MASK
    if isinstance(value, str):
        value = redactor.redact(mask_room_keys(value) if _is_room_list(path) else value)
    return value


def secrets_in(value: object, path: tuple[str, ...] = (), *, inside: bool = False) -> Iterator[str]:
    """Every secret in the settings, found by its key."""
    name = path[-1] if path else ""
    if (mapping := as_mapping(value)) is not None:
        inner = inside or f"_{name}".lower().endswith(_FREE_MAPS)
        for key, item in mapping.items():
            yield from secrets_in(item, (*path, str(key)), inside=inner)
    elif (entries := as_list(value)) is not None:
        for item in entries:
            if _is_room_list(path) and isinstance(item, str):
                yield from filter(None, [_room_key(item)])
            else:
                yield from secrets_in(item, path, inside=inside)
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        if _is_secret_setting(name) or (
            inside and not _is_harmless(name) and not is_trivial_value(text)
        ):
            yield from secret_parts(text)
        elif _is_room_list(path):
            yield from room_keys(text)


def _is_harmless(name: str) -> bool:
    return name.lower() in _HARMLESS_HEADERS or is_harmless(name)


def _is_secret_setting(name: str) -> bool:
    if name.lower() in _KEY_LOCATIONS:
        return False
    named_as_secret = is_secret(name) if name.isupper() else is_secret_name(name)
    return named_as_secret or name.lower() == "password_hash"
