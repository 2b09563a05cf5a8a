"""Parse YAML with limits on depth and size, and find the positions of keys."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import yaml

from hermes.config.problems import Problem, Severity, as_error
from hermes.config.values import KeyPath
from hermes.kit.errors import ConfigError

Position: TypeAlias = tuple[int, int]
"""Line and column, starting at one; zero if unknown."""

MAX_DEPTH = 50
MAX_VALUES = 100_000
"""Counted with aliases expanded; a long text counts as several."""
_CHARACTERS_PER_VALUE = 64


class _Collection:
    """An open list or mapping: its anchor, and the number of values so far."""

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.values = 1


def check_limits(events: Iterable[yaml.Event], file: Path) -> None:
    """Raise `ConfigError` above the limits. Reads a stream of events, so nothing large is built."""
    named: dict[str, int] = {}
    open_collections = [_Collection(None)]
    for event in events:
        values = 0
        if isinstance(event, yaml.AliasEvent):
            values = _alias_values(event, named, open_collections, file)
        elif isinstance(event, yaml.ScalarEvent):
            values = 1 + len(event.value) // _CHARACTERS_PER_VALUE
            named[event.anchor or ""] = values
        elif isinstance(event, yaml.CollectionStartEvent):
            open_collections.append(_Collection(event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = open_collections.pop()
            values = named[closed.anchor or ""] = closed.values
        open_collections[-1].values += values
        if len(open_collections) > MAX_DEPTH + 1:
            raise _limit_error(event, file, f"nested more than {MAX_DEPTH} levels deep")
        if open_collections[-1].values > MAX_VALUES:
            what = f"more than {MAX_VALUES:,} values with aliases expanded"
            raise _limit_error(event, file, what)


def _alias_values(
    alias: yaml.AliasEvent,
    named: dict[str, int],
    open_collections: Sequence[_Collection],
    file: Path,
) -> int:
    """The number of values the alias expands to; the parser reports unknown aliases."""
    if any(collection.anchor == alias.anchor for collection in open_collections):
        what = f"endless nesting: *{alias.anchor} is inside &{alias.anchor}"
        raise _limit_error(alias, file, what)
    return named.get(alias.anchor or "", 1)


def _limit_error(event: yaml.Event, file: Path, what: str) -> ConfigError:
    mark = event.start_mark
    position = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    return _error_at(position, file, what, "Shorten it or reduce the nesting.")


def _error_at(position: Position, file: Path, message: str, hint: str) -> ConfigError:
    line, column = position
    problem = Problem(
        severity=Severity.ERROR, file=file, line=line, column=column, message=message, hint=hint
    )
    return as_error([problem])


if TYPE_CHECKING:
    from yaml import SafeLoader
else:
    try:
        from yaml import CSafeLoader as SafeLoader
    except ImportError:
        from yaml import SafeLoader

_MAX_DIGITS = 100
_INDENT_HINT = "Check the indentation: keys of a section start in the same column."

YAML_HINTS = {
    "mapping values are not allowed": "Quote values that contain ': '; check the indentation.",
    "cannot start any token": "Indent with spaces; quote values that start with @, % or `.",
    "could not find expected ':'": "Write the key and its value as KEY: VALUE.",
    "did not find expected key": _INDENT_HINT,
    "expected <block end>": _INDENT_HINT,
    "alphabetic or numeric character": "Quote values that start with * or &.",
    "found undefined alias": "Quote values that start with *.",
    "could not determine a constructor": "Quote values that start with !.",
}


class _Parser(Protocol):
    """Methods missing in the library's types."""

    def check_event(self) -> bool: ...
    def get_event(self) -> yaml.Event: ...


class Loader(SafeLoader):
    """A safe loader; `suspicious` is set if a mapping may contain duplicate keys."""

    suspicious = False

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) != len(node.value):
            self.suspicious = True
        return mapping

    def construct_whole_number(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > _MAX_DIGITS:
            raise ValueError(f"a number of more than {_MAX_DIGITS} digits")
        return super().construct_yaml_int(node)


Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_whole_number)


def read_yaml(text: str, file: Path) -> tuple[object, bool]:
    """The value, and whether duplicate keys are likely. Raises `ConfigError` with the position."""
    text = text.removeprefix("\ufeff")
    loader = Loader(text)
    try:
        check_limits(_events(text), file)
        return loader.get_single_data(), loader.suspicious
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, file) from error
    except ValueError as error:
        raise ConfigError(
            f"{file}: invalid value: {error}",
            hint="Put dates, times and very long numbers in quotes.",
        ) from error


def _events(text: str) -> Iterator[yaml.Event]:
    parser = cast("_Parser", Loader(text))
    while parser.check_event():
        yield parser.get_event()


def compose_nodes(text: str) -> yaml.Node | None:
    """The text as nodes with positions; only for text that `read_yaml` accepted."""
    return Loader(text.removeprefix("\ufeff")).get_single_node()


def _syntax_error(error: yaml.YAMLError, text: str, file: Path) -> ConfigError:
    line = column = 0
    message = str(error).splitlines()[0]
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        message = error.problem or message
        if error.context and error.context_mark and error.context_mark.line + 1 != line:
            message += f" ({error.context} in line {error.context_mark.line + 1})"
    elif isinstance(error, yaml.reader.ReaderError):
        before, bad = text[: error.position], error.character
        line = before.count("\n") + 1
        column = error.position - before.rfind("\n")
        code = bad if isinstance(bad, int) else ord(bad)
        message = f"the character U+{code:04X} is not allowed"
    hint = next((advice for part, advice in YAML_HINTS.items() if part in message), "")
    return _error_at((line, column), file, f"invalid YAML: {message}", hint)


def key_positions(text: str) -> dict[KeyPath, Position]:
    """Line and column of every key and list entry, starting at one."""
    root = compose_nodes(text)
    return {path: position for path, position, _ in _walk(root, ())} if root else {}


def repeated_keys(text: str) -> list[tuple[KeyPath, Position]]:
    """Duplicate keys, of which YAML silently drops the first."""
    root = compose_nodes(text)
    return [(path, position) for path, position, again in _walk(root, ()) if again] if root else []


def nearest_position(found: dict[KeyPath, Position], path: KeyPath) -> Position:
    """The position of the setting, or of the nearest enclosing section in the file."""
    for length in range(len(path), 0, -1):
        if path[:length] in found:
            return found[path[:length]]
    return (0, 0)


def _walk(node: yaml.Node, path: KeyPath) -> Iterator[tuple[KeyPath, Position, bool]]:
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
