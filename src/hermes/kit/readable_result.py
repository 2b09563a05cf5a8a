"""Format the JSON that a tool returns to the model for people."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

import msgspec

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

MAIN_FIELDS = ("output", "content", "text", "answer", "result", "message", "error", "diff")
"""The first of these with text is a tool's main output; the rest is metadata."""

MODEL_FIELDS = frozenset({"hint", "next", "instructions", "success"})
"""Fields that only tell the model what to do, or repeat the mark before the result."""


def readable_result(text: str) -> str:
    """Format a JSON object or list for reading; return other text unchanged."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        found = cast("Json", msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return text
    return "\n".join(_lines(found)) or "(nothing)"


def _lines(value: Json) -> Iterator[str]:
    match value:
        case dict():
            yield from _fields(value)
        case list():
            for item in value:
                first, *more = list(_lines(item)) or [""]
                yield f"- {first}"
                yield from (f"  {line}" for line in more)
        case str():
            yield from value.splitlines()
        case bool() | None:
            yield "" if value is None else ("yes" if value else "no")
        case _:
            yield str(value)


def _fields(fields: Mapping[str, Json]) -> Iterator[str]:
    """The main output without a label, then the other fields that are not empty."""
    main = next(
        (name for name in MAIN_FIELDS if isinstance(fields.get(name), str) and fields[name]), ""
    )
    if main:
        yield from _lines(fields[main])
    for name, value in fields.items():
        if name in {main, *MODEL_FIELDS} or value in ("", None, [], {}):
            continue
        lines = list(_lines(value))
        if len(lines) == 1 and not isinstance(value, list):
            yield f"{name}: {lines[0]}"
        else:
            yield f"{name}:"
            yield from (f"  {line}" for line in lines)
