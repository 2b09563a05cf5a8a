"""Change a setting by rewriting the whole YAML document, preserving comments."""

import re
from io import StringIO
from typing import Protocol, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from hermes.config.values import KeyPath, UnsupportedEdit, remove_value, set_value

_SECTION = r"[^\s#-][^#\n]*:[ \t]*(?:[&!]\S++[ \t]*+)*+(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*"
_NESTED_KEY = re.compile(rf"(?m)^{_SECTION}( +)[^\s#-]")
_NESTED_DASH = re.compile(rf"(?m)^( *){_SECTION}( *)- ")


class _Document(Protocol):
    """The part of ruamel.yaml that is used here; it ships no types."""

    preserve_quotes: bool
    width: int

    def load(self, stream: str) -> object: ...
    def dump(self, data: object, stream: StringIO) -> None: ...
    def indent(self, mapping: int, sequence: int, offset: int) -> None: ...


def set_by_round_trip(text: str, path: KeyPath, value: object) -> str:
    """Return the text with the setting at `path` set."""
    writer = _writer(text)
    return _written(writer, set_value(_loaded(writer, text), path, value))


def remove_by_round_trip(text: str, path: KeyPath) -> str:
    writer = _writer(text)
    document = _loaded(writer, text)
    try:
        return _written(writer, remove_value(document, path))
    except KeyError as error:
        # ruamel cannot delete from a mapping that a merge key (`<<: *name`) refers to.
        raise UnsupportedEdit from error


def _writer(text: str) -> _Document:
    """A writer with the indentation of the text that never folds lines."""
    writer = cast("_Document", YAML())
    writer.preserve_quotes = True
    writer.width = 1 << 30
    key, dash = _NESTED_KEY.search(text), _NESTED_DASH.search(text)
    offset = len(dash[2]) - len(dash[1]) if dash else 0
    writer.indent(mapping=len(key[1]) if key else 2, sequence=offset + 2, offset=offset)
    return writer


def _loaded(writer: _Document, text: str) -> object:
    try:
        return writer.load(text)
    except YAMLError as error:
        raise UnsupportedEdit from error


def _written(writer: _Document, document: object) -> str:
    stream = StringIO()
    writer.dump(document, stream)
    return stream.getvalue()
