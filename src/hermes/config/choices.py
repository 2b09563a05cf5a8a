"""Settings whose value is one of a few words; an unknown word is reported and not used."""

from collections.abc import Callable, Mapping

from hermes.config.problems import Finding, Severity
from hermes.config.values import KeyPath, as_list, as_mapping, format_path

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""All reasoning efforts, from lowest to highest."""
LEVELS = ("debug", "info", "warning", "warn", "error", "critical", "fatal")
PROGRESS = ("all", "new", "verbose", "on", "off", "none")
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
    "display.final_response_markdown": ("strip", "raw", "render"),
    "display.language": ("en",),
    "display.memory_notifications": ("on", "off", "verbose"),
    "display.platforms.*.tool_progress": PROGRESS,
    "display.resume_display": ("full", "minimal"),
    "display.runtime_footer.fields.*": FOOTER_FIELDS,
    "display.tool_progress": PROGRESS,
    "logging.level": LEVELS,
    "memory.provider": ("",),
    "quick_commands.*.type": ("exec", "alias"),
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
    """Spell the known words as the program does; leave out unknown ones, with a warning."""
    settled: object = raw
    for name, words in CHOICES.items():
        settled = _replaced(settled, tuple(name.split(".")), (), _Choice(name, words, findings))
    for name, words in SWITCHES.items():
        settled = _replaced(settled, tuple(name.split(".")), (), _Switch(name, words, findings))
    return {str(key): value for key, value in (as_mapping(settled) or {}).items()}


class _Choice:
    """Replaces the value of one setting by a known word."""

    def __init__(self, name: str, words: tuple[str, ...], findings: list[Finding]) -> None:
        self._name = name
        self._words = words
        self._findings = findings

    def __call__(self, path: KeyPath, value: object) -> object:
        if not isinstance(value, str | bool):
            return value
        text = _text(value)
        if text in self._words:
            return text
        return self._unknown(path, value, self._words)

    def _unknown(self, path: KeyPath, value: str | bool, words: tuple[str, ...]) -> object:
        known = ", ".join(word for word in words if word)
        hint = f"Choose one of: {known}." if known else "Nothing else can be chosen yet."
        message = f"unknown value {value!r}; it is ignored"
        key = format_path(path)
        hint += f" To remove it: hermes config unset {key}"
        self._findings.append(
            Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)
        )
        return _DROPPED


class _Switch(_Choice):
    """Replaces the value of one setting by true, false or a known word."""

    def __call__(self, path: KeyPath, value: object) -> object:
        if not isinstance(value, str):
            return value
        text = value.strip().lower()
        if text in TRUE_WORDS or text in FALSE_WORDS:
            return text in TRUE_WORDS
        return (
            text if text in self._words else self._unknown(path, value, ("on", "off", *self._words))
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
    """Copy what lies on the way to the setting, with its value replaced or left out."""
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
            _replaced(one, steps[1:], (*path, index), replace) for index, one in enumerate(entries)
        ]
        return [one for one in listed if one is not _DROPPED]
    return value
