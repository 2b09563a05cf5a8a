"""Warn about unknown keys, with a suggestion."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from hermes.config.key_paths import KeyPath, format_path
from hermes.config.problems import Finding, Severity
from hermes.config.schema import Config
from hermes.config.sections.types import AllowsUnknownKeys
from hermes.config.yaml_values import as_list, as_mapping

NO_SUCH_SETTING = "unknown setting"

MAX_SUGGESTIONS = 20
"""Limit of suggestions, which are slow to compute."""

LIKELY_TYPO = 0.85
"""Similarity to a known key that counts as a typo in sections that allow unknown keys."""


def unknown_keys(raw: Mapping[str, object], config: Config) -> list[Finding]:
    """One warning per unknown key; the keys stay in the file and in `LoadedConfig.raw`."""
    return [
        Finding(
            severity=Severity.WARNING,
            path=path,
            message=_unknown_message(path, siblings)
            if number < MAX_SUGGESTIONS
            else NO_SUCH_SETTING,
            hint=removal_hint(path),
        )
        for number, (path, siblings) in enumerate(_unknown(raw, config, ()))
    ]


def removal_hint(path: KeyPath) -> str:
    """How to remove a setting without effect."""
    from shlex import quote  # noqa: PLC0415 - only needed for mistakes

    from hermes.config.variables import is_variable  # noqa: PLC0415 - only needed for mistakes

    key = format_path(path)
    command = "hermes config edit" if is_variable(key) else f"hermes config unset {quote(key)}"
    return f"It has no effect; remove it with: {command}"


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
    given = as_mapping(raw)
    if isinstance(value, Struct) and given is not None:
        names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        for key, item in given.items():
            if key in names:
                yield from _unknown(item, getattr(value, names[str(key)]), (*path, str(key)))
            elif not isinstance(value, AllowsUnknownKeys) or _nearest(str(key), names, LIKELY_TYPO):
                yield (*path, str(key)), value.__struct_encode_fields__
        return
    inside = as_mapping(value)
    if inside is not None and given is not None:
        for key, item in given.items():
            yield from _unknown(item, inside.get(key), (*path, str(key)))
        return
    entries, items = as_list(raw), as_list(value)
    if entries is not None and items is not None and len(entries) == len(items):
        for index, (entry, item) in enumerate(zip(entries, items, strict=True)):
            yield from _unknown(entry, item, (*path, index))


def _nearest(name: str, names: Iterable[str], cutoff: float) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for mistakes

    return next(iter(get_close_matches(name, list(names), n=1, cutoff=cutoff)), "")


def _unknown_message(path: KeyPath, siblings: Iterable[str]) -> str:
    suggestion = suggested_setting(path, siblings)
    return f"unknown setting; did you mean {suggestion}?" if suggestion else NO_SUCH_SETTING


def setting_names() -> Iterator[str]:
    """The full names of all settings that are not sections."""
    return (name for name, value in _with_values(Config(), ()) if not isinstance(value, Struct))


def _with_values(value: Struct, path: KeyPath) -> Iterator[tuple[str, object]]:
    for name, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        inside = getattr(value, name)
        yield format_path((*path, encoded)), inside
        if isinstance(inside, Struct):
            yield from _with_values(inside, (*path, encoded))
