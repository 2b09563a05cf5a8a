from hermes.config.env import Env
from hermes.config.variables import (
    VARIABLES,
    Category,
    as_optional_env_vars,
    is_secret,
    is_variable,
    mask_secrets,
    secret_values,
    secrets_in,
    withheld_names,
)
from hermes.kit.redact import MASK, Redactor
from support.cases import cases

EXPECTED = [
    "OPENROUTER_API_KEY",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "GOOGLE_API_KEY",
    "GEMINI_API_KEY",
    "XAI_API_KEY",
    "GLM_API_KEY",
    "KIMI_API_KEY",
    "MINIMAX_API_KEY",
    "DEEPSEEK_API_KEY",
    "DASHSCOPE_API_KEY",
    "HF_TOKEN",
    "NVIDIA_API_KEY",
    "LM_API_KEY",
    "LM_BASE_URL",
    "OLLAMA_API_KEY",
    "OLLAMA_BASE_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AZURE_FOUNDRY_API_KEY",
    "AZURE_FOUNDRY_BASE_URL",
    "EXA_API_KEY",
    "TAVILY_API_KEY",
    "FIRECRAWL_API_KEY",
    "PARALLEL_API_KEY",
    "BRAVE_SEARCH_API_KEY",
    "SEARXNG_URL",
    "BROWSERBASE_API_KEY",
    "FAL_KEY",
    "ELEVENLABS_API_KEY",
    "VOICE_TOOLS_OPENAI_KEY",
    "GITHUB_TOKEN",
    "HONCHO_API_KEY",
    "MEM0_API_KEY",
    "GATEWAY_ALLOW_ALL_USERS",
    "API_SERVER_ENABLED",
    "API_SERVER_KEY",
    "API_SERVER_HOST",
    "API_SERVER_PORT",
    "API_SERVER_MODEL_NAME",
    "API_SERVER_CORS_ORIGINS",
    "API_SERVER_ALLOWED_HOSTS",
    "GATEWAY_PROXY_URL",
    "GATEWAY_PROXY_KEY",
    "WEBHOOK_ENABLED",
    "WEBHOOK_PORT",
    "WEBHOOK_SECRET",
    "SUDO_PASSWORD",
    "HERMES_PREFILL_MESSAGES_FILE",
    "HERMES_EPHEMERAL_SYSTEM_PROMPT",
    "HERMES_INFERENCE_MODEL",
    "HERMES_INFERENCE_PROVIDER",
    "HERMES_MAX_ITERATIONS",
    "HERMES_TIMEZONE",
    "HERMES_YOLO_MODE",
    "HERMES_CRON_TIMEOUT",
    "HERMES_AGENT_TIMEOUT",
    "HERMES_ACCEPT_HOOKS",
    "HERMES_GATEWAY_BUSY_INPUT_MODE",
    "HERMES_GATEWAY_BUSY_ACK_ENABLED",
    "HERMES_BACKGROUND_NOTIFICATIONS",
    "HERMES_RESTART_DRAIN_TIMEOUT",
    "HERMES_REDACT_SECRETS",
    "TELEGRAM_BOT_TOKEN",
    "DISCORD_BOT_TOKEN",
    "SLACK_BOT_TOKEN",
    "SLACK_APP_TOKEN",
    "TELEGRAM_GROUP_ALLOWED_CHATS",
    "QQ_GROUP_ALLOWED_USERS",
    "EMAIL_HOME_ADDRESS",
]


@cases("name", EXPECTED)
def test_every_documented_name_is_known(name):
    assert VARIABLES[name].description


@cases("platform", ["TELEGRAM", "DISCORD", "SLACK", "SIGNAL", "MATRIX", "EMAIL"])
def test_platforms_have_the_regular_names(platform):
    for suffix in ("ALLOWED_USERS", "ALLOW_ALL_USERS", "HOME_CHANNEL", "HOME_CHANNEL_NAME"):
        assert VARIABLES[f"{platform}_{suffix}"].category is Category.MESSAGING


