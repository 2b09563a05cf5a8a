"""Load config.yaml: parse, expand references, convert to types, warn; show what is effective."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from hermes.config.env import Env, read_text
from hermes.config.home import Home
from hermes.config.plain_yaml import read_plain_yaml
from hermes.config.platforms import ROOT_BLOCKS
from hermes.config.problems import Finding, Problem, Severity, as_error
from hermes.config.schema import Config
from hermes.config.sections.messaging import Platform
from hermes.config.setting_warnings import changed_settings, settle_choices, unknown_keys
from hermes.config.values import (
    KeyPath,
    as_list,
    as_mapping,
    describe_value,
    find_value,
    format_path,
    parse_path,
)
from hermes.config.variables import (
    mask_secrets,
    secret_values,
    secrets_in,
)
from hermes.kit.errors import ConfigError
from hermes.kit.redact import Redactor

_PLATFORM_SECTIONS = ROOT_BLOCKS | {"platforms", "gateway"}


class LoadedConfig(Struct, frozen=True):
    """The settings, warnings about them, and the raw content of the file."""

    config: Config
    warnings: tuple[Problem, ...] = ()
    raw: Mapping[str, object] = {}


def load_config(home: Home, env: Mapping[str, str], text: str | None = None) -> LoadedConfig:
    """Load the settings of a home; defaults if there is no file. Raises `ConfigError`.

    `text` is what will be in the file.
    """
    text = read_text(home.config) if text is None else text
    loaded, problems = inspect_config(text, home.config, env)
    if loaded is None:
        raise as_error(problems)
    return loaded


def config_from_mapping(raw: Mapping[str, object]) -> Config:
    """Convert settings that did not come from a file. Raises `ConfigError`."""
    findings: list[Finding] = []
    config = _converted(settle_choices(dict(raw), findings), findings)
    if findings or config is None:
        first = findings[0]
        raise ConfigError(f"{format_path(first.path)}: {first.message}", hint=first.hint)
    return config


def check_config(home: Home, env: Mapping[str, str]) -> list[Problem]:
    """All errors and warnings in the order of the file."""
    try:
        _, problems = inspect_config(read_text(home.config), home.config, env)
    except ConfigError as error:
        message = str(error).removeprefix(f"{home.config}: ")
        problem = Problem(
            severity=Severity.ERROR, file=home.config, message=message, hint=error.hint
        )
        return [problem]
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def check_is_mapping(document: object, file: Path) -> dict[object, object]:
    """The settings of a parsed file, which may be empty. Raises `ConfigError`."""
    settings = as_mapping(document if document is not None else {})
    if settings is None:
        raise ConfigError(
            f"{file}: expected settings such as `model: NAME`, found {describe_value(document)}",
            hint="Write sections such as `agent:` with their settings below: hermes config edit",
        )
    return settings


def inspect_config(
    text: str, file: Path, env: Mapping[str, str]
) -> tuple[LoadedConfig | None, list[Problem]]:
    """The loaded settings, or None on errors, and all problems."""
    try:
        raw, suspicious = read_plain_yaml(text), False
        if raw is None:
            from hermes.config.yaml_parser import read_yaml  # noqa: PLC0415 - slow to import

            document, suspicious = read_yaml(text, file)
            raw = {str(key): value for key, value in check_is_mapping(document, file).items()}
        findings: list[Finding] = []
        if "${" in text:
            raw = _expanded(raw, env, findings)
        settled = settle_choices(with_env_settings(raw, env), findings)
        config = _converted(settled, findings)
        named = {
            key: section
            for key, section in raw.items()
            if key not in ROOT_BLOCKS or hasattr(config, key)
        }
        findings += unknown_keys(named, Config() if config is None else config)
    except RecursionError as error:
        raise ConfigError(f"{file}: nested too deep", hint="Reduce the nesting.") from error
    problems = _with_positions(findings, text, file, suspicious) if findings or suspicious else []
    if config is None:
        return None, problems
    return LoadedConfig(config, tuple(problems), raw), problems


def _expanded(
    raw: dict[str, object], env: Mapping[str, str], findings: list[Finding]
) -> dict[str, object]:
    def missing(path: KeyPath, name: str) -> None:
        findings.append(
            Finding(
                severity=Severity.WARNING,
                path=path,
                message=f"the variable {name} is not set, so ${{{name}}} is kept as text",
                hint=f"Set it with: hermes config set {name} VALUE",
            )
        )

    return {key: expand_references(value, env, missing, (key,)) for key, value in raw.items()}


def _converted(raw: dict[str, object], findings: list[Finding]) -> Config | None:
    merged = raw
    if not _PLATFORM_SECTIONS.isdisjoint(raw):
        from hermes.config.platform_blocks import merge_platform_blocks  # noqa: PLC0415 - only needed for platforms

        merged = merge_platform_blocks(raw)
    try:
        return msgspec.convert(merged, Config, strict=False)
    except msgspec.ValidationError:
        from hermes.config.platform_blocks import written_path  # noqa: PLC0415 - only needed for invalid files
        from hermes.config.repair import SettingsRepair  # noqa: PLC0415 - as above

        repair = SettingsRepair()
        repaired = repair.repair(merged)
        findings += [
            structs.replace(error, path=written_path(raw, merged, error.path))
            for error in repair.findings
        ]
        return None if repair.findings else msgspec.convert(repaired, Config, strict=False)


def _with_positions(
    findings: list[Finding], text: str, file: Path, suspicious: bool
) -> list[Problem]:
    from hermes.config.yaml_parser import key_positions, nearest_position, repeated_keys  # noqa: PLC0415 - only needed for problems

    positions = key_positions(text)
    variables = {path: name for name, path in ENV_SETTINGS.items() if path not in positions}

    def problem(finding: Finding, position: tuple[int, int]) -> Problem:
        variable = variables.get(finding.path)
        return Problem(
            severity=finding.severity,
            file=file,
            path=finding.path,
            line=position[0],
            column=position[1],
            message=finding.message + (f" (from the variable {variable})" if variable else ""),
            hint=finding.hint,
        )

    problems = [problem(one, nearest_position(positions, one.path)) for one in findings]
    for path, position in repeated_keys(text) if suspicious else ():
        message = "defined twice; the first value is ignored"
        hint = f"Merge both into one {format_path(path)}."
        twice = Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)
        problems.append(problem(twice, position))
    return problems


_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

SHELL_SECTIONS = frozenset({"hooks", "quick_commands"})
"""Sections with shell commands: unknown names are left to the shell."""


def expand_references(
    value: object,
    env: Mapping[str, str],
    missing: Callable[[KeyPath, str], None],
    path: KeyPath = (),
) -> object:
    """Replace all references; unresolved ones stay and are reported to `missing`."""
    if isinstance(value, str):
        return _expand_text(value, env, missing, path) if "${" in value else value
    if (items := as_mapping(value)) is not None:
        return {
            key: expand_references(item, env, missing, (*path, str(key)))
            for key, item in items.items()
        }
    if (entries := as_list(value)) is not None:
        return [expand_references(item, env, missing, (*path, i)) for i, item in enumerate(entries)]
    return value


def _expand_text(
    text: str, env: Mapping[str, str], missing: Callable[[KeyPath, str], None], path: KeyPath
) -> str:
    def replaced(reference: re.Match[str]) -> str:
        name, default = reference[1], reference[2]
        value = env.get(name)
        if value is None or (value == "" and default is not None):
            value = default
        if value is None:
            if path[:1] and path[0] not in SHELL_SECTIONS:
                missing(path, name)
            return reference[0]
        return value

    # Nothing after the last bracket can match, and scanning it would be slow.
    end = text.rfind("}") + 1
    return _REFERENCE.sub(replaced, text[:end]) + text[end:]


_TERMINAL_KEYS = (
    *("cwd", "network", "timeout", "lifetime_seconds", "home_mode", "modal_mode"),
    "persistent_shell",
    *("docker_image", "docker_network", "docker_mount_cwd_to_workspace"),
    *("docker_run_as_host_user", "singularity_image", "modal_image", "daytona_image"),
    *("container_cpu", "container_memory", "container_disk", "container_persistent"),
    *("ssh_host", "ssh_user", "ssh_port", "ssh_key"),
)

ENV_SETTINGS: Mapping[str, KeyPath] = {
    "HERMES_TIMEZONE": ("timezone",),
    "HERMES_MAX_ITERATIONS": ("agent", "max_turns"),
    "HERMES_AGENT_TIMEOUT": ("agent", "gateway_timeout"),
    "HERMES_RESTART_DRAIN_TIMEOUT": ("agent", "restart_drain_timeout"),
    "HERMES_PREFILL_MESSAGES_FILE": ("prefill_messages_file",),
    "HERMES_ACCEPT_HOOKS": ("hooks_auto_accept",),
    "HERMES_REDACT_SECRETS": ("security", "redact_secrets"),
    "HERMES_GATEWAY_BUSY_INPUT_MODE": ("display", "busy_input_mode"),
    "HERMES_BACKGROUND_NOTIFICATIONS": ("display", "background_process_notifications"),
    "HERMES_DASHBOARD_PUBLIC_URL": ("dashboard", "public_url"),
    "HERMES_DASHBOARD_BASIC_AUTH_USERNAME": ("dashboard", "basic_auth", "username"),
    "HERMES_DASHBOARD_BASIC_AUTH_PASSWORD_HASH": ("dashboard", "basic_auth", "password_hash"),
    **{
        f"HERMES_DASHBOARD_OIDC_{key.upper()}": ("dashboard", "oauth", "self_hosted", key)
        for key in ("issuer", "client_id", "client_secret", "scopes")
    },
    "TERMINAL_ENV": ("terminal", "backend"),
    **{f"TERMINAL_{key.upper()}": ("terminal", key) for key in _TERMINAL_KEYS},
}


def with_env_settings(raw: dict[str, object], env: Mapping[str, str]) -> dict[str, object]:
    """Add settings from the environment; those in the file win."""
    merged = dict(raw)
    for name, path in ENV_SETTINGS.items():
        if value := env.get(name):
            _set_missing(merged, path, value)
    return merged


def _set_missing(merged: dict[Any, object], path: KeyPath, value: str) -> None:
    section, *rest = map(str, path)
    if not rest:
        merged.setdefault(section, value)
        return
    table = as_mapping({} if merged.get(section) is None else merged[section])
    if table is not None:
        inside = dict(table)
        _set_missing(inside, tuple(rest), value)
        merged[section] = inside


def load_effective(home: Home, env: Mapping[str, str]) -> object:
    """The defaults, the file's settings and its unknown keys."""
    loaded = load_config(home, env)
    known = as_mapping(msgspec.to_builtins(loaded.config)) or {}
    # Platforms are shown where they are in the file, not where they were merged.
    written = as_mapping(loaded.raw.get("platforms")) or {}
    defaults = msgspec.to_builtins(Platform())
    known["platforms"] = {
        name: {**defaults, **(as_mapping(block) or {})} for name, block in written.items()
    }
    return _with_unknown_keys(known, dict(loaded.raw))


def effective_value(settings: object, name: str) -> tuple[bool, object]:
    """Whether the setting exists, and its value; a bare model name counts as `model.default`."""
    path = parse_path(name)
    found, value = find_value(settings, path)
    if not found and path == ("model", "default"):
        return find_value(settings, ("model",))
    return found, value


def _with_unknown_keys(known: object, raw: object) -> object:
    """Add the file's unknown keys to the known settings."""
    settings, table = as_mapping(known), as_mapping(raw)
    if settings is None or table is None:
        return known
    merged = {key: _with_unknown_keys(value, table.get(key)) for key, value in settings.items()}
    others = {str(key): value for key, value in table.items() if str(key) not in merged}
    return {**merged, **others}


def printable_settings(home: Home, env: Env, *, everything: bool = False) -> object:
    settings = load_effective(home, env)
    redactor = Redactor([*secret_values(env), *secrets_in(settings)])
    return mask_secrets(settings if everything else changed_settings(settings), redactor)


def as_yaml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    import yaml  # noqa: PLC0415 - slow to import

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text.removesuffix("...\n").rstrip("\n")
