"""The options for opening a profile, and what follows from them: log files, masked secrets."""

from datetime import timedelta

from msgspec import Struct

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import LoadedConfig
from hermes.config.schema import Config
from hermes.config.variables import secret_values, secrets_in
from hermes.kit.redact import Redactor
from hermes.logs import Logs, LogScope, LogSettings
from hermes.models.key_pool import stored_secrets
from hermes.ports.ownership import WORKER_TTL


class AppOptions(Struct, frozen=True, kw_only=True):
    """Command-line choices; unset means as configured."""

    workspace: str
    source: str = "cli"
    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    toolsets: tuple[str, ...] | None = None
    excluded_toolsets: tuple[str, ...] = ()  # toolsets that are always left out
    max_steps: int | None = None
    system_prompt: str = ""
    reviews_turns: bool = False  # the process continues after a turn, so reviews can run
    logs: bool = False  # write the home's log files; only in a process of our own
    log_scope: LogScope = LogScope.EVERYTHING
    worker_ttl: timedelta = WORKER_TTL


def open_logs(home: Home, config: Config, redactor: Redactor, choices: AppOptions) -> Logs | None:
    if not choices.logs:
        return None
    settings = LogSettings(
        level=config.logging.level,
        max_bytes=int(config.logging.max_size_mb * 1024 * 1024),
        keep=config.logging.backup_count,
    )
    return Logs(home.logs, settings, redactor, choices.log_scope)


def known_secrets(home: Home, loaded: LoadedConfig, env: Env, choices: AppOptions) -> list[str]:
    """Every value that must not appear in a log, a result or an error."""
    if not loaded.config.security.redact_secrets:
        return []
    from_flags = [choices.api_key] if choices.api_key else []
    stored = stored_secrets(home.auth) if home.auth.exists() else []
    return [*from_flags, *stored, *secrets_in(loaded.raw), *secret_values(env)]