def test_provider_keys_have_base_urls():
    keys = [
        name.removesuffix("_API_KEY")
        for name, variable in VARIABLES.items()
        if variable.category is Category.PROVIDER and name.endswith("_API_KEY")
    ]
    assert len(keys) > 20
    assert all(f"{prefix}_BASE_URL" in VARIABLES for prefix in keys)


def test_optional_env_vars_format():
    registry = as_optional_env_vars()
    assert registry["GATEWAY_PROXY_URL"]["category"] == "messaging"
    assert registry["GATEWAY_PROXY_URL"]["password"] is False
    assert registry["GATEWAY_PROXY_KEY"]["category"] == "messaging"
    assert registry["GATEWAY_PROXY_KEY"]["password"] is True
    assert all(
        set(entry) == {"description", "prompt", "url", "password", "category"}
        for entry in registry.values()
    )


def test_secret_suffix_counts_unless_known():
    assert is_secret("MY_OWN_API_KEY")
    assert is_secret("OPENAI_API_KEY")
    assert not is_secret("LANGFUSE_PUBLIC_KEY")
    assert not is_secret("HERMES_HOME")
    assert is_variable("MY_OWN_TOKEN")
    assert is_variable("TELEGRAM_HOME_CHANNEL")
    assert not is_variable("model")
    assert not is_variable("agent.max_turns")


@cases(
    "name",
    [
        "ACME_APIKEY", "PGPASSWORD", "MYSQL_PWD", "SMTP_PASSWD", "SSH_PASSPHRASE", "MY-API-KEY",
        "acme.api.key", "SESSION_COOKIE", "SLACK_WEBHOOK", "TEAMS_WEBHOOK_URL", "SENTRY_DSN",
        "DATABASE_URL", "AZURE_CONNECTION_STRING", "apiKey", "clientSecret_2", "BASIC_AUTH",
        "GITHUB_PAT", "GCP_CREDENTIALS", "x-api-key",
    ],
)  # fmt: skip
def test_secret_names(name: str):
    assert is_secret(name)


@cases(
    "name",
    ["PWD", "OLDPWD", "PATH", "SSH_AUTH_SOCK", "MAX_TOKENS", "MONKEY", "KEYBOARD", "COMPASS"],
)
def test_names_that_are_not_secret(name: str):
    assert not is_secret(name)


def test_profile_variables_are_secret_unless_known():
    process = {"SHELL_NOTE": "a note of the shell", "ACME": "of-the-process"}
    own = {
        "ACME": "t0ps3cret-4711",
        "MY_THING": "correcthorsebattery",
        "HOOK": "https://h.example/T0/secret",
        "HERMES_TIMEZONE": "Europe/Berlin-of-old",
        "ACME_MODEL": "gpt-4.1-mini-2025",
        "LANG": "de_DE.UTF-8@euro",
        "DEBUG": "1",
        "VERBOSE": "true",
        "STAGE": "production",
        "PIN": "12345678",
        "WHERE": "/srv/data/in",
        "SERVICE": "http://localhost:8080",
        "SHORT": "abc123",
    }
    env = Env(process).overlaid(own)
    assert secret_values(env) == [own["ACME"], own["MY_THING"], own["HOOK"]]
    hidden = withheld_names(env)
    assert {"ACME", "MY_THING", "HOOK", "PIN", "OPENAI_API_KEY"} <= hidden
    assert not {"HERMES_TIMEZONE", "LANG", "SHELL_NOTE", "ACME_MODEL"} & hidden


def test_secret_values_of_an_environment():
    env = {"OPENAI_API_KEY": "a", "X_TOKEN": "b", "PATH": "/bin", "EMPTY_KEY": ""}
    assert secret_values(env) == ["a", "b"]


