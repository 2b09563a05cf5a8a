"""Copy a tool's parameter schema, restricted to what every provider accepts.

Unknown keywords are dropped. Schemas that would make a request fail, or could hide text, make the
tool unusable.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hermes.config.values import as_list, as_mapping
from hermes.kit.terminal_text import escape_controls

NAME_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
JSON_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
MAX_DEPTH = 24
MAX_PARTS = 2_000
MAX_CHOICES = 256
MAX_TEXT = 200
"""Characters of a text that is not a description."""
MAX_DESCRIPTION = 1_000
MAX_NUMBER = 2.0**53

_SCHEMA_MAPS = frozenset({"properties", "$defs", "definitions"})
_SUBSCHEMAS = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not"})
_SCHEMA_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_ANNOTATIONS = frozenset({"description", "title", "examples"})
_NUMBERS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
)  # fmt: skip
_FLAGS = ("uniqueItems", "deprecated", "readOnly", "writeOnly")
_NOT_AT_TOP_LEVEL = frozenset({"anyOf", "oneOf", "allOf", "not", "enum", "const", "default"})
"""Keywords that providers reject at the top level; the server checks them anyway."""


class UnusableSchema(Exception):
    """Why the tool cannot be offered, phrased to follow "it"."""


def copy_schema(schema: Mapping[str, object], *, annotations: bool) -> dict[str, Any]:
    """Copy a schema; keep `annotations` only if asked to. Raises `UnusableSchema`."""
    if schema.get("type", "object") != "object":
        raise UnusableSchema("does not take named parameters")
    top = {key: one for key, one in schema.items() if key not in _NOT_AT_TOP_LEVEL}
    copier = _SchemaCopier(annotations=annotations)
    copy: dict[str, Any] = {"type": "object", "properties": {}}
    copy |= copier.fields(top, 0)
    for reference in copier.references:
        _check_reference(copy, reference)
    return copy


def texts_in(value: object) -> Iterator[str]:
    """Yield all texts, including names."""
    if (fields := as_mapping(value)) is not None:
        for key, field in fields.items():
            yield re.sub(r"[_.-]+", " ", str(key))
            yield from texts_in(field)
    elif (entries := as_list(value)) is not None:
        for field in entries:
            yield from texts_in(field)
    elif isinstance(value, str):
        yield value


class _SchemaCopier:
    def __init__(self, *, annotations: bool) -> None:
        self.references: set[str] = set()
        self._annotations = annotations
        self._left = MAX_PARTS

    def schema(self, value: object, deep: int) -> object:
        if isinstance(value, bool):
            return value
        fields = as_mapping(value)
        if fields is None:
            raise UnusableSchema("has parameters without a valid schema")
        return self.fields(fields, deep)

    def fields(self, fields: Mapping[Any, object], deep: int) -> dict[str, Any]:
        self._count(len(fields) + 1, deep)
        kept = {
            str(key): self._copy_keyword(str(key), field, deep + 1) for key, field in fields.items()
        }
        return {key: one for key, one in kept.items() if one is not None}

    def _count(self, parts: int, deep: int) -> None:
        self._left -= parts
        if self._left < 0 or deep > MAX_DEPTH:
            raise UnusableSchema("is too large")

    def _copy_keyword(self, key: str, value: object, deep: int) -> object:
        """Return None for what is dropped."""
        if key in _SCHEMA_MAPS:
            return self._schema_map(value, deep)
        if key in _SUBSCHEMAS:
            known = isinstance(value, bool) or as_mapping(value) is not None
            return self.schema(value, deep) if known else None
        if key in _SCHEMA_LISTS:
            schemas = self._entries(value, deep)
            return [self.schema(schema, deep) for schema in schemas] or None
        if key in _CHECKS:
            return value if _CHECKS[key](value) else None
        if key in _ANNOTATIONS:
            return self._annotation(value, deep) if self._annotations else None
        return self._copy_special(key, value, deep)

    def _copy_special(self, key: str, value: object, deep: int) -> object:
        match key:
            case "type":
                return self._type(value, deep)
            case "$ref":
                return self._reference(value)
            case "enum":
                return self._choices(value, deep)
            case "required":
                return [entry for entry in self._entries(value, deep) if _is_name(entry)]
            case _:
                return None

    def _annotation(self, value: object, deep: int) -> object:
        if isinstance(value, str):
            return escape_controls(value[:MAX_DESCRIPTION])
        return [entry for entry in self._entries(value, deep) if _is_short_scalar(entry)] or None

    def _schema_map(self, value: object, deep: int) -> object:
        fields = as_mapping(value)
        if fields is None:
            raise UnusableSchema("has parameters without names")
        self._count(len(fields), deep)
        if not all(map(_is_name, fields)):
            raise UnusableSchema("has parameter names that providers do not accept")
        return {name: self.schema(field, deep) for name, field in fields.items()}

    def _entries(self, value: object, deep: int) -> list[object]:
        entries = as_list(value) or []
        self._count(len(entries), deep)
        return entries

    def _type(self, value: object, deep: int) -> object:
        entries = as_list(value)
        types = [value] if entries is None else self._entries(value, deep)
        if not types or not all(isinstance(type_, str) and type_ in JSON_TYPES for type_ in types):
            raise UnusableSchema("has parameters of an unknown type")
        return value

    def _choices(self, value: object, deep: int) -> object:
        choices = self._entries(value, deep)
        if len(choices) > MAX_CHOICES or not all(map(_is_short_scalar, choices)):
            raise UnusableSchema("has parameters with too many choices")
        return choices or None

    def _reference(self, value: object) -> object:
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise UnusableSchema("has parameters that are defined elsewhere")
        self.references.add(value)
        return value


def _check_reference(whole: object, reference: str) -> None:
    """Require that the reference points to something that was copied."""
    first, *steps = reference.split("/")
    found = whole if first == "#" else None
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        found = (as_mapping(found) or {}).get(name)
    if not isinstance(found, bool) and as_mapping(found) is None:
        raise UnusableSchema("has parameters that are defined elsewhere")


def _is_short_scalar(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    return value is None or isinstance(value, bool) or _is_number(value)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -MAX_NUMBER <= value <= MAX_NUMBER


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(NAME_PATTERN.fullmatch(value))


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return False
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(_NUMBERS, _is_number),
    **dict.fromkeys(_FLAGS, lambda value: isinstance(value, bool)),
    "const": _is_short_scalar,
    "default": _is_short_scalar,
    "format": _is_name,
    "pattern": _is_pattern,
}
