"""Change one setting in YAML text: in place, or by rewriting the document with its comments.

Each way raises `UnsupportedEdit` if it is not possible; the caller verifies the result.
"""

import re
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Protocol, cast

import yaml

from hermes.config.values import KeyPath, UnsupportedEdit, remove_value, set_value
from hermes.config.yaml_parser import compose_nodes


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text on one line, with escapes."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = '"' if re.search(r"[\r\n\x85\u2028\u2029]", data) else None
        return yaml.ScalarNode("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def render_inline(value: object) -> str:
    """The value on one line, safe inside brackets."""
    listed = yaml.dump(
        [value],
        Dumper=_Dumper,
        default_flow_style=True,
        allow_unicode=True,
        width=1 << 30,
        sort_keys=False,
    )
    return listed.strip()[1:-1]


def set_in_text(text: str, path: KeyPath, value: object) -> str:
    """Return the text with the setting at `path` set; missing sections are created."""
    if text.startswith("\ufeff"):
        return "\ufeff" + set_in_text(text[1:], path, value)
    newline = "\r\n" if "\r\n" in text else "\n"
    root = compose_nodes(text)
    if root is None:
        return _at_line_end(text, newline) + _lines(path, value, 0, newline)
    trail = _follow(root, path)
    if len(trail) > len(path):
        return _replace(text, trail, render_inline(value))
    return _add(text, trail, path[len(trail) - 1 :], value, newline)


def remove_from_text(text: str, path: KeyPath) -> str:
    """Return the text without the setting at `path` and sections that become empty."""
    if text.startswith("\ufeff"):
        return "\ufeff" + remove_from_text(text[1:], path)
    root = compose_nodes(text)
    trail = _follow(root, path) if root else []
    if len(trail) <= len(path):
        raise UnsupportedEdit
    while len(trail) > 2 and len(_children(trail[-2].value)) == 1:
        trail.pop()
    return _without_lines(text, trail)


class _Step:
    """A node on the path to the setting, with its key."""

    def __init__(self, value: yaml.Node, key: yaml.Node | None) -> None:
        self.value = value
        self.key = key

    @property
    def is_alias(self) -> bool:
        return self.key is not None and _start(self.value) < _end(self.key)


def _follow(root: yaml.Node, path: KeyPath) -> list[_Step]:
    """The nodes along the path as far as they exist, the root first."""
    trail = [_Step(root, None)]
    for name in path:
        node = trail[-1].value
        if isinstance(node, yaml.MappingNode):
            found = [pair for pair in _pairs(node) if str(pair[0].value) == str(name)]
        elif isinstance(node, yaml.SequenceNode) and isinstance(name, int):
            found = [(None, entry) for entry in _entries(node)[name : name + 1]]
        else:
            found = []
        if not found:
            break
        key, value = found[-1]
        trail.append(_Step(value, key))
        if trail[-1].is_alias:
            raise UnsupportedEdit
    return trail


def _replace(text: str, trail: list[_Step], new: str) -> str:
    step = trail[-1]
    if step.key is not None and _is_empty(step.value):
        at = _after_colon(text, step.key)
        return f"{text[:at]} {new}{text[at:]}"
    start, end = _start(step.value), _value_end(text, step)
    if step.key is not None and _is_block(step.value):
        start = _after_colon(text, step.key)
        new = f" {new}"
    return text[:start] + new + text[end:]


def _add(text: str, trail: list[_Step], rest: KeyPath, value: object, newline: str) -> str:
    step = trail[-1]
    node = step.value
    if isinstance(node, yaml.MappingNode | yaml.SequenceNode) and node.flow_style:
        return _add_in_brackets(text, node, rest, value)
    if isinstance(node, yaml.MappingNode):
        lines = _lines(rest, value, _pairs(node)[0][0].start_mark.column, newline)
    elif isinstance(node, yaml.SequenceNode):
        dash = " " * node.start_mark.column + "- "
        lines = dash + render_inline(_nested(rest[1:], value)) + newline
    elif step.key is not None and _is_empty(node):
        lines = _lines(rest, value, step.key.start_mark.column + 2, newline)
    else:
        raise UnsupportedEdit
    at = _next_line(text, _value_end(text, step))
    return _at_line_end(text[:at], newline) + lines + text[at:]


def _add_in_brackets(
    text: str, node: yaml.MappingNode | yaml.SequenceNode, rest: KeyPath, value: object
) -> str:
    entry = render_inline(_nested(rest[1:], value))
    if isinstance(node, yaml.MappingNode):
        entry = f"{render_inline(rest[0])}: {entry}"
    children = _children(node)
    if not children:
        at = _start(node) + 1
        return text[:at] + entry + text[at:]
    at = _value_end(text, children[-1])
    return f"{text[:at]}, {entry}{text[at:]}"


def _without_lines(text: str, trail: list[_Step]) -> str:
    step, parent = trail[-1], trail[-2].value
    if not _is_block(parent):
        return _without_flow_entry(text, step, _children(parent))
    start = _start(step.key or step.value)
    line = text.rfind("\n", 0, start) + 1
    lead = "" if step.key is not None else "-"
    if text[line:start].strip() != lead:
        raise UnsupportedEdit
    return text[:line] + text[_next_line(text, _value_end(text, step)) :]


def _without_flow_entry(text: str, step: _Step, siblings: list[_Step]) -> str:
    """Remove up to the next entry, or for the last one from the end of the previous."""
    starts = [_start(sibling.key or sibling.value) for sibling in siblings]
    index = starts.index(_start(step.key or step.value))
    if index + 1 < len(siblings):
        start, end = starts[index], starts[index + 1]
    elif index > 0:
        start, end = _value_end(text, siblings[index - 1]), _value_end(text, step)
    else:
        raise UnsupportedEdit
    if "#" in text[start:end]:
        start, end = starts[index], _value_end(text, step)
        comma = re.compile(r"[ \t]*,[ \t]*").match(text, end)
        end = comma.end() if comma else end
    return text[:start] + text[end:]


def _lines(path: KeyPath, value: object, column: int, newline: str) -> str:
    """The setting in block style; lists are written in brackets."""
    keys = [name for name in path if isinstance(name, str)]
    if list(path[: len(keys)]) != keys:
        keys = keys[: next(i for i, name in enumerate(path) if isinstance(name, int))]
    lines = [
        " " * (column + 2 * depth) + render_inline(name) + ":" for depth, name in enumerate(keys)
    ]
    entry = render_inline(_nested(path[len(keys) :], value))
    return newline.join(lines) + f" {entry}{newline}"


def _nested(path: KeyPath, value: object) -> object:
    """The value wrapped in the missing sections; a new list must begin at index 0."""
    for name in reversed(path):
        if isinstance(name, int) and name > 0:
            raise UnsupportedEdit
        value = [value] if isinstance(name, int) else {name: value}
    return value


def _value_end(text: str, step: _Step) -> int:
    """The end of the value without trailing comments and blank lines."""
    node = step.value
    if step.is_alias:
        raise UnsupportedEdit
    if _is_empty(node) and step.key is not None:
        return _after_colon(text, step.key)
    children = _children(node)
    if _is_block(node) and children:
        return _value_end(text, children[-1])
    return _start(node) + len(text[_start(node) : _end(node)].rstrip(" \t\r\n"))


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and _start(node) == _end(node)


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style


def _children(node: yaml.Node) -> list[_Step]:
    if isinstance(node, yaml.MappingNode):
        return [_Step(value, key) for key, value in _pairs(node)]
    if isinstance(node, yaml.SequenceNode):
        return [_Step(entry, None) for entry in _entries(node)]
    return []


def _pairs(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value)


def _entries(node: yaml.SequenceNode) -> Sequence[yaml.Node]:
    return cast("list[yaml.Node]", node.value)


def _start(node: yaml.Node) -> int:
    return node.start_mark.index


def _end(node: yaml.Node) -> int:
    return node.end_mark.index


def _after_colon(text: str, key: yaml.Node) -> int:
    colon = re.compile(r"\s*:").match(text, _end(key))
    if colon is None:
        raise UnsupportedEdit
    return colon.end()


def _next_line(text: str, at: int) -> int:
    newline = text.find("\n", at)
    return newline + 1 if newline >= 0 else len(text)


def _at_line_end(text: str, newline: str) -> str:
    return text if not text or text.endswith("\n") else text + newline


_SECTION = r"[^\s#-][^#\n]*:[ \t]*(?:[&!]\S++[ \t]*+)*+(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*"
_NESTED_KEY = re.compile(rf"(?m)^{_SECTION}( +)[^\s#-]")
_NESTED_DASH = re.compile(rf"(?m)^( *){_SECTION}( *)- ")


class _RoundTripYaml(Protocol):
    """The part of ruamel.yaml that is used here; it ships no types."""

    preserve_quotes: bool
    width: int

    def load(self, stream: str) -> object: ...
    def dump(self, data: object, stream: StringIO) -> None: ...
    def indent(self, mapping: int, sequence: int, offset: int) -> None: ...


def set_by_round_trip(text: str, path: KeyPath, value: object) -> str:
    """Return the text with the setting at `path` set."""
    return _round_trip(text, lambda document: set_value(document, path, value))


def remove_by_round_trip(text: str, path: KeyPath) -> str:
    """Return the text without the setting at `path`."""
    try:
        return _round_trip(text, lambda document: remove_value(document, path))
    except KeyError as error:
        # ruamel cannot delete from a mapping that a merge key (`<<: *name`) refers to.
        raise UnsupportedEdit from error


def _round_trip(text: str, change: Callable[[object], object]) -> str:
    """Keep the indentation of the text, and never fold lines."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - slow to import, rarely needed
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as above

    round_trip = cast("_RoundTripYaml", YAML())
    round_trip.preserve_quotes = True
    round_trip.width = 1 << 30
    key, dash = _NESTED_KEY.search(text), _NESTED_DASH.search(text)
    offset = len(dash[2]) - len(dash[1]) if dash else 0
    round_trip.indent(mapping=len(key[1]) if key else 2, sequence=offset + 2, offset=offset)
    try:
        document = round_trip.load(text)
    except YAMLError as error:
        raise UnsupportedEdit from error
    stream = StringIO()
    round_trip.dump(change(document), stream)
    return stream.getvalue()
