"""Refuse YAML that would cost more than it says: nested too deep, or unfolding without end."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import yaml

from hermes.config.key_paths import KeyPath
from hermes.config.problems import Problem, Severity, as_error
from hermes.kit.errors import ConfigError

MAX_DEPTH = 50
MAX_VALUES = 100_000
"""Counted with every alias (*name) written out; a long text counts for several."""
_CHARACTERS_PER_VALUE = 64


class _Collection:
    """A list or mapping that has begun: its anchor, and how many values are in it so far."""

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.values = 1


def check_limits(events: Iterable[yaml.Event], file: Path) -> None:
    """Raises `ConfigError`. The events come one by one, so nothing large is ever built."""
    named: dict[str, int] = {}
    around = [_Collection(None)]
    for event in events:
        values = 0
        if isinstance(event, yaml.AliasEvent):
            values = _alias_values(event, named, around, file)
        elif isinstance(event, yaml.ScalarEvent):
            values = 1 + len(event.value) // _CHARACTERS_PER_VALUE
            _remember_anchor(event.anchor, values, named)
        elif isinstance(event, yaml.CollectionStartEvent):
            around.append(_Collection(event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            done = around.pop()
            values = done.values
            _remember_anchor(done.anchor, values, named)
        around[-1].values += values
        if len(around) > MAX_DEPTH + 1:
            raise _limit_error(event, file, f"this is nested more than {MAX_DEPTH} levels deep")
        if around[-1].values > MAX_VALUES:
            what = f"this has more than {MAX_VALUES:,} values, every *alias written out"
            raise _limit_error(event, file, what)


def _remember_anchor(anchor: str | None, values: int, named: dict[str, int]) -> None:
    if anchor:
        named[anchor] = values


def _alias_values(
    alias: yaml.AliasEvent, named: dict[str, int], around: Sequence[_Collection], file: Path
) -> int:
    """How many values the alias stands for; the parser itself tells of one that is unknown."""
    if any(place.anchor == alias.anchor for place in around):
        what = f"this is nested without end: *{alias.anchor} stands inside of &{alias.anchor}"
        raise _limit_error(alias, file, what)
    return named.get(alias.anchor or "", 1)


def _limit_error(event: yaml.Event, file: Path, what: str) -> ConfigError:
    mark = event.start_mark
    problem = Problem(
        severity=Severity.ERROR,
        file=file,
        line=mark.line + 1 if mark else 0,
        column=mark.column + 1 if mark else 0,
        message=what,
        hint="Write it shorter and flatter.",
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
_INDENT_HINT = "Check the indent: the keys of one section begin in one column."

YAML_HINTS = {
    "mapping values are not allowed": "Put a value that holds ': ' in quotes; check the indent.",
    "cannot start any token": "Indent with spaces, not tabs; quote what begins with @, % or `.",
    "could not find expected ':'": "Write the key and its value as KEY: VALUE.",
    "did not find expected key": _INDENT_HINT,
    "expected <block end>": _INDENT_HINT,
    "alphabetic or numeric character": "A value that begins with * or & must be put in quotes.",
    "found undefined alias": "A value that begins with * must be put in quotes.",
    "could not determine a constructor": "A value that begins with ! must be put in quotes.",
}


class _Parser(Protocol):
    """What the library's types leave out."""

    def check_event(self) -> bool: ...
    def get_event(self) -> yaml.Event: ...


class Loader(SafeLoader):
    """Reads safe YAML only; `suspicious` is set when a mapping may have had a key twice."""

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
    """The value, and whether to look for repeated keys. Raises `ConfigError` with the place."""
    text = text.removeprefix("\ufeff")
    loader = Loader(text)
    try:
        check_limits(_events(text), file)
        return loader.get_single_data(), loader.suspicious
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, file) from error
    except ValueError as error:
        raise ConfigError(
            f"{file}: this YAML has a value that cannot be: {error}",
            hint="Put dates, times and very long numbers in quotes.",
        ) from error


def _events(text: str) -> Iterator[yaml.Event]:
    """What the parser meets, without building anything from it."""
    parser = cast("_Parser", Loader(text))
    while parser.check_event():
        yield parser.get_event()


def compose_nodes(text: str) -> yaml.Node | None:
    """The text as nodes that know where they stand; only for text that `read_yaml` took."""
    return Loader(text.removeprefix("\ufeff")).get_single_node()


def _syntax_error(error: yaml.YAMLError, text: str, file: Path) -> ConfigError:
    line = column = 0
    said = str(error).splitlines()[0]
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        said = error.problem or said
        if error.context and error.context_mark and error.context_mark.line + 1 != line:
            said += f" ({error.context} in line {error.context_mark.line + 1})"
    elif isinstance(error, yaml.reader.ReaderError):
        line, column = _position_of(text, error.position)
        said = f"the character U+{_code(error.character):04X} is not allowed"
    hint = next((advice for part, advice in YAML_HINTS.items() if part in said), "")
    problem = Problem(
        severity=Severity.ERROR,
        file=file,
        line=line,
        column=column,
        message=f"this is not YAML: {said}",
        hint=hint,
    )
    return as_error([problem])


def _code(character: str | bytes | int) -> int:
    return character if isinstance(character, int) else ord(character)


def _position_of(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


Position: TypeAlias = tuple[int, int]


def key_positions(text: str) -> dict[KeyPath, Position]:
    """Line and column of every key and list entry, counted from one."""
    root = compose_nodes(text)
    return {path: place for path, place, _ in _walk(root, ())} if root else {}


def repeated_keys(text: str) -> list[tuple[KeyPath, Position]]:
    """Keys that stand twice in one mapping, where YAML silently drops the first."""
    root = compose_nodes(text)
    return [(path, place) for path, place, again in _walk(root, ()) if again] if root else []


def nearest_position(found: dict[KeyPath, Position], path: KeyPath) -> Position:
    """The place of the setting, or of the nearest section around it that is in the file."""
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
