"""Which payloads of a route are wanted: tests on single fields, and groups of them.

    filters:
      - {field: action, in: [opened, reopened]}
      - any:
          - {field: pull_request.draft, equals: false}
          - {field: headers.X-Urgent, exists: true}

All that stand in a list must hold. Every test has one `field` and one of the words below.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias, assert_never

from msgspec import Struct

from hermes.channels.webhook.payload import as_text, value_at
from hermes.config.yaml_values import as_list, as_mapping, describe_value
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
    word: Operator
    value: object


class Group(Struct, frozen=True):
    """`not` holds when none of its tests does."""

    every: GroupKind
    tests: "tuple[Filter, ...]"


Filter: TypeAlias = FieldTest | Group


class FilterInput(Struct, frozen=True):
    """What a test can ask about."""

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
    """Raises `ConfigError` for what is no list of tests."""
    entries = as_list(value)
    if entries is None:
        raise ConfigError(
            f"filters: expected a list, found {describe_value(value)}",
            hint="Write it as: filters: [{field: action, equals: opened}]",
        )
    return tuple(_filter(entry) for entry in entries)


def matches_filters(filters: tuple[Filter, ...], facts: FilterInput) -> bool:
    return all(_matches(one, facts) for one in filters)


def _matches(one: Filter, facts: FilterInput) -> bool:
    if isinstance(one, FieldTest):
        return _passes(one, *facts.find(one.field))
    outcomes = (_matches(test, facts) for test in one.tests)
    match one.every:
        case GroupKind.ALL:
            return all(outcomes)
        case GroupKind.ANY:
            return any(outcomes)
        case GroupKind.NOT:
            return not any(outcomes)
        case _:
            assert_never(one.every)


def _passes(test: FieldTest, found: bool, value: object) -> bool:
    match test.word:
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
            assert_never(test.word)


def _contains(value: object, wanted: object) -> bool:
    if isinstance(value, str):
        return as_text(wanted) in value
    if (mapping := as_mapping(value)) is not None:
        return as_text(wanted) in mapping
    return any(_same(entry, wanted) for entry in as_list(value) or ())


def _same(value: object, wanted: object) -> bool:
    """A text in the settings also means the number or the yes that is written like it."""
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
    words = [word for word in Operator if word in table]
    if later := sorted(_UNSUPPORTED & {str(name) for name in table}):
        raise _invalid_filter(f"{later[0]} cannot be used yet")
    if not isinstance(field, str) or not field or len(words) != 1 or len(table) != 2:
        raise _invalid_filter("a test has a `field` and one word to compare it by")
    return FieldTest(field, words[0], _checked(words[0], table[words[0]]))


def _group(every: GroupKind, table: Mapping[object, object]) -> Group:
    inside = table[every]
    if len(table) != 1:
        raise _invalid_filter(f"`{every}` stands alone, with its tests in it")
    tests = as_list(inside) if every is not GroupKind.NOT or as_list(inside) else [inside]
    if not tests:
        raise _invalid_filter(f"`{every}` needs a list of tests")
    return Group(every, tuple(_filter(test) for test in tests))


def _checked(word: Operator, value: object) -> object:
    if word is Operator.IN and as_list(value) is None:
        raise _invalid_filter("`in` needs a list")
    if word in {Operator.EXISTS, Operator.MISSING} and not isinstance(value, bool):
        raise _invalid_filter(f"`{word}` is true or false")
    return value


def _invalid_filter(what: str) -> ConfigError:
    words = ", ".join(Operator)
    return ConfigError(
        f"filters: {what}",
        hint=f"Write it like {{field: action, equals: opened}}, with one of {words}; "
        "`all`, `any` and `not` group tests.",
    )
