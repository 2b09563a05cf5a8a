"""Find all problems of the settings; chat, gateway, `config check` and `doctor` show the same.

The loader finds unknown keys and values. This module checks names: providers, toolsets, sandboxes,
platforms, profiles and servers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from hermes.app.model_settings import model_settings
from hermes.app.prompt_context import NO_PERSONALITY, all_personalities
from hermes.app.toolbox import NO_MCP, mcp_toolsets, reserved_toolsets, toolset_name
from hermes.config.env import Env, read_text
from hermes.config.home import Home
from hermes.config.loader import LoadedConfig, with_env_settings
from hermes.config.platforms import PLATFORMS
from hermes.config.problems import Finding, Problem, Severity
from hermes.config.schema import Config
from hermes.config.sections.messaging import Platform
from hermes.config.server_ports import MAX_PORT, PORT_VARIABLES, is_port, is_port_setting
from hermes.config.setting_warnings import BOTS, FALSE_WORDS, TRUE_WORDS
from hermes.config.values import KeyPath, as_list, as_mapping, format_path
from hermes.kit.text import similar_names
from hermes.models.providers import CUSTOM, PROVIDERS, find_provider
from hermes.models.urls import API_MODES
from hermes.sandbox.backends import BACKENDS, unsupported_reason
from hermes.schema.errors import ConfigError
from hermes.tools.catalog import known_toolsets

SKINS = ("default", "dark", "light")
CHAT_TYPES = ("dm", "group", "channel", "thread", "forum")
SOURCES = (
    "cli",
    "tui",
    "api_server",
    "cron",
    "acp",
    "subagent",
    "library",
    "gateway",
    "local",
    "web",
)
"""Sources of turns other than messaging platforms."""

PROVIDER: KeyPath = ("model", "provider")
BACKEND: KeyPath = ("terminal", "backend")

PROVIDER_NAMES = (
    "model.provider", "fallback_model.provider", "fallback_providers.*.provider",
    "auxiliary.*.provider", "delegation.provider", "compression.summary_provider",
    "cron.model_provider",
    "platforms.*.channel_overrides.*.provider",
    "platforms.api_server.extra.model_routes.*.provider",
)  # fmt: skip
API_MODE_NAMES = (
    "model.api_mode", "providers.*.api_mode", "custom_providers.*.api_mode",
    "fallback_model.api_mode", "fallback_providers.*.api_mode", "auxiliary.*.api_mode",
)  # fmt: skip
TOOLSET_NAMES = (
    "toolsets.*", "platform_toolsets.*.*", "agent.disabled_toolsets.*",
    "delegation.default_toolsets.*",
)  # fmt: skip
BACKEND_NAMES = ("terminal.backend", "terminal.backend_by_platform.*")
PROFILE_NAMES = (
    "gateway.served_profiles.*", "profile_routes.*.profile", "gateway.profile_routes.*.profile",
)  # fmt: skip
PLATFORM_NAMES = ("profile_routes.*.platform", "gateway.profile_routes.*.platform")
PLATFORM_KEYS = (
    "platform_toolsets.*:", "terminal.backend_by_platform.*:", "terminal.network_by_platform.*:",
    "reset_by_platform.*:", "display.platforms.*:", "skills.platform_disabled.*:",
)  # fmt: skip

_Words: TypeAlias = Sequence[tuple[KeyPath, str]]
_Check: TypeAlias = Callable[[_Words], Iterable[Finding]]
_BOT_VARIABLES = frozenset(f"{platform.prefix}_ALLOW_BOTS" for platform in PLATFORMS)
"""The variables that go with the settings `allow_bots`."""


def setting_problems(loaded: LoadedConfig, home: Home, env: Env) -> list[Problem]:
    """Return the loader's warnings and unknown names, in file order."""
    problems = [*loaded.warnings, *name_problems(loaded, home, env)]
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def name_problems(loaded: LoadedConfig, home: Home, env: Env) -> list[Problem]:
    """Return unknown names in the settings."""
    findings = [*_findings(loaded, home, env)]
    return with_positions(findings, home) if findings else []


def is_server_or_hook(problem: Problem) -> bool:
    """Whether the problem concerns a whole MCP server or hook event."""
    return problem.path[:1] in (("mcp_servers",), ("hooks",)) and len(problem.path) == 2


