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
_STYLES = frozenset({"primary", "danger"})


def problems(blocks: list[Any]) -> list[str]:
    """What is wrong, in words; empty if the blocks are valid."""
    if len(blocks) > MAX_BLOCKS:
        return [f"no more than {MAX_BLOCKS} items allowed [json-pointer:/blocks]"]
    found = [
        f"{problem} [json-pointer:/blocks/{place}]"
        for place, block in enumerate(blocks)
        for problem in _block(block)
    ]
    written = sum(len(one.get("text", "")) for one in blocks if one.get("type") == "markdown")
    if written > MAX_MARKDOWN:
        found.append("markdown text is too long")
    ids = [one["block_id"] for one in blocks if "block_id" in one]
    return found + (["block_id already exists"] if len(set(ids)) < len(ids) else [])


def _block(block: Mapping[str, Any]) -> list[str]:
    match block.get("type"):
        case "section":
            return [] if block.get("fields") else _text(block.get("text"), MAX_SECTION)
        case "header":
            return _text(block.get("text"), MAX_HEADER, only="plain_text")
        case "actions":
            return _actions(block.get("elements"))
        case "divider" | "markdown" | "rich_text" | "image" | "context":
            return []
        case kind:
            return [f"unsupported type: {kind}"]


def _actions(elements: list[Mapping[str, Any]] | None) -> list[str]:
    if not elements or len(elements) > MAX_ELEMENTS:
        return [f"elements must have 1 to {MAX_ELEMENTS} items"]
    ids = [one.get("action_id") for one in elements]
    found = ["action_id already exists"] if len(set(ids)) < len(ids) else []
    for one in elements:
        found += _button(one)
    return found


def _button(button: Mapping[str, Any]) -> list[str]:
    if button.get("type") != "button":
        return []
    found = _text(button.get("text"), MAX_LABEL, only="plain_text")
    if len(button.get("value", "")) > MAX_VALUE:
        found.append(f"value must be less than {MAX_VALUE + 1} characters")
    if len(button.get("action_id", "")) > MAX_ID:
        found.append(f"action_id must be less than {MAX_ID + 1} characters")
    if button.get("style", "primary") not in _STYLES:
        found.append("style must be primary or danger")
    return found


def _text(given: Mapping[str, Any] | None, most: int, *, only: str = "") -> list[str]:
    kind, text = (given or {}).get("type"), (given or {}).get("text", "")
    if kind not in ({only} if only else {"plain_text", "mrkdwn"}):
        return [f"unsupported type of text: {kind}"]
    if not text:
        return ["must be more than 0 characters"]
    return [f"must be less than {most + 1} characters"] if len(text) > most else []
