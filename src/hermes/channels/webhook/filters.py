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

from hermes.channels.webhook.payload import as_text, look_up
from hermes.config.shapes import as_list, as_mapping, in_words
from hermes.schema.errors import ConfigError

_LATER = frozenset({"in_file", "regex"})


class Word(StrEnum):
    EQUALS = "equals"
    NOT_EQUALS = "not_equals"
    IN = "in"
    CONTAINS = "contains"
    EXISTS = "exists"
    MISSING = "missing"


class Every(StrEnum):
    ALL = "all"
    ANY = "any"
    NOT = "not"


class FieldTest(Struct, frozen=True):
    field: str
    word: Word
    value: object


class Group(Struct, frozen=True):
    """`not` holds when none of its tests does."""

    every: Every
    tests: "tuple[Filter, ...]"


Filter: TypeAlias = FieldTest | Group


class Facts(Struct, frozen=True):
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
        found, value = look_up(self.value, field)
        if not found and first == "payload" and rest:
            return look_up(self.value, rest)
        return found, value


def read_filters(value: object) -> tuple[Filter, ...]:
    """Raises `ConfigError` for what is no list of tests."""
    entries = as_list(value)
    if entries is None:
        raise ConfigError(
            f"filters: expected a list, found {in_words(value)}",
            hint="Write it as: filters: [{field: action, equals: opened}]",
        )
    return tuple(_filter(entry) for entry in entries)


def holds(filters: tuple[Filter, ...], facts: Facts) -> bool:
    return all(_holds(one, facts) for one in filters)


def _holds(one: Filter, facts: Facts) -> bool:
    if isinstance(one, FieldTest):
        return _passes(one, *facts.find(one.field))
    outcomes = (_holds(test, facts) for test in one.tests)
    match one.every:
        case Every.ALL:
            return all(outcomes)
        case Every.ANY:
            return any(outcomes)
        case Every.NOT:
            return not any(outcomes)
        case _:
            assert_never(one.every)


def _passes(test: FieldTest, found: bool, value: object) -> bool:
    match test.word:
        case Word.EXISTS:
            return found is bool(test.value)
        case Word.MISSING:
            return found is not bool(test.value)
        case Word.EQUALS:
            return found and _same(value, test.value)
        case Word.NOT_EQUALS:
            return not (found and _same(value, test.value))
        case Word.IN:
            return found and any(_same(value, other) for other in as_list(test.value) or ())
        case Word.CONTAINS:
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
        raise _wrong(f"expected a test, found {in_words(value)}")
    groups = [every for every in Every if every in table]
    if groups:
        return _group(groups[0], table)
    field = table.get("field")
    words = [word for word in Word if word in table]
    if later := sorted(_LATER & {str(name) for name in table}):
        raise _wrong(f"{later[0]} cannot be used yet")
    if not isinstance(field, str) or not field or len(words) != 1 or len(table) != 2:
        raise _wrong("a test has a `field` and one word to compare it by")
    return FieldTest(field, words[0], _checked(words[0], table[words[0]]))


def _group(every: Every, table: Mapping[object, object]) -> Group:
    inside = table[every]
    if len(table) != 1:
        raise _wrong(f"`{every}` stands alone, with its tests in it")
    tests = as_list(inside) if every is not Every.NOT or as_list(inside) else [inside]
    if not tests:
        raise _wrong(f"`{every}` needs a list of tests")
    return Group(every, tuple(_filter(test) for test in tests))


def _checked(word: Word, value: object) -> object:
    if word is Word.IN and as_list(value) is None:
        raise _wrong("`in` needs a list")
    if word in {Word.EXISTS, Word.MISSING} and not isinstance(value, bool):
        raise _wrong(f"`{word}` is true or false")
    return value


def _wrong(what: str) -> ConfigError:
    words = ", ".join(Word)
    return ConfigError(
        f"filters: {what}",
        hint=f"Write it like {{field: action, equals: opened}}, with one of {words}; "
        "`all`, `any` and `not` group tests.",
    )
