"""Settings that are kept for whoever moves here with a file, though nothing uses them yet.

Their names stand in `idle.txt`, a line each; `*` stands for a name that somebody chose.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from hermes.config.changed_settings import changed_settings
from hermes.config.key_paths import KeyPath
from hermes.config.problems import Finding, Severity
from hermes.config.unknown_keys import removal_hint
from hermes.config.yaml_values import as_mapping

WILDCARD = "*"
UNUSED = "nothing in this version uses it"


def unused_names() -> frozenset[str]:
    return frozenset(Path(__file__).with_name("idle.txt").read_text(encoding="utf-8").split())


def unused_settings(raw: Mapping[str, object]) -> list[Finding]:
    """A warning for each that differs from its default, and yet changes nothing."""
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
    chosen = any(one.startswith(".".join((*name, WILDCARD))) for one in names)
    for key, inside in (as_mapping(value) or {}).items():
        word = WILDCARD if chosen else str(key)
        yield from _unused_paths(inside, (*path, str(key)), (*name, word), names)
