"""Warn about unknown settings and words; find settings that differ from the defaults."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.problems import Finding, Severity
from hermes.config.schema import Config
from hermes.config.sections import AllowsUnknownKeys
from hermes.config.sections.models import Model
from hermes.config.values import KeyPath, as_list, as_mapping, format_path

NO_SUCH_SETTING = "unknown setting"
UNUSED = "not used in this version"
WILDCARD = "*"

MAX_SUGGESTIONS = 20
"""Suggestions are slow to compute."""

LIKELY_TYPO = 0.85
"""Similarity to a known key that counts as a typo in sections that allow unknown keys."""


def unknown_keys(raw: Mapping[str, object], config: Config) -> list[Finding]:
    """One warning per unknown key; the keys stay in the file and in `LoadedConfig.raw`."""
    findings: list[Finding] = []
    for number, (path, siblings) in enumerate(_unknown(raw, config, ())):
        suggestion = suggested_setting(path, siblings) if number < MAX_SUGGESTIONS else ""
        did_you_mean = f"; did you mean {suggestion}?" if suggestion else ""
        findings.append(_warning(path, NO_SUCH_SETTING + did_you_mean))
    return findings


def _warning(path: KeyPath, message: str) -> Finding:
    """A warning about a setting without effect, and how to remove it."""
    from shlex import quote  # noqa: PLC0415 - only needed for mistakes

    from hermes.config.variables import is_variable  # noqa: PLC0415 - only needed for mistakes

    key = format_path(path)
    command = "hermes config edit" if is_variable(key) else f"hermes config unset {quote(key)}"
    hint = f"It has no effect; remove it with: {command}"
    return Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)


def suggested_setting(path: KeyPath, siblings: Iterable[str] = ()) -> str:
    """Known settings with a similar name, or an empty string."""
    nearest = _nearest(str(path[-1]), siblings, 0.7)
    if nearest:
        return format_path((*path[:-1], nearest))
    names = [name for name, _ in _with_values(Config(), ())]
    elsewhere = [name for name in names if name.rpartition(".")[2] == path[-1]]
    if elsewhere and len(elsewhere) <= 3:
        return " or ".join(elsewhere)
    return _nearest(format_path(path), names, 0.75)


def _unknown(
    raw: object, value: object, path: KeyPath
) -> Iterator[tuple[KeyPath, tuple[str, ...]]]:
    table = as_mapping(raw)
    if isinstance(value, Struct) and table is not None:
        names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        for key, item in table.items():
            if key in names:
                yield from _unknown(item, getattr(value, names[str(key)]), (*path, str(key)))
            elif not isinstance(value, AllowsUnknownKeys) or _nearest(str(key), names, LIKELY_TYPO):
                yield (*path, str(key)), value.__struct_encode_fields__
        return
    inside = as_mapping(value)
    if inside is not None and table is not None:
        for key, item in table.items():
            yield from _unknown(item, inside.get(key), (*path, str(key)))
        return
    entries, items = as_list(raw), as_list(value)
    if entries is not None and items is not None and len(entries) == len(items):
        for index, (entry, item) in enumerate(zip(entries, items, strict=True)):
            yield from _unknown(entry, item, (*path, index))


def _nearest(name: str, names: Iterable[str], cutoff: float) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for mistakes

    return next(iter(get_close_matches(name, list(names), n=1, cutoff=cutoff)), "")


def setting_names() -> Iterator[str]:
    """The full names of all settings that are not sections."""
    return (name for name, value in _with_values(Config(), ()) if not isinstance(value, Struct))


def _with_values(value: Struct, path: KeyPath) -> Iterator[tuple[str, object]]:
    for name, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        inside = getattr(value, name)
        yield format_path((*path, encoded)), inside
        if isinstance(inside, Struct):
            yield from _with_values(inside, (*path, encoded))


def unused_names() -> frozenset[str]:
    """Settings accepted for compatibility but without effect; `*` stands for any key."""
    return frozenset(Path(__file__).with_name("unused_settings.txt").read_text("utf-8").split())


def unused_settings(raw: Mapping[str, object]) -> list[Finding]:
    """A warning for each unused setting that differs from its default."""
    paths = _unused_paths(changed_settings(raw), (), (), unused_names())
    return [_warning(path, UNUSED) for path in paths]


def _unused_paths(
    value: object, path: KeyPath, name: tuple[str, ...], names: Collection[str]
) -> Iterator[KeyPath]:
    if ".".join(name) in names:
        yield path
        return
    has_wildcard = any(one.startswith(".".join((*name, WILDCARD))) for one in names)
    for key, section in (as_mapping(value) or {}).items():
        word = WILDCARD if has_wildcard else str(key)
        yield from _unused_paths(section, (*path, str(key)), (*name, word), names)


def changed_settings(settings: object) -> Mapping[object, object]:
    """The settings that differ from the defaults; unknown keys always do."""
    table = as_mapping(settings) or {}
    # The model may be a bare name instead of a section.
    default = Config() if as_mapping(table.get("model")) is None else Config(model=Model())
    return _without_defaults(table, as_mapping(msgspec.to_builtins(default)) or {})


def _without_defaults(
    settings: Mapping[object, object], defaults: Mapping[object, object]
) -> dict[object, object]:
    found: dict[object, object] = {}
    for key, value in settings.items():
        section, default = as_mapping(value), as_mapping(defaults.get(key))
        if section is not None and default is not None:
            if changed := _without_defaults(section, default):
                found[key] = changed
        elif key not in defaults or value != defaults[key]:
            found[key] = value
    return found


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""All reasoning efforts, from lowest to highest."""
LEVELS = ("debug", "info", "warning", "warn", "error", "critical", "fatal")
PROGRESS = ("all", "new", "verbose", "on", "off", "none")
BOTS = ("", "none", "mentions", "all")
"""Which other bots may talk to the agent, on platforms with bots."""
FOOTER_FIELDS = ("model", "context_pct", "cwd")
TRUE_WORDS = frozenset({"true", "yes", "on", "y", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "n", "0", ""})

