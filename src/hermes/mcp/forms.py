"""A server asks the person something while a call runs: field by field, and in its name."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import mcp_types as types

from hermes.kit.plain import visible_line
from hermes.ports.counsel import Inquire

MOST_FIELDS = 8
MOST_CHOICES = 20
MOST_WORDS = 500
YES, NO = "Yes", "No"
Value: TypeAlias = str | int | float | bool | list[str] | None
DECLINED = types.ElicitResult(action="decline")
CANCELLED = types.ElicitResult(action="cancel")


async def filled(
    inquire: Inquire, server: str, asked: types.ElicitRequestParams
) -> types.ElicitResult:
    """Nobody there, or no answer, is a cancelled form; a form we do not understand is declined."""
    says = f"The MCP server {server} asks: {visible_line(asked.message, MOST_WORDS)}"
    if isinstance(asked, types.ElicitRequestURLParams):
        where = visible_line(asked.url, MOST_WORDS)
        said = await inquire(f"{says}\nIt wants you to open: {where}\nShall it go on?", (YES, NO))
        return _consent(said)
    fields = _fields(asked.requested_schema)
    if fields is None:
        return DECLINED
    if not fields:
        return _consent(await inquire(says, (YES, NO)))
    content: dict[str, Value] = {}
    for name, field in fields.items():
        said = await inquire(f"{says}\n{_label(name, field)}", _choices(field))
        if said is None:
            return CANCELLED
        value = _value(field, said.strip())
        if value is None:
            return DECLINED
        content[name] = value
    return types.ElicitResult(action="accept", content=content)


def _consent(said: str | None) -> types.ElicitResult:
    if said is None:
        return CANCELLED
    return types.ElicitResult(action="accept") if said == YES else DECLINED


def _fields(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    fields: dict[str, dict[str, Any]] = schema.get("properties") or {}
    known = all(isinstance(one, dict) for one in fields.values())  # pyright: ignore[reportUnnecessaryIsInstance]
    return fields if known and len(fields) <= MOST_FIELDS else None


def _label(name: str, field: Mapping[str, Any]) -> str:
    told = str(field.get("title") or field.get("description") or name)
    return visible_line(told, MOST_WORDS)


def _choices(field: Mapping[str, Any]) -> Sequence[str]:
    if field.get("type") == "boolean":
        return (YES, NO)
    return [visible_line(str(one), 100) for one in _allowed(field)][:MOST_CHOICES]


def _allowed(field: Mapping[str, Any]) -> list[object]:
    titled: list[dict[str, object]] = field.get("oneOf") or []
    return field.get("enum") or [one.get("const") for one in titled]


def _value(field: Mapping[str, Any], said: str) -> Value:
    """None where the answer is none of those that are allowed."""
    match field.get("type"):
        case "boolean":
            known = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
            return known.get(said.lower())
        case "integer":
            return int(said) if said.lstrip("-").isdecimal() else None
        case "number":
            try:
                return float(said)
            except ValueError:
                return None
        case "string" | None:
            allowed = [str(one) for one in _allowed(field)]
            return said if not allowed or said in allowed else None
        case _:
            return None