def test_secrets_in_settings_are_masked_by_name_and_by_value():
    settings = {
        "model": {"default": "gpt", "api_key": "k", "base_url": "http://u:hunter22@h/"},
        "custom_providers": [{"name": "x", "api_key": "abc", "key_env": "X_KEY"}],
        "platforms": {"t": {"token": "123", "extra": {"key": "s", "port": 1}}},
        "mcp_servers": {
            "m": {"env": {"A_TOKEN": "t", "LANG": "C"}, "headers": {"Authorization": "z"}}
        },
        "terminal": {"ssh_key": "~/.ssh/id"},
        "dashboard": {"basic_auth": {"password_hash": "h"}},
        "note": "the value is topsecret!",
        "empty": {"api_key": ""},
    }
    assert mask_secrets(settings, Redactor(["topsecret"])) == {
        "model": {"default": "gpt", "api_key": MASK, "base_url": f"http://u:{MASK}@h/"},
        "custom_providers": [{"name": "x", "api_key": MASK, "key_env": "X_KEY"}],
        "platforms": {"t": {"token": MASK, "extra": {"key": MASK, "port": 1}}},
        "mcp_servers": {
            "m": {"env": {"A_TOKEN": MASK, "LANG": "C"}, "headers": {"Authorization": MASK}}
        },
        "terminal": {"ssh_key": "~/.ssh/id"},
        "dashboard": {"basic_auth": {"password_hash": MASK}},
        "note": f"the value is {MASK}!",
        "empty": {"api_key": ""},
    }


def test_keys_of_rooms_are_masked_and_their_names_are_shown():
    settings = {
        "platforms": {
            "irc": {"extra": {"channel": ["#open", "#closed secret,key", 7]}},
            "xmpp": {"extra": {"muc_rooms": "a@muc, b@muc  of the room ,c@muc pass"}},
            "other": {"extra": {"channel": "General talk"}},
        },
        "irc": {"extra": {"channel": "#key key"}},
    }
    assert mask_secrets(settings, Redactor()) == {
        "platforms": {
            "irc": {"extra": {"channel": ["#open", f"#closed {MASK}", 7]}},
            "xmpp": {"extra": {"muc_rooms": f"a@muc, b@muc  {MASK},c@muc {MASK}"}},
            "other": {"extra": {"channel": "General talk"}},
        },
        "irc": {"extra": {"channel": f"#key {MASK}"}},
    }
    assert list(secrets_in(settings)) == ["secret,key", "of the room", "pass", "key"]


def test_variables_with_keys_of_rooms_are_withheld_and_the_keys_are_secret():
    env = {"IRC_CHANNEL": "#open,#closed room-key", "XMPP_MUC_ROOMS": "a@muc,b@muc"}
    assert secret_values(env) == ["room-key"]
    assert "IRC_CHANNEL" in withheld_names(env)
    assert "XMPP_MUC_ROOMS" not in withheld_names(env)


def test_variable_and_header_maps_are_masked():
    settings = {
        "mcp_servers": {
            "m": {
                "env": {"ACME": "t0ps3cret-1", "LANG": "C.UTF-8", "N": 7},
                "headers": {"X-Whatever": "t0ps3cret-2", "Accept": "text/plain"},
                "extra_headers": {"A": ["t0ps3cret-3"], "B": {"c": "t0ps3cret-4"}},
                "url": "https://h.example/v1?apikey=t0ps3cret-5",
            }
        },
        "terminal": {"docker_env": {"DEBUG": "true", "X": ""}, "docker_forward_env": ["HOME"]},
        "bot": {"password": 12345678, "apiKey": "t0ps3cret-6", "max_tokens": 4096},
    }
    assert mask_secrets(settings, Redactor()) == {
        "mcp_servers": {
            "m": {
                "env": {"ACME": MASK, "LANG": "C.UTF-8", "N": MASK},
                "headers": {"X-Whatever": MASK, "Accept": "text/plain"},
                "extra_headers": {"A": [MASK], "B": {"c": MASK}},
                "url": f"https://h.example/v1?apikey={MASK}",
            }
        },
        "terminal": {"docker_env": {"DEBUG": MASK, "X": ""}, "docker_forward_env": ["HOME"]},
        "bot": {"password": MASK, "apiKey": MASK, "max_tokens": 4096},
    }
    assert list(secrets_in(settings)) == [
        *(f"t0ps3cret-{n}" for n in (1, 2, 3, 4)),
        "12345678",
        "t0ps3cret-6",
    ]
