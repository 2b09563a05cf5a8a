"""Every setting with its type, default, allowed words and description."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct, inspect

from hermes.config.schema import Config
from hermes.config.setting_warnings import CHOICES, SWITCHES, unused_names

ANY = "*"
"""Stands for a name or a list item in a key."""
_SECRETS = frozenset({"api_key", "token", "client_secret", "password_hash"})

_KINDS: Mapping[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.IntType: "number",
    inspect.FloatType: "number",
    inspect.VarTupleType: "list",
    inspect.DictType: "table",
    inspect.AnyType: "table",
}


class Setting(Struct, frozen=True, kw_only=True):
    """One setting. `words` are its allowed values, if there are only a few."""

    key: str
    kind: str
    default: object
    words: tuple[str, ...]
    description: str

    @property
    def section(self) -> str:
        return self.key.split(".", 1)[0]

    @property
    def is_secret(self) -> bool:
        return self.key.rpartition(".")[2] in _SECRETS


@cache
def settings() -> tuple[Setting, ...]:
    """All settings that have an effect, in the order of the schema."""
    descriptions = _descriptions()
    by_field: dict[tuple[type, str], str] = {}
    found: list[Setting] = []
    for key, owner, field in _fields(inspect.type_info(Config), ""):
        if _is_unused(key):
            continue
        text = descriptions.get(key) or by_field.get((owner, field.encode_name), "")
        by_field.setdefault((owner, field.encode_name), text)
        kind, words = _kind(field.type)
        known = CHOICES.get(_pattern(key, CHOICES), ())
        switch = SWITCHES.get(_pattern(key, SWITCHES))
        if switch is not None:
            known = ("true", "false", *switch)
        found.append(
            Setting(
                key=key,
                kind=kind,
                default=_default(field),
                words=words or tuple(word for word in known if word),
                description=text,
            )
        )
    return tuple(found)


def described_keys() -> frozenset[str]:
    """The keys in the file of descriptions."""
    return frozenset(_descriptions())


def _descriptions() -> Mapping[str, str]:
    lines = Path(__file__).with_name("descriptions.txt").read_text("utf-8").splitlines()
    pairs = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {key: text for key, _, text in pairs}


def _fields(kind: inspect.Type, key: str) -> Iterator[tuple[str, type, inspect.Field]]:
    """The fields below a type that are not tables of fields themselves."""
    match kind:
        case inspect.StructType(fields=fields, cls=owner):
            for field in fields:
                path = f"{key}.{field.encode_name}" if key else field.encode_name
                nested = list(_fields(field.type, path))
                if nested:
                    yield from nested
                else:
                    yield path, owner, field
        case inspect.DictType(value_type=item) | inspect.VarTupleType(item_type=item):
            yield from _fields(item, f"{key}.{ANY}")
        case inspect.UnionType(types=kinds):
            for one in kinds:
                yield from _fields(one, key)
        case _:
            return


def _kind(kind: inspect.Type) -> tuple[str, tuple[str, ...]]:
    """The name of a type for people, and its allowed words."""
    if isinstance(kind, inspect.Metadata):
        return _kind(kind.type)
    if isinstance(kind, inspect.UnionType):
        named = [_kind(one) for one in kind.types if not isinstance(one, inspect.NoneType)]
        names = dict.fromkeys(name for name, _ in named)
        return " or ".join(names), tuple(word for _, words in named for word in words)
    if isinstance(kind, inspect.LiteralType):
        return "word", tuple(str(value) for value in kind.values)
    return _KINDS.get(type(kind), "text"), ()


def _default(field: inspect.Field) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def _is_unused(key: str) -> bool:
    parts = key.split(".")
    unused = unused_names()
    return any(".".join(parts[:end]) in unused for end in range(1, len(parts) + 1))


def _pattern(key: str, patterns: Mapping[str, object]) -> str:
    """The pattern that matches the key, or the key."""
    for pattern in patterns:
        steps, parts = pattern.split("."), key.split(".")
        if steps[-1] == ANY and len(steps) == len(parts) + 1:
            steps = steps[:-1]
        pairs = zip(steps, parts, strict=False)
        if len(steps) == len(parts) and all(step in {part, ANY} for step, part in pairs):
            return pattern
    return key
