"""Filter webhook payloads by tests on single fields and groups of them.

    filters:
      - {field: action, in: [opened, reopened]}
      - any:
          - {field: pull_request.draft, equals: false}
          - {field: headers.X-Urgent, exists: true}

All tests in a list must hold. Each test has one `field` and one operator.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias, assert_never

from msgspec import Struct

from hermes.channels.webhook.payload import as_text, value_at
from hermes.config.values import as_list, as_mapping, describe_value
from hermes.schema.errors import ConfigError

_UNSUPPORTED = frozenset({"in_file", "regex"})


class Operator(StrEnum):
    EQUALS = "equals"
    NOT_EQUALS = "not_equals"
    IN = "in"
    CONTAINS = "contains"
    EXISTS = "exists"
    MISSING = "missing"


class GroupKind(StrEnum):
    ALL = "all"
    ANY = "any"
    NOT = "not"


class FieldTest(Struct, frozen=True):
    field: str
    operator: Operator
    value: object


class Group(Struct, frozen=True):
    """`not` holds when none of its tests holds."""

    kind: GroupKind
    tests: "tuple[Filter, ...]"


Filter: TypeAlias = FieldTest | Group


class FilterInput(Struct, frozen=True):
    event: str
    headers: Mapping[str, str]
    value: object

    def find(self, field: str) -> tuple[bool, object]:
        if field in {"event", "event_type"}:
            return True, self.event
        first, _, rest = field.partition(".")
        if first == "headers" and rest:
            return rest.lower() in self.headers, self.headers.get(rest.lower())
        found, value = value_at(self.value, field)
        if not found and first == "payload" and rest:
            return value_at(self.value, rest)
        return found, value


def read_filters(value: object) -> tuple[Filter, ...]:
    """Parse the tests; raises `ConfigError` if they are invalid."""
    entries = as_list(value)
    if entries is None:
        raise ConfigError(
            f"filters: expected a list, found {describe_value(value)}",
            hint="Write it as: filters: [{field: action, equals: opened}]",
        )
    return tuple(_filter(entry) for entry in entries)


def matches_filters(filters: tuple[Filter, ...], facts: FilterInput) -> bool:
    return all(_matches(filter_, facts) for filter_ in filters)


def _matches(filter_: Filter, facts: FilterInput) -> bool:
    if isinstance(filter_, FieldTest):
        return _passes(filter_, *facts.find(filter_.field))
    outcomes = (_matches(test, facts) for test in filter_.tests)
    match filter_.kind:
        case GroupKind.ALL:
            return all(outcomes)
        case GroupKind.ANY:
            return any(outcomes)
        case GroupKind.NOT:
            return not any(outcomes)
        case _:
            assert_never(filter_.kind)


def _passes(test: FieldTest, found: bool, value: object) -> bool:
    match test.operator:
        case Operator.EXISTS:
            return found is bool(test.value)
        case Operator.MISSING:
            return found is not bool(test.value)
        case Operator.EQUALS:
            return found and _same(value, test.value)
        case Operator.NOT_EQUALS:
            return not (found and _same(value, test.value))
        case Operator.IN:
            return found and any(_same(value, other) for other in as_list(test.value) or ())
        case Operator.CONTAINS:
            return found and _contains(value, test.value)
        case _:
            assert_never(test.operator)


def _contains(value: object, wanted: object) -> bool:
    if isinstance(value, str):
        return as_text(wanted) in value
    if (mapping := as_mapping(value)) is not None:
        return as_text(wanted) in mapping
    return any(_same(entry, wanted) for entry in as_list(value) or ())


def _same(value: object, wanted: object) -> bool:
    """Compare; text in the settings also matches the number or boolean written like it."""
    if isinstance(value, str) is not isinstance(wanted, str):
        return not isinstance(value, dict | list) and as_text(value) == as_text(wanted)
    return isinstance(value, bool) is isinstance(wanted, bool) and value == wanted


def _filter(value: object) -> Filter:
    table = as_mapping(value)
    if table is None:
        raise _invalid_filter(f"expected a test, found {describe_value(value)}")
    groups = [every for every in GroupKind if every in table]
    if groups:
        return _group(groups[0], table)
    field = table.get("field")
    operators = [operator for operator in Operator if operator in table]
    if unsupported := sorted(_UNSUPPORTED & {str(name) for name in table}):
        raise _invalid_filter(f"{unsupported[0]} is not supported yet")
    if not isinstance(field, str) or not field or len(operators) != 1 or len(table) != 2:
        raise _invalid_filter("a test has a `field` and one operator")
    return FieldTest(field, operators[0], _checked(operators[0], table[operators[0]]))


def _group(kind: GroupKind, table: Mapping[object, object]) -> Group:
    content = table[kind]
    if len(table) != 1:
        raise _invalid_filter(f"`{kind}` must be the only key of its group")
    tests = as_list(content) if kind is not GroupKind.NOT or as_list(content) else [content]
    if not tests:
        raise _invalid_filter(f"`{kind}` needs a list of tests")
    return Group(kind, tuple(_filter(test) for test in tests))


def _checked(operator: Operator, value: object) -> object:
    if operator is Operator.IN and as_list(value) is None:
        raise _invalid_filter("`in` needs a list")
    if operator in {Operator.EXISTS, Operator.MISSING} and not isinstance(value, bool):
        raise _invalid_filter(f"`{operator}` must be true or false")
    return value


def _invalid_filter(what: str) -> ConfigError:
    operators = ", ".join(Operator)
    return ConfigError(
        f"filters: {what}",
        hint="Example: {field: action, equals: opened}; "
        f"operators: {operators}; `all`, `any` and `not` group conditions.",
    )
