"""Validate Block Kit as documented: counts, lengths and required fields."""

from collections.abc import Mapping
from typing import Any

MAX_BLOCKS = 50
MAX_SECTION = 3_000
MAX_ELEMENTS = 25
MAX_LABEL = 75
MAX_VALUE = 2_000
MAX_ID = 255
MAX_HEADER = 150
MAX_MARKDOWN = 12_000
MAX_FIELDS = 10
MAX_FIELD = 2_000
MAX_CONTEXT = 10
MAX_ALT_TEXT = 2_000
MAX_URL = 3_000
MAX_PLACEHOLDER = 150
MAX_OPTIONS = 100
MAX_OPTION_VALUE = 150
MAX_OVERFLOW = 5
MAX_SIZE = 13_200
"""Not documented, but known: https://github.com/slackapi/bolt-js/issues/2509"""
BLOCK_SIZE = 60
"""About what a block takes besides its texts."""
_STYLES = frozenset({"primary", "danger"})


def problems(blocks: list[Any]) -> list[str]:
    """What is wrong, in words; empty if the blocks are valid."""
    if len(blocks) > MAX_BLOCKS:
        return [f"no more than {MAX_BLOCKS} items allowed [json-pointer:/blocks]"]
    found = [
        f"{problem} [json-pointer:/blocks/{place}]"
        for place, block in enumerate(blocks)
        for problem in (*_block(block), *_too_long(block, "block_id", MAX_ID))
    ]
    written = sum(len(one.get("text", "")) for one in blocks if one.get("type") == "markdown")
    if written > MAX_MARKDOWN:
        found.append("markdown text is too long")
    ids = [one["block_id"] for one in blocks if "block_id" in one]
    return found + (["block_id already exists"] if len(set(ids)) < len(ids) else [])


def size(value: Any) -> int:
    """How much the texts of blocks take, with what is around them."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        table: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return sum(size(table.get(name)) for name in ("text", "fields", "elements"))
    return sum(size(one) for one in value) if isinstance(value, list) else 0  # pyright: ignore[reportUnknownVariableType]


def _block(block: Mapping[str, Any]) -> list[str]:
    match block.get("type"):
        case "section":
            return _section(block)
        case "context":
            return _count(block, "elements", MAX_CONTEXT)
        case "image":
            missing = [f"{name} is missing" for name in ("alt_text",) if not block.get(name)]
            return [
                *missing,
                *_too_long(block, "image_url", MAX_URL),
                *_too_long(block, "alt_text", MAX_ALT_TEXT),
            ]
        case "header":
            return _text(block.get("text"), MAX_HEADER, only="plain_text")
        case "actions":
            return _actions(block.get("elements"))
        case "divider" | "markdown" | "rich_text":
            return []
        case kind:
            return [f"unsupported type: {kind}"]


def _section(block: Mapping[str, Any]) -> list[str]:
    found = _element(block["accessory"]) if block.get("accessory") else []
    if not block.get("fields"):
        return found + _text(block.get("text"), MAX_SECTION)
    found += _count(block, "fields", MAX_FIELDS)
    return found + [one for field in block["fields"] for one in _text(field, MAX_FIELD)]


def _count(block: Mapping[str, Any], name: str, most: int) -> list[str]:
    right = 0 < len(block.get(name) or ()) <= most
    return [] if right else [f"{name} must have 1 to {most} items"]


def _too_long(block: Mapping[str, Any], name: str, most: int) -> list[str]:
    wrong = len(block.get(name) or "") > most
    return [f"{name} must be less than {most + 1} characters"] if wrong else []


def _actions(elements: list[Mapping[str, Any]] | None) -> list[str]:
    if not elements or len(elements) > MAX_ELEMENTS:
        return [f"elements must have 1 to {MAX_ELEMENTS} items"]
    ids = [one.get("action_id") for one in elements]
    found = ["action_id already exists"] if len(set(ids)) < len(ids) else []
    for one in elements:
        found += _element(one)
    return found


def _element(element: Mapping[str, Any]) -> list[str]:
    found = _too_long(element, "action_id", MAX_ID)
    match element.get("type"):
        case "button":
            return found + _button(element)
        case "static_select":
            placeholder = element.get("placeholder")
            found += _text(placeholder, MAX_PLACEHOLDER, only="plain_text") if placeholder else []
            return found + _options(element, MAX_OPTIONS)
        case "overflow":
            return found + _options(element, MAX_OVERFLOW)
        case _:
            return found


def _options(element: Mapping[str, Any], most: int) -> list[str]:
    found = _count(element, "options", most)
    for option in element.get("options") or ():
        found += _text(option.get("text"), MAX_LABEL)
        found += _too_long(option, "value", MAX_OPTION_VALUE)
    return found


def _button(button: Mapping[str, Any]) -> list[str]:
    found = _text(button.get("text"), MAX_LABEL, only="plain_text")
    found += _too_long(button, "value", MAX_VALUE)
    found += _too_long(button, "url", MAX_URL)
    if button.get("style", "primary") not in _STYLES:
        found.append("style must be primary or danger")
    return found


def _text(block: Mapping[str, Any] | None, most: int, *, only: str = "") -> list[str]:
    kind, text = (block or {}).get("type"), (block or {}).get("text", "")
    if kind not in ({only} if only else {"plain_text", "mrkdwn"}):
        return [f"unsupported type of text: {kind}"]
    if not text:
        return ["must be more than 0 characters"]
    return [f"must be less than {most + 1} characters"] if len(text) > most else []
