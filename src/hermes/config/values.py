"""Plain settings: their types, key paths such as `list[0].name`, and values at a path."""

import re
from typing import TypeAlias, cast

from hermes.kit.errors import UsageError


def as_mapping(value: object) -> dict[object, object] | None:
    return cast("dict[object, object]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list | tuple) else None


def list_entries(value: object) -> list[object]:
    """The entries of a list as people write it: text with commas, or a single value."""
    if isinstance(value, str):
        return [*value.split(",")]
    entries = as_list(value)
    return [value] if entries is None else entries


def join_lists(first: object, second: object) -> list[object]:
    return [*list_entries(first), *list_entries(second)]


def describe_value(value: object) -> str:
    """The value as an error message shows it; long text is cut, since it may be a secret."""
    if isinstance(value, str):
        shown = value if len(value) <= 24 else value[:8] + "…"
        return f"the text {shown!r}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    names: dict[type, str] = {type(None): "nothing", dict: "a mapping", list: "a list"}
    return names.get(type(value), f"a {type(value).__name__}")


KeyPath: TypeAlias = tuple[str | int, ...]

_STEP = re.compile(
    r"""
      \[ (?P<index>\d+) \]
    | (?P<dot>\.?) (?: "(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<plain>[^."\[\]\s][^.\[\]]*) )
    """,
    re.VERBOSE,
)
_PLAIN = re.compile(r"[^.\"\[\]\s\d][^.\[\]]*")


def parse_path(text: str) -> KeyPath:
    """Split at dots; `[0]` or `.0` is a list index, quotes protect keys that contain dots."""
    path: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None or (step["index"] is None and bool(step["dot"]) != bool(path)):
            hint = 'Separate keys with dots: agent.max_turns, providers."a.b".model, list[0]'
            raise UsageError(f"{text!r} is not the name of a setting.", hint=hint)
        path.append(_key(step))
        at = step.end()
    if not path or isinstance(path[0], int):
        hint = "Give a name such as agent.max_turns."
        raise UsageError(f"{text!r} is not the name of a setting.", hint=hint)
    return tuple(path)


def _key(step: re.Match[str]) -> str | int:
    if step["index"] is not None:
        return int(step["index"])
    if step["quoted"] is not None:
        return re.sub(r"\\(.)", r"\1", step["quoted"])
    return int(step["plain"]) if step["dot"] and step["plain"].isdecimal() else step["plain"]


def format_path(path: KeyPath) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        quoted = '"' + step.replace("\\", "\\\\").replace('"', '\\"') + '"'
        name = step if _PLAIN.fullmatch(step) else quoted
        text += f".{name}" if text else name
    return text


class UnsupportedEdit(Exception):
    """This kind of edit would damage the text."""


def set_value(document: object, path: KeyPath, value: object) -> object:
    """Set the value in the document; missing sections are created."""
    if document is None:
        document = {}
    parent = document
    for depth, name in enumerate(path[:-1]):
        inside = _get(parent, name, path[:depth])
        if inside is None:
            inside = cast("object", [] if path[depth + 1] == 0 else {})
            _put(parent, name, inside, path[:depth])
        parent = inside
    _put(parent, path[-1], value, path[:-1])
    return document


def remove_value(document: object, path: KeyPath) -> object:
    """Remove the setting from the document, and sections that become empty."""
    trail = [document]
    for depth, name in enumerate(path):
        trail.append(_get(trail[-1], name, path[:depth]))
    for depth in range(len(path) - 1, -1, -1):
        _drop(trail[depth], path[depth])
        if trail[depth]:
            break
    return document


def find_value(document: object, path: KeyPath) -> tuple[bool, object]:
    """Whether the setting exists, and its value."""
    value = document
    for name in path:
        if (mapping := as_mapping(value)) is not None:
            # A number may be a key.
            key = name if name in mapping else str(name)
            if key not in mapping:
                return False, None
            value = mapping[key]
        else:
            entries = as_list(value)
            if entries is None or not isinstance(name, int) or name >= len(entries):
                return False, None
            value = entries[name]
    return True, value


def _get(parent: object, name: str | int, at: KeyPath) -> object:
    _check(parent, name, at)
    found, value = find_value(parent, (name,))
    return value if found else None


def _put(parent: object, name: str | int, value: object, at: KeyPath) -> None:
    _check(parent, name, at)
    if (mapping := as_mapping(parent)) is not None:
        known = name in mapping or isinstance(name, str)
        mapping[name if known else str(name)] = value
        return
    entries, index = cast("list[object]", parent), int(name)
    if index == len(entries):
        entries.append(value)
    else:
        entries[index] = value


def _drop(parent: object, name: str | int) -> None:
    if (mapping := as_mapping(parent)) is not None:
        del mapping[name if name in mapping else str(name)]
    else:
        del cast("list[object]", parent)[int(name)]


def _check(parent: object, name: str | int, at: KeyPath) -> None:
    where = format_path(at)
    if isinstance(parent, dict):
        return
    if not isinstance(parent, list):
        raise UsageError(
            f"{where} is {describe_value(parent)}, so {name!r} cannot be set in it.",
            hint=f"Unset it first with: hermes config unset {where}",
        )
    length = len(cast("list[object]", parent))
    if not isinstance(name, int) or name > length:
        raise UsageError(
            f"{where} has {length} entries; {name!r} is not a valid index.",
            hint=f"Use {where}[{length}] to add an entry at the end.",
        )
