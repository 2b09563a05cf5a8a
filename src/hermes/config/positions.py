"""Where in the text of a config file a setting stands; only asked when there is a problem."""

from collections.abc import Iterator
from typing import TypeAlias

import yaml

from hermes.config.paths import KeyPath
from hermes.config.yaml_text import compose

Place: TypeAlias = tuple[int, int]


def places(text: str) -> dict[KeyPath, Place]:
    """Line and column of every key and list entry, counted from one."""
    root = compose(text)
    return {path: place for path, place, _ in _walk(root, ())} if root else {}


def repeated_keys(text: str) -> list[tuple[KeyPath, Place]]:
    """Keys that stand twice in one mapping, where YAML silently drops the first."""
    root = compose(text)
    return [(path, place) for path, place, again in _walk(root, ()) if again] if root else []


def nearest(found: dict[KeyPath, Place], path: KeyPath) -> Place:
    """The place of the setting, or of the nearest section around it that is in the file."""
    for length in range(len(path), 0, -1):
        if path[:length] in found:
            return found[path[:length]]
    return (0, 0)


def _walk(node: yaml.Node, path: KeyPath) -> Iterator[tuple[KeyPath, Place, bool]]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            mark = key.start_mark
            yield (*path, name), (mark.line + 1, mark.column + 1), name in seen and name != "<<"
            seen.add(name)
            yield from _walk(value, (*path, name))
    elif isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            mark = entry.start_mark
            yield (*path, index), (mark.line + 1, mark.column + 1), False
            yield from _walk(entry, (*path, index))
