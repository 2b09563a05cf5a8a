"""Convert settings leniently and report precise errors, if the fast conversion fails."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from functools import cache

from msgspec import Struct, inspect

from hermes.config.problems import Finding, Severity
from hermes.config.schema import Config
from hermes.config.setting_warnings import FALSE_WORDS, TRUE_WORDS
from hermes.config.values import KeyPath, as_list, as_mapping, describe_value

_TYPE_NAMES: Mapping[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.StrType: "text",
    inspect.NoneType: "nothing",
}

_EXACT_TYPES: Mapping[type[inspect.Type], tuple[type, ...]] = {
    inspect.BoolType: (bool,),
    inspect.IntType: (int,),
    inspect.FloatType: (int, float),
    inspect.StrType: (str,),
    inspect.NoneType: (type(None),),
    inspect.VarTupleType: (list,),
    inspect.StructType: (dict,),
    inspect.DictType: (dict,),
}


class _Unusable(Exception):
    """The value cannot be used; a finding was added."""


class SettingsRepair:
    """Walks raw settings along the schema and collects all errors."""

    def __init__(self, schema: type[Struct] = Config) -> None:
        self._schema = schema
        self.findings: list[Finding] = []

    def repair(self, raw: dict[str, object]) -> object:
        """The settings in the form the fast conversion accepts; errors are in `findings`."""
        return self._struct(raw, _struct_type(self._schema), ())

    def _value(self, value: object, kind: inspect.Type, path: KeyPath) -> object:
        match kind:
            case inspect.StructType():
                return self._struct(value, kind, path)
            case inspect.DictType():
                return self._dict(value, kind, path)
            case inspect.VarTupleType() | inspect.ListType() | inspect.FrozenSetType():
                return self._list(value, kind, path)
            case inspect.UnionType():
                return self._union(value, kind, path)
            case inspect.CustomType():
                return value
            case _:
                return self._scalar(value, kind, path)

    def _struct(self, value: object, kind: inspect.StructType, path: KeyPath) -> object:
        table = as_mapping(value)
        if table is None:
            raise self._wrong(value, kind, path)
        repaired: dict[str, object] = {}
        for field in kind.fields:
            name = field.encode_name
            if name in table and (table[name] is not None or _takes_none(field.type)):
                with suppress(_Unusable):
                    repaired[name] = self._value(table[name], field.type, (*path, name))
        return repaired

    def _dict(self, value: object, kind: inspect.DictType, path: KeyPath) -> object:
        table = as_mapping(value)
        if table is None:
            raise self._wrong(value, kind, path)
        repaired: dict[str, object] = {}
        for key, item in table.items():
            name = _text_of(key)
            # A key without a value is an entry with all defaults.
            is_empty = item is None and isinstance(kind.value_type, inspect.StructType)
            with suppress(_Unusable):
                entry: object = {} if is_empty else item
                repaired[name] = self._value(entry, kind.value_type, (*path, name))
        return repaired

    def _list(
        self,
        value: object,
        kind: inspect.VarTupleType | inspect.ListType | inspect.FrozenSetType,
        path: KeyPath,
    ) -> object:
        items = as_list(value)
        if items is None and isinstance(kind.item_type, inspect.StrType):
            items = _split(value)
        if items is None:
            raise self._wrong(value, kind, path)
        repaired: list[object] = []
        for index, item in enumerate(items):
            with suppress(_Unusable):
                repaired.append(self._value(item, kind.item_type, (*path, index)))
        return repaired

    def _union(self, value: object, kind: inspect.UnionType, path: KeyPath) -> object:
        if value is None and _takes_none(kind):
            return None
        exact = [one for one in kind.types if type(value) in _EXACT_TYPES.get(type(one), ())]
        if exact:
            return self._value(value, exact[0], path)
        for member in kind.types:
            attempt = SettingsRepair()
            try:
                repaired = attempt._value(value, member, path)
            except _Unusable:
                continue
            if not attempt.findings:
                return repaired
        raise self._wrong(value, kind, path)

    def _scalar(self, value: object, kind: inspect.Type, path: KeyPath) -> object:
        repaired = _coerced(value, kind)
        if repaired is None or not _within(repaired, kind):
            raise self._wrong(value, kind, path)
        return repaired

    def _wrong(self, value: object, kind: inspect.Type, path: KeyPath) -> _Unusable:
        message = f"expected {describe_type(kind)}, found {describe_value(value)}"
        self.findings.append(Finding(severity=Severity.ERROR, path=path, message=message))
        return _Unusable()


def setting_type(path: KeyPath) -> inspect.Type | None:
    """The type of a setting in the schema, or None if it is free-form."""
    kind: inspect.Type | None = _struct_type()
    for step in path:
        kind = _step_into(kind, step)
    return kind


def is_text_type(kind: inspect.Type | None) -> bool:
    """Whether only text is allowed, so that `12` and `true` are text."""
    return isinstance(kind, inspect.StrType | inspect.LiteralType)


def describe_type(kind: inspect.Type) -> str:
    """A description of the type for error messages."""
    match kind:
        case inspect.IntType() | inspect.FloatType():
            whole = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            return whole + _bounds(kind)
        case inspect.LiteralType():
            return "one of " + ", ".join(str(value) for value in kind.values)
        case inspect.VarTupleType() | inspect.ListType() | inspect.FrozenSetType():
            return "a list" + (" of texts" if isinstance(kind.item_type, inspect.StrType) else "")
        case inspect.UnionType():
            words = [describe_type(t) for t in kind.types if not isinstance(t, inspect.NoneType)]
            return " or ".join(dict.fromkeys(words))
        case _:
            return _TYPE_NAMES.get(type(kind), "a mapping")


@cache
def _struct_type(schema: type[Struct] = Config) -> inspect.StructType:
    kind = inspect.type_info(schema)
    assert isinstance(kind, inspect.StructType)  # noqa: S101 - for the type checker
    return kind


def _step_into(kind: inspect.Type | None, step: str | int) -> inspect.Type | None:
    match kind:
        case inspect.StructType():
            found = [field.type for field in kind.fields if field.encode_name == step]
            return found[0] if found else None
        case inspect.DictType():
            return kind.value_type
        case inspect.VarTupleType():
            return kind.item_type
        case inspect.UnionType():
            steps = [_step_into(member, step) for member in kind.types]
            return next((found for found in steps if found is not None), None)
        case _:
            return None


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge:g} to {kind.le:g}"
    return f" of at least {kind.ge:g}" if kind.ge is not None else ""


def _within(value: object, kind: inspect.Type) -> bool:
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        return True
    if not isinstance(value, int | float):
        return False
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)


def _takes_none(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(isinstance(member, inspect.NoneType) for member in kind.types)
    return isinstance(kind, inspect.CustomType)


def _coerced(value: object, kind: inspect.Type) -> object | None:
    """The value as the scalar type, or None."""
    match kind:
        case inspect.BoolType():
            return _as_bool(value)
        case inspect.IntType():
            return _as_whole_number(value)
        case inspect.FloatType():
            return _as_number(value)
        case inspect.StrType():
            return _text_of(value) if isinstance(value, str | int | float | date) else None
        case inspect.LiteralType():
            text = _text_of(value).strip().lower() if isinstance(value, str | bool) else value
            return text if text in kind.values else None
        case _:
            return None


def _as_bool(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else str(value)
    if text in TRUE_WORDS:
        return True
    return False if text in FALSE_WORDS else None


def _as_whole_number(value: object) -> int | None:
    """Text is parsed directly, so that a long id keeps all its digits."""
    try:
        if isinstance(value, str):
            return int(value)
    except ValueError:
        pass
    number = _as_number(value)
    if number is None or number != int(number):
        return None
    return value if isinstance(value, int) else int(number)


def _as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None


def _text_of(value: object) -> str:
    """The value as text; booleans become the `on` and `off` that YAML converted."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value.isoformat() if isinstance(value, date) else str(value)


def _split(value: object) -> list[object] | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return [part.strip() for part in str(value).split(",") if part.strip()]
