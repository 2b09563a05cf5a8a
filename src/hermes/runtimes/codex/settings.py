"""The settings of a profile as codex needs them: its program, environment and threads."""

import shutil
from collections.abc import Mapping

from hermes.config.env import Env, base_env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.config.sections.execution import McpServer
from hermes.config.sections.models import Compression
from hermes.config.variables import secret_values
from hermes.kit.redact import Redactor
from hermes.ports.plugins import LaunchProgram
from hermes.runtimes.codex.service import CodexServiceDeps

NAME = "codex_app_server"
CODEX_PROVIDERS = frozenset({"", "auto", "openai", "openai-codex"})
"""Providers whose models codex can use; sessions with other providers stay here."""
CODEX_VARIABLES = ("CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL")
NEVER_COMPACT = 1_000_000_000_000
"""More tokens than any thread has: codex then compacts only at 90 % of its window."""


def codex_program(env: Mapping[str, str]) -> str:
    """The executable; a bare name if it is not found, so that starting it fails clearly."""
    configured = env.get("CODEX_PATH", "").strip()
    return configured or shutil.which("codex", path=env.get("PATH")) or "codex"


def codex_runs_turns(config: Config) -> bool:
    """Whether codex runs the turns of a session without a model of its own."""
    model = config.main_model
    wanted = model.openai_runtime == NAME and not model.base_url
    return wanted and model.provider in CODEX_PROVIDERS


def codex_is_installed(env: Mapping[str, str]) -> bool:
    return shutil.which(codex_program(env), path=env.get("PATH")) is not None


def codex_service_deps(
    home: Home, config: Config, env: Env, launch: LaunchProgram, program: str
) -> CodexServiceDeps:
    hidden = secret_values(env) if config.security.redact_secrets else ()
    return CodexServiceDeps(
        launch=launch,
        program=program,
        env=codex_env(env),
        cwd=str(home.path),
        log=home.logs / "codex.log",
        redactor=Redactor(hidden),
    )


def codex_env(env: Mapping[str, str]) -> dict[str, str]:
    """Base variables and the keys of codex's own provider; none of our other secrets."""
    return base_env(env) | {name: env[name] for name in CODEX_VARIABLES if name in env}


def codex_mcp_settings(servers: Mapping[str, McpServer]) -> dict[str, object]:
    """Translate MCP servers into codex's own settings."""
    settings: dict[str, object] = {}
    for name, server in servers.items():
        if not server.enabled:
            continue
        fields: dict[str, object] = (
            {"url": server.url, "http_headers": dict(server.headers)}
            if server.url
            else {"command": server.command, "args": [*server.args], "env": dict(server.env)}
        )
        fields["tool_timeout_sec"] = server.timeout
        fields["startup_timeout_sec"] = server.connect_timeout
        settings[name] = {key: value for key, value in fields.items() if value}
    return settings


def thread_config(config: Config) -> dict[str, object]:
    """Settings of each thread in addition to codex's own."""
    values: dict[str, object] = {}
    if servers := codex_mcp_settings(config.mcp_servers):
        values["mcp_servers"] = servers
    if config.compression.codex_app_server_auto == "off":
        values["model_auto_compact_token_limit"] = NEVER_COMPACT
    return values


def compaction_share(settings: Compression) -> float:
    """The share of its window at which we compact a thread; 0 leaves it to codex."""
    return settings.threshold if settings.codex_app_server_auto == "hermes" else 0.0
