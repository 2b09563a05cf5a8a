"""YAML text to plain values, noticing what YAML itself lets pass."""

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import yaml

from hermes.config.problems import Problem, Severity, as_error
from hermes.config.yaml_limits import check_limits
from hermes.kit.errors import ConfigError

if TYPE_CHECKING:
    from yaml import SafeLoader
else:
    try:
        from yaml import CSafeLoader as SafeLoader
    except ImportError:
        from yaml import SafeLoader

_LONGEST_NUMBER = 100
_INDENT = "Check the indent: the keys of one section begin in one column."

ADVICE = {
    "mapping values are not allowed": "Put a value that holds ': ' in quotes; check the indent.",
    "cannot start any token": "Indent with spaces, not tabs; quote what begins with @, % or `.",
    "could not find expected ':'": "Write the key and its value as KEY: VALUE.",
    "did not find expected key": _INDENT,
    "expected <block end>": _INDENT,
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
        if len(node.value) > _LONGEST_NUMBER:
            raise ValueError(f"a number of more than {_LONGEST_NUMBER} digits")
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
        raise _not_yaml(error, text, file) from error
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


def compose(text: str) -> yaml.Node | None:
    """The text as nodes that know where they stand; only for text that `read_yaml` took."""
    return Loader(text.removeprefix("\ufeff")).get_single_node()


def _not_yaml(error: yaml.YAMLError, text: str, file: Path) -> ConfigError:
    line = column = 0
    said = str(error).splitlines()[0]
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        said = error.problem or said
        if error.context and error.context_mark and error.context_mark.line + 1 != line:
            said += f" ({error.context} in line {error.context_mark.line + 1})"
    elif isinstance(error, yaml.reader.ReaderError):
        line, column = _place_of(text, error.position)
        said = f"the character U+{_code(error.character):04X} is not allowed"
    hint = next((advice for part, advice in ADVICE.items() if part in said), "")
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


def _place_of(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
