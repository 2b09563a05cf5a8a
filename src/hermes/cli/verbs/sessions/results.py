"""A tool's result as a person reads it: tools answer programs, and often in JSON."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

import msgspec

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

SAID = ("output", "content", "text", "answer", "result", "message", "error", "diff")
"""What a tool has to say stands in the first of these; the rest is about it."""


def readable(words: str) -> str:
    """The words themselves where they are no JSON object or list."""
    if not words.lstrip().startswith(("{", "[")):
        return words
    try:
        found = cast("Json", msgspec.json.decode(words))
    except (msgspec.DecodeError, RecursionError):
        return words
    return "\n".join(_lines(found)) or "(nothing)"


def _lines(value: Json) -> Iterator[str]:
    match value:
        case dict():
            yield from _fields(value)
        case list():
            for one in value:
                first, *more = list(_lines(one)) or [""]
                yield f"- {first}"
                yield from (f"  {line}" for line in more)
        case str():
            yield from value.splitlines()
        case bool() | None:
            yield "" if value is None else ("yes" if value else "no")
        case _:
            yield str(value)


def _fields(fields: Mapping[str, Json]) -> Iterator[str]:
    """What is empty says nothing; what the tool has to say needs no label."""
    main = next((name for name in SAID if isinstance(fields.get(name), str) and fields[name]), "")
    if main:
        yield from _lines(fields[main])
    for name, value in fields.items():
        if name == main or value in ("", None, [], {}):
            continue
        lines = list(_lines(value))
        if len(lines) == 1 and not isinstance(value, list):
            yield f"{name}: {lines[0]}"
        else:
            yield f"{name}:"
            yield from (f"  {line}" for line in lines)
