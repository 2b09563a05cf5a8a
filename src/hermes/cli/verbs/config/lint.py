"""Settings that can be read, and yet name something that there is not, or change nothing."""

from collections.abc import Iterator, Mapping, Sequence

from hermes.app.model_settings import model_settings
from hermes.app.sandboxes import BACKENDS, unsupported_reason
from hermes.config.dotenv import read_text
from hermes.config.home import Home
from hermes.config.key_paths import KeyPath
from hermes.config.loader import LoadedConfig, check_config, load_config
from hermes.config.problems import Finding, Problem, Severity
from hermes.config.unused_settings import UNUSED, unused_settings
from hermes.config.yaml_values import as_mapping
from hermes.kit.text import similar_names
from hermes.models.providers import CUSTOM, PROVIDERS, find_provider
from hermes.schema.errors import ConfigError

SKINS = ("default", "dark", "light")
PROVIDER: KeyPath = ("model", "provider")
BACKEND: KeyPath = ("terminal", "backend")
_SKIN: KeyPath = ("display", "skin")
_MAX_UNGROUPED = 3
_MAX_NAMED = 10


def check_settings(home: Home, env: Mapping[str, str]) -> list[Problem]:
    """All that is wrong or odd with the file, its values too, in the order of the file."""
    problems = [*check_config(home, env), *lint_values(home, env)]
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def group_unused(problems: Sequence[Problem]) -> list[Problem]:
    """Many settings that nothing uses as one: a file from elsewhere is full of them."""
    unused = [one for one in problems if one.message == UNUSED]
    if len(unused) <= _MAX_UNGROUPED:
        return list(problems)
    sections: dict[str, list[Problem]] = {}
    for one in unused:
        sections.setdefault(str(one.path[0]), []).append(one)
    names = [
        some[0].key if len(some) == 1 else f"{len(some)} of {section}"
        for section, some in sections.items()
    ]
    named = ", ".join([*names[:_MAX_NAMED], *["…"] * (len(names) > _MAX_NAMED)])
    first = unused[0]
    together = Problem(
        severity=first.severity,
        file=first.file,
        message=f"{len(unused)} settings have no effect here: {named}",
        hint="A line for each: hermes config check --verbose",
    )
    return [*(one for one in problems if one.message != UNUSED), together]


def lint_values(home: Home, env: Mapping[str, str]) -> list[Problem]:
    """Only warnings; a file that cannot be read has none."""
    try:
        loaded = load_config(home, env)
    except ConfigError:
        return []
    findings = [*_provider(loaded), *_skin(loaded), *_sandbox(loaded), *unused_settings(loaded.raw)]
    return _with_positions(findings, home) if findings else []


def _provider(loaded: LoadedConfig) -> Iterator[Finding]:
    name = _text_setting(loaded, PROVIDER)
    own = [one.name for one in model_settings(loaded.config).custom_providers]
    meant = name.lower().removeprefix("custom:")
    if name.lower() in {"", "auto"} or meant in map(str.lower, own) or find_provider(name):
        return
    known = [*own, *(one.name for one in (*PROVIDERS, CUSTOM))]
    yield _warning(PROVIDER, f"there is no provider {name!r}", name, known)


def _skin(loaded: LoadedConfig) -> Iterator[Finding]:
    name = _text_setting(loaded, _SKIN)
    if name and name not in SKINS:
        yield _warning(_SKIN, f"there is no skin {name!r}", name, SKINS)


def _sandbox(loaded: LoadedConfig) -> Iterator[Finding]:
    name = _text_setting(loaded, BACKEND)
    if name and unsupported_reason(name):
        yield _warning(BACKEND, f"there is no sandbox {name!r}", name, BACKENDS)


def _warning(path: KeyPath, what: str, name: str, known: list[str] | tuple[str, ...]) -> Finding:
    setting = f"hermes config set {'.'.join(map(str, path))}"
    hint = f"There are {', '.join(known)}; to change it: {setting} NAME"
    for near in similar_names(name, known):
        hint = f"If {near} is meant: {setting} {near}"
    return Finding(severity=Severity.WARNING, path=path, message=what, hint=hint)


def _text_setting(loaded: LoadedConfig, path: KeyPath) -> str:
    """What the file says there; nothing where it says no text."""
    section = as_mapping(loaded.raw.get(str(path[0]))) or {}
    value = section.get(path[1])
    return value.strip() if isinstance(value, str) else ""


def _with_positions(findings: list[Finding], home: Home) -> list[Problem]:
    from hermes.config.yaml_parser import key_positions, nearest_position

    where = key_positions(read_text(home.config))
    return [
        Problem(
            severity=one.severity,
            file=home.config,
            path=one.path,
            line=nearest_position(where, one.path)[0],
            column=nearest_position(where, one.path)[1],
            message=one.message,
            hint=one.hint,
        )
        for one in findings
    ]
