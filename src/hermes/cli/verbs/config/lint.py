"""Warn about valid settings that name something unknown or have no effect."""

from collections.abc import Iterator, Mapping, Sequence

from hermes.app.model_settings import model_settings
from hermes.config.dotenv import read_text
from hermes.config.home import Home
from hermes.config.loader import LoadedConfig, check_config, load_config
from hermes.config.problems import Finding, Problem, Severity
from hermes.config.setting_warnings import UNUSED, unused_settings
from hermes.config.values import KeyPath, as_mapping
from hermes.kit.text import similar_names
from hermes.models.providers import CUSTOM, PROVIDERS, find_provider
from hermes.sandbox.backends import BACKENDS, unsupported_reason
from hermes.schema.errors import ConfigError

SKINS = ("default", "dark", "light")
PROVIDER: KeyPath = ("model", "provider")
BACKEND: KeyPath = ("terminal", "backend")
_SKIN: KeyPath = ("display", "skin")
_MAX_UNGROUPED = 3
_MAX_NAMED = 10


def check_settings(home: Home, env: Mapping[str, str]) -> list[Problem]:
    """All errors and warnings about the settings, in file order."""
    problems = [*check_config(home, env), *lint_values(home, env)]
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def group_unused(problems: Sequence[Problem]) -> list[Problem]:
    """Merge many "has no effect" warnings into one."""
    unused = [one for one in problems if one.message == UNUSED]
    if len(unused) <= _MAX_UNGROUPED:
        return list(problems)
    sections: dict[str, list[Problem]] = {}
    for problem in unused:
        sections.setdefault(str(problem.path[0]), []).append(problem)
    names = [
        group[0].key if len(group) == 1 else f"{len(group)} of {section}"
        for section, group in sections.items()
    ]
    named = ", ".join([*names[:_MAX_NAMED], *["…"] * (len(names) > _MAX_NAMED)])
    first = unused[0]
    message = f"{len(unused)} settings have no effect: {named}"
    hint = "List them all: hermes config check --verbose"
    merged = Problem(severity=first.severity, file=first.file, message=message, hint=hint)
    return [*(one for one in problems if one.message != UNUSED), merged]


def lint_values(home: Home, env: Mapping[str, str]) -> list[Problem]:
    """Warnings about single values; none if the file is invalid."""
    try:
        loaded = load_config(home, env)
    except ConfigError:
        return []
    findings = [*_provider(loaded), *_skin(loaded), *_sandbox(loaded), *unused_settings(loaded.raw)]
    return _with_positions(findings, home) if findings else []


def _provider(loaded: LoadedConfig) -> Iterator[Finding]:
    name = _text_setting(loaded, PROVIDER)
    own = [one.name for one in model_settings(loaded.config).custom_providers]
    custom = name.lower().removeprefix("custom:")
    if name.lower() in {"", "auto"} or custom in map(str.lower, own) or find_provider(name):
        return
    known = [*own, *(one.name for one in (*PROVIDERS, CUSTOM))]
    yield _unknown(PROVIDER, "provider", name, known)


def _skin(loaded: LoadedConfig) -> Iterator[Finding]:
    name = _text_setting(loaded, _SKIN)
    if name and name not in SKINS:
        yield _unknown(_SKIN, "skin", name, SKINS)


def _sandbox(loaded: LoadedConfig) -> Iterator[Finding]:
    name = _text_setting(loaded, BACKEND)
    if name and unsupported_reason(name):
        yield _unknown(BACKEND, "sandbox", name, BACKENDS)


def _unknown(path: KeyPath, what: str, name: str, known: Sequence[str]) -> Finding:
    setting = f"hermes config set {'.'.join(map(str, path))}"
    hint = f"Choose one of {', '.join(known)}: {setting} NAME"
    for near in similar_names(name, known):
        hint = f"Did you mean {near}? {setting} {near}"
    message = f"unknown {what} {name!r}"
    return Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)


def _text_setting(loaded: LoadedConfig, path: KeyPath) -> str:
    """The setting's text; empty if it is missing or not text."""
    section = as_mapping(loaded.raw.get(str(path[0]))) or {}
    value = section.get(path[1])
    return value.strip() if isinstance(value, str) else ""


def _with_positions(findings: list[Finding], home: Home) -> list[Problem]:
    from hermes.config.yaml_parser import key_positions, nearest_position

    positions = key_positions(read_text(home.config))
    return [
        Problem(
            severity=one.severity,
            file=home.config,
            path=one.path,
            line=nearest_position(positions, one.path)[0],
            column=nearest_position(positions, one.path)[1],
            message=one.message,
            hint=one.hint,
        )
        for one in findings
    ]