CHOICES: Mapping[str, tuple[str, ...]] = {
    "agent.image_input_mode": ("auto", "native", "text"),
    "agent.reasoning_effort": ("", *EFFORTS),
    "agent.reasoning_overrides.*": ("", *EFFORTS),
    "agent.service_tier": (
        *("", "auto", "default", "flex", "priority", "scale"),
        *("fast", "normal", "on", "off", "none"),
    ),
    "approvals.cron_mode": ("deny", "approve", "allow"),
    "auxiliary.*.reasoning_effort": ("", *EFFORTS),
    "context.engine": ("compressor",),
    "delegation.reasoning_effort": ("", *EFFORTS),
    "dashboard.theme": ("", "auto", "default", "light", "dark"),
    "discord.allow_bots": BOTS,
    "display.final_response_markdown": ("strip", "raw", "render"),
    "display.language": ("en",),
    "display.memory_notifications": ("on", "off", "verbose"),
    "display.platforms.*.tool_progress": PROGRESS,
    "display.resume_display": ("full", "minimal"),
    "display.runtime_footer.fields.*": FOOTER_FIELDS,
    "display.tool_progress": PROGRESS,
    "logging.level": LEVELS,
    "memory.provider": ("",),
    "mattermost.allow_bots": BOTS,
    "platforms.*.channel_overrides.*.tool_progress": PROGRESS,
    "platforms.*.accounts.*.extra.allow_bots": BOTS,
    "platforms.*.extra.allow_bots": BOTS,
    "quick_commands.*.type": ("exec", "alias"),
    "slack.allow_bots": BOTS,
    "stt.provider": ("local", "openai", "groq", "mistral", "deepinfra", "elevenlabs"),
    "telegram.allow_bots": BOTS,
    "terminal.home_mode": ("auto", "real", "profile"),
    "unauthorized_dm_behavior": ("pair", "ignore"),
}
"""The known words of each setting; `*` stands for any key or list item."""

SWITCHES: Mapping[str, tuple[str, ...]] = {
    "checkpoints.enabled": ("auto",),
    "mattermost.reactions": (),
    "slack.reactions": (),
    "telegram.reactions": (),
    "terminal.docker_network": (),
    "tools.tool_search.enabled": ("auto",),
    "whatsapp.reactions": (),
}
"""Settings that are on, off or one of these words."""

_DROPPED = object()


def settle_choices(raw: dict[str, object], findings: list[Finding]) -> dict[str, object]:
    """Normalize known words; drop unknown ones with a warning."""
    settled: object = raw
    for kind, settings in ((_Choice, CHOICES), (_Switch, SWITCHES)):
        for name, words in settings.items():
            steps = tuple(name.split("."))
            if steps[0] in raw:
                settled = _replaced(settled, steps, (), kind(words, findings))
    return {str(key): value for key, value in (as_mapping(settled) or {}).items()}


class _Choice(Struct, frozen=True):
    """Replaces the value of one setting by a known word."""

    words: tuple[str, ...]
    findings: list[Finding]

    def __call__(self, path: KeyPath, value: object) -> object:
        if not isinstance(value, str | bool):
            return value
        text = _text(value)
        if text in self.words:
            return text
        return self._unknown(path, value, self.words)

    def _unknown(self, path: KeyPath, value: str | bool, words: tuple[str, ...]) -> object:
        known = ", ".join(word for word in words if word)
        hint = f"Choose one of: {known}." if known else "Nothing else can be chosen yet."
        message = f"unknown value {value!r}; it is ignored"
        key = format_path(path)
        hint += f" To remove it: hermes config unset {key}"
        self.findings.append(
            Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)
        )
        return _DROPPED


class _Switch(_Choice, frozen=True):
    """Replaces the value of one setting by true, false or a known word."""

    def __call__(self, path: KeyPath, value: object) -> object:
        if not isinstance(value, str):
            return value
        text = value.strip().lower()
        if text in TRUE_WORDS or text in FALSE_WORDS:
            return text in TRUE_WORDS
        return (
            text if text in self.words else self._unknown(path, value, ("on", "off", *self.words))
        )


def _text(value: str | bool) -> str:
    """YAML reads `on` and `off` as booleans."""
    if isinstance(value, bool):
        return "on" if value else "off"
    text = value.strip().lower()
    return {"true": "on", "false": "off"}.get(text, text)


def _replaced(
    value: object,
    steps: tuple[str, ...],
    path: KeyPath,
    replace: Callable[[KeyPath, object], object],
) -> object:
    """Copy the mappings that contain the setting, with its value replaced or left out."""
    if not steps:
        return replace(path, value)
    items, entries = as_mapping(value), as_list(value)
    if items is not None:
        keys = [*items] if steps[0] == "*" else [steps[0]] if steps[0] in items else []
        new = {key: _replaced(items[key], steps[1:], (*path, str(key)), replace) for key in keys}
        if all(new[key] is items[key] for key in keys):
            return value
        merged = {**items, **new}
        return {key: one for key, one in merged.items() if one is not _DROPPED}
    if entries is not None and steps[0] == "*":
        listed = [
            _replaced(entry, steps[1:], (*path, index), replace)
            for index, entry in enumerate(entries)
        ]
        return [one for one in listed if one is not _DROPPED]
    return value
