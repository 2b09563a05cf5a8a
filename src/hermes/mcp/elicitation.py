"""A server asks the person something while a call runs: field by field, and in its name."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import mcp_types as types

from hermes.config.yaml_values import as_list, as_mapping
from hermes.kit.terminal_text import show_invisible_line
from hermes.ports.approvals import AskPerson

MAX_FIELDS = 8
MAX_CHOICES = 20
MAX_TEXT = 500
YES, NO = "Yes", "No"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?")
Value: TypeAlias = str | int | float | bool | list[str] | None
DECLINED = types.ElicitResult(action="decline")
CANCELLED = types.ElicitResult(action="cancel")


async def fill_form(
    inquire: AskPerson, server: str, asked: types.ElicitRequestParams
) -> types.ElicitResult:
    """Nobody there, or no answer, is a cancelled form; a form we do not understand is declined."""
    says = f"The MCP server {server} asks: {show_invisible_line(asked.message, MAX_TEXT)}"
    if isinstance(asked, types.ElicitRequestURLParams):
        where = show_invisible_line(asked.url, MAX_TEXT)
        said = await inquire(f"{says}\nIt wants you to open: {where}\nShall it go on?", (YES, NO))
        return _yes_no_result(said)
    fields = _fields(asked.requested_schema)
    if fields is None:
        return DECLINED
    if not fields:
        return _yes_no_result(await inquire(says, (YES, NO)))
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


def _yes_no_result(said: str | None) -> types.ElicitResult:
    if said is None:
        return CANCELLED
    return types.ElicitResult(action="accept") if said == YES else DECLINED


def _fields(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    given = as_mapping(schema.get("properties") or {})
    if given is None or len(given) > MAX_FIELDS:
        return None
    fields = {str(name): as_mapping(one) for name, one in given.items()}
    known = {
        name: {str(key): value for key, value in one.items()}
        for name, one in fields.items()
        if one is not None
    }
    return known if len(known) == len(fields) else None


def _label(name: str, field: Mapping[str, Any]) -> str:
    told = str(field.get("title") or field.get("description") or name)
    return show_invisible_line(told, MAX_TEXT)


def _choices(field: Mapping[str, Any]) -> Sequence[str]:
    if field.get("type") == "boolean":
        return (YES, NO)
    return [show_invisible_line(str(one), 100) for one in _allowed(field)][:MAX_CHOICES]


def _allowed(field: Mapping[str, Any]) -> list[object]:
    titled = [as_mapping(one) or {} for one in as_list(field.get("oneOf")) or []]
    return as_list(field.get("enum")) or [one.get("const") for one in titled]


def _value(field: Mapping[str, Any], said: str) -> Value:
    """None where the answer is none of those that are allowed."""
    match field.get("type"):
        case "boolean":
            known = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
            return known.get(said.lower())
        case "integer":
            return int(said) if _INTEGER.fullmatch(said) else None
        case "number":
            return float(said) if _NUMBER.fullmatch(said) else None
        case "string" | None:
            allowed = [str(one) for one in _allowed(field)]
            return said if not allowed or said in allowed else None
        case _:
            return None
