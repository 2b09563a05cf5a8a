"""Warn about settings that are accepted for compatibility but have no effect.

`idle.txt` lists their names, one per line; `*` matches any key.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from hermes.config.changed_settings import changed_settings
from hermes.config.key_paths import KeyPath
from hermes.config.problems import Finding, Severity
from hermes.config.unknown_keys import removal_hint
from hermes.config.yaml_values import as_mapping

WILDCARD = "*"
UNUSED = "not used in this version"


def unused_names() -> frozenset[str]:
    return frozenset(Path(__file__).with_name("idle.txt").read_text(encoding="utf-8").split())


def unused_settings(raw: Mapping[str, object]) -> list[Finding]:
    """A warning for each unused setting that differs from its default."""
    names = unused_names()
    paths = _unused_paths(changed_settings(raw), (), (), names)
    return [
        Finding(
            severity=Severity.WARNING,
            path=path,
            message=UNUSED,
            hint=removal_hint(path),
        )
        for path in paths
    ]


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
