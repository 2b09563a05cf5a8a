"""Answer a server's questions (elicitation) by asking the user, field by field."""

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
    """Cancel the form if the user does not answer, decline it if it is not supported."""
    prompt = f"The MCP server {server} asks: {show_invisible_line(asked.message, MAX_TEXT)}"
    if isinstance(asked, types.ElicitRequestURLParams):
        url = show_invisible_line(asked.url, MAX_TEXT)
        answer = await inquire(f"{prompt}\nIt asks you to open: {url}\nContinue?", (YES, NO))
        return _yes_no_result(answer)
    fields = _fields(asked.requested_schema)
    if fields is None:
        return DECLINED
    if not fields:
        return _yes_no_result(await inquire(prompt, (YES, NO)))
    content: dict[str, Value] = {}
    for name, field in fields.items():
        answer = await inquire(f"{prompt}\n{_label(name, field)}", _choices(field))
        if answer is None:
            return CANCELLED
        value = _value(field, answer.strip())
        if value is None:
            return DECLINED
        content[name] = value
    return types.ElicitResult(action="accept", content=content)


def _yes_no_result(answer: str | None) -> types.ElicitResult:
    if answer is None:
        return CANCELLED
    return types.ElicitResult(action="accept") if answer == YES else DECLINED


def _fields(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    given = as_mapping(schema.get("properties") or {})
    if given is None or len(given) > MAX_FIELDS:
        return None
    fields = {str(name): as_mapping(field) for name, field in given.items()}
    known = {
        name: {str(key): value for key, value in field.items()}
        for name, field in fields.items()
        if field is not None
    }
    return known if len(known) == len(fields) else None


def _label(name: str, field: Mapping[str, Any]) -> str:
    label = str(field.get("title") or field.get("description") or name)
    return show_invisible_line(label, MAX_TEXT)


def _choices(field: Mapping[str, Any]) -> Sequence[str]:
    if field.get("type") == "boolean":
        return (YES, NO)
    return [show_invisible_line(str(choice), 100) for choice in _allowed(field)][:MAX_CHOICES]


def _allowed(field: Mapping[str, Any]) -> list[object]:
    titled = [as_mapping(one) or {} for one in as_list(field.get("oneOf")) or []]
    return as_list(field.get("enum")) or [one.get("const") for one in titled]


def _value(field: Mapping[str, Any], answer: str) -> Value:
    """Convert the answer; None if it is not allowed."""
    match field.get("type"):
        case "boolean":
            known = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
            return known.get(answer.lower())
        case "integer":
            return int(answer) if _INTEGER.fullmatch(answer) else None
        case "number":
            return float(answer) if _NUMBER.fullmatch(answer) else None
        case "string" | None:
            allowed = [str(one) for one in _allowed(field)]
            return answer if not allowed or answer in allowed else None
        case _:
            return None