def warning_line(problem: Problem) -> str:
    """One line for the greeting and the log."""
    text = str(problem)
    stop = "" if text.endswith((".", "?")) else "."
    return f"{text}{stop} {problem.hint}" if problem.hint else text


def with_positions(findings: Sequence[Finding], home: Home) -> list[Problem]:
    """Add where each setting is in the file."""
    from hermes.config.yaml_parser import key_positions, nearest_position  # noqa: PLC0415 - only needed for problems

    positions = key_positions(read_text(home.config))
    return [
        Problem(
            severity=finding.severity,
            file=home.config,
            path=finding.path,
            line=nearest_position(positions, finding.path)[0],
            column=nearest_position(positions, finding.path)[1],
            message=finding.message,
            hint=finding.hint,
        )
        for finding in findings
    ]


def _findings(loaded: LoadedConfig, home: Home, env: Env) -> Iterator[Finding]:
    raw, config = with_env_settings({**loaded.raw}, env), loaded.config
    checks: list[tuple[Iterable[str], _Check]] = [
        (PROVIDER_NAMES, partial(_providers, config)),
        (API_MODE_NAMES, partial(_known, "API mode", API_MODES)),
        (TOOLSET_NAMES, partial(_toolsets, config)),
        (BACKEND_NAMES, _backends),
        (PROFILE_NAMES, partial(_profiles, home)),
        (PLATFORM_NAMES, partial(_platforms, config)),
        (("display.skin",), partial(_known, "skin", SKINS)),
        (("display.personality",), partial(_personalities, config)),
        (("timezone",), _timezones),
        (PLATFORM_KEYS, partial(_platforms, config)),
        (("reset_by_type.*:",), partial(_known, "kind of chat", CHAT_TYPES)),
        (("credential_pool_strategies.*:",), partial(_providers, config)),
    ]
    for names, check in checks:
        paths = [tuple(name.split(".")) for name in names]
        values = [one for path in paths for one in _values(raw, path)]
        words = [(path, value.strip()) for path, value in values if isinstance(value, str)]
        if words := [(path, word) for path, word in words if word]:
            yield from check(words)
    if config.hooks:
        yield from _hooks(config)
    if "api_server" in config.platforms:
        yield from _routes(config.platforms["api_server"])
    if config.mcp_servers:
        yield from _servers(config, home, env)
    if not _BOT_VARIABLES.isdisjoint(env):
        yield from _bot_variables(env)
    if "platforms" in raw or not PORT_VARIABLES.isdisjoint(env):
        yield from _ports(raw, env)


def _values(
    value: object, steps: tuple[str, ...], path: KeyPath = ()
) -> Iterator[tuple[KeyPath, object]]:
    """The given values of a setting; `*` stands for any key or list item, `*:` for the keys."""
    if not steps:
        yield path, value
        return
    step, rest = steps[0], steps[1:]
    if (items := as_mapping(value)) is not None:
        if step == "*:":
            yield from (((*path, str(key)), str(key)) for key in items)
        for key in [*items] if step == "*" else [step] if step in items else []:
            yield from _values(items[key], rest, (*path, str(key)))
    elif (entries := as_list(value)) is not None and step == "*":
        for index, entry in enumerate(entries):
            yield from _values(entry, rest, (*path, index))
    elif isinstance(value, str) and step == "*" and not rest:
        for name in value.split(","):
            yield path, name


def _bot_variables(env: Env) -> Iterator[Finding]:
    known = {*BOTS, *TRUE_WORDS, *FALSE_WORDS}
    for name in sorted(_BOT_VARIABLES):
        if (word := env.get(name, "").strip().lower()) not in known:
            message = f"unknown value {word!r}; it allows no bots"
            hint = "Choose one of: none, mentions, all."
            yield Finding(severity=Severity.WARNING, path=(name,), message=message, hint=hint)


def _ports(raw: Mapping[str, object], env: Env) -> Iterator[Finding]:
    ports = [
        one for one in _values(raw, ("platforms", "*", "extra", "*")) if is_port_setting(one[0])
    ]
    ports += [((name,), env[name]) for name in sorted(PORT_VARIABLES) if name in env]
    for path, value in ports:
        if not is_port(value):
            message = f"{value} is not a port, which is a whole number from 0 to {MAX_PORT}"
            hint = f"hermes config set {format_path(path)} NUMBER"
            yield Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)


