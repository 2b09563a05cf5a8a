"""Settings that are kept for whoever moves here with a file, though nothing uses them yet.

Their names stand in `idle.txt`, a line each; `*` stands for a name that somebody chose.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from hermes.config.differing import differing
from hermes.config.paths import KeyPath
from hermes.config.problems import Finding, Severity
from hermes.config.shapes import as_mapping
from hermes.config.unknown import how_to_drop

ANY = "*"
UNUSED = "nothing in this version uses it"


def idle_names() -> frozenset[str]:
    return frozenset(Path(__file__).with_name("idle.txt").read_text(encoding="utf-8").split())


def idle_settings(raw: Mapping[str, object]) -> list[Finding]:
    """A warning for each that differs from its default, and yet changes nothing."""
    names = idle_names()
    paths = _idle(differing(raw), (), (), names)
    return [
        Finding(
            severity=Severity.WARNING,
            path=path,
            message=UNUSED,
            hint=how_to_drop(path),
        )
        for path in paths
    ]


def _idle(
    value: object, path: KeyPath, name: tuple[str, ...], names: Collection[str]
) -> Iterator[KeyPath]:
    if ".".join(name) in names:
        yield path
        return
    chosen = any(one.startswith(".".join((*name, ANY))) for one in names)
    for key, inside in (as_mapping(value) or {}).items():
        word = ANY if chosen else str(key)
        yield from _idle(inside, (*path, str(key)), (*name, word), names)