def _known(what: str, known: Sequence[str], words: _Words) -> Iterator[Finding]:
    for path, name in words:
        if name.lower() not in known:
            yield _unknown(path, what, name, known)


def _providers(config: Config, words: _Words) -> Iterator[Finding]:
    own = [provider.name for provider in model_settings(config).custom_providers]
    known = [*own, *(provider.name for provider in (*PROVIDERS, CUSTOM))]
    accepted = {"auto", "main", *map(str.lower, own), *map(str.lower, config.providers)}
    for path, name in words:
        if name.lower().removeprefix("custom:") not in accepted and not find_provider(name):
            yield _unknown(path, "provider", name, known)


def _toolsets(config: Config, words: _Words) -> Iterator[Finding]:
    known = {*known_toolsets(), *mcp_toolsets(config), NO_MCP}
    for path, name in words:
        if name in known or toolset_name(name) in known or name == "hermes-webhook":
            continue
        effect = "disables nothing" if "disabled_toolsets" in path else "adds no tools"
        hint = "See `hermes tools list`."
        for near in similar_names(name, sorted(known)):
            hint = f"Did you mean {near}? Change it with: hermes config edit"
        message = f"unknown toolset {name!r}, which {effect}"
        yield Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)


def _backends(words: _Words) -> Iterator[Finding]:
    for path, name in words:
        if why := unsupported_reason(name):
            message = f"{why}, so commands and code are refused"
            setting = format_path(path)
            hint = f"Choose one of {', '.join(BACKENDS)}: hermes config set {setting} auto"
            yield Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)


def _platforms(config: Config, words: _Words) -> Iterable[Finding]:
    from hermes.channels import MANIFESTS  # noqa: PLC0415 - only if a setting names a platform

    own = (platform.platform for platform in PLATFORMS)
    return _known("platform", sorted({*SOURCES, *MANIFESTS, *own, *config.platforms}), words)


def _personalities(config: Config, words: _Words) -> Iterable[Finding]:
    known = [*all_personalities(config), NO_PERSONALITY, "default"]
    return _known("personality", known, words)


def _profiles(home: Home, words: _Words) -> Iterable[Finding]:
    from hermes.config.profiles import list_profiles  # noqa: PLC0415 - only with such a setting

    return _known("profile", [profile.name for profile in list_profiles(home.root)], words)


def _timezones(words: _Words) -> Iterator[Finding]:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - only with such a setting

    for path, name in words:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            hint = "Use a name such as Europe/Berlin, or leave it empty for this machine's."
            message = f"unknown time zone {name!r}"
            yield Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)


def _hooks(config: Config) -> Iterator[Finding]:
    from hermes.hooks.shell import HOOK_EVENTS  # noqa: PLC0415 - only with hooks

    for event in config.hooks:
        if event not in HOOK_EVENTS:
            yield _unknown(("hooks", event), "event", event, HOOK_EVENTS)


def _routes(api: Platform) -> Iterator[Finding]:
    from hermes.config.model_routes import ROUTES_PATH, read_routes  # noqa: PLC0415 - only with such a setting

    try:
        read_routes(api.extra)
    except ConfigError as error:
        message = str(error).removeprefix(f"{format_path(ROUTES_PATH)}: ")
        yield Finding(severity=Severity.WARNING, path=ROUTES_PATH, message=message, hint=error.hint)


def _servers(config: Config, home: Home, env: Env) -> Iterator[Finding]:
    enabled = {name: server for name, server in config.mcp_servers.items() if server.enabled}
    from hermes.mcp.settings import ServerContext, server_config  # noqa: PLC0415 - only with servers

    context = ServerContext(env, home.path, str(Path("/")), reserved_toolsets())
    for name, settings in enabled.items():
        try:
            server_config(name, settings, context, enabled)
        except ConfigError as error:
            path = ("mcp_servers", name)
            yield Finding(severity=Severity.WARNING, path=path, message=str(error), hint=error.hint)


def _unknown(path: KeyPath, what: str, name: str, known: Sequence[str]) -> Finding:
    setting = f"hermes config set {format_path(path)}"
    hint = f"Choose one of {', '.join(known)}: {setting} NAME"
    for near in similar_names(name, known):
        hint = f"Did you mean {near}? {setting} {near}"
    message = f"unknown {what} {name!r}"
    return Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)
