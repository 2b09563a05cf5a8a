"""The profile of small models: a few tools with short descriptions, and a short prompt.

The data is in `small.json`, `small.md` and `form.md`; all of it is at most 400 tokens.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.models.embedded.turn_state import TurnState, asks_for_information
from hermes.models.providers import ModelProfile
from hermes.schema.tools import ToolSpec

MAX_SYSTEM = 1_600
"""Characters of a prompt that a small model can follow; a longer one is replaced."""


class ShortTool(Struct, frozen=True):
    name: str
    use: str
    schema: dict[str, Any]


class _Row(Struct, frozen=True):
    name: str
    use: str
    args: tuple[str, ...]


@cache
def _rows() -> Mapping[str, _Row]:
    text = Path(__file__).with_name("small.json").read_bytes()
    return {row.name: row for row in msgspec.json.decode(text, type=list[_Row])}


@cache
def small_prompt() -> str:
    return Path(__file__).with_name("small.md").read_text().strip()


@cache
def answer_format() -> str:
    """The prompt for the answer format that `answer_parser` reads."""
    return Path(__file__).with_name("form.md").read_text().strip()


def reminder(turn: TurnState) -> str:
    """Return what follows a result: usually the question again."""
    question, last = turn.question, turn.steps[-1]
    if last.failed:
        return f"Try another way: {question}"
    if turn.untouched_names:
        return f"{question}\nNot done yet: {', '.join(turn.untouched_names)}. Take the next step."
    if last.silent:
        return "If nothing is left to do, reply in a sentence what you did."
    if turn.is_known and "?" not in question:
        return f'The task was: "{question}"\nAll is read now: reply in your own words.'
    if asks_for_information(question):
        return (
            f'Answer the question "{question}" now, with reply. '
            "If something has to be done first, do it."
        )
    return (
        f'The task was: "{question}"\nIf something has to be done for it, do it now. '
        "If you only have to say something, reply."
    )


def small_profile() -> ModelProfile:
    return ModelProfile(
        images=False, json_output=False, tools=tuple(_rows()), prompt=small_prompt()
    )


def short_tool(spec: ToolSpec) -> ShortTool:
    """Return the short description of a known tool, or the first sentence of its own."""
    row = _rows().get(spec.name)
    if row is None:
        use = spec.description.partition(". ")[0].partition("\n")[0][:120]
        return ShortTool(spec.name, use, spec.schema)
    known: dict[str, Any] = spec.schema.get("properties", {})
    schema = {
        "type": "object",
        "properties": {
            name: {"type": known.get(name, {}).get("type", "string")} for name in row.args
        },
        "required": list(row.args),
        "additionalProperties": False,
    }
    return ShortTool(spec.name, row.use, schema)


def system_message(system: str, tools: Sequence[ShortTool]) -> str:
    """Build the system message: the part shared by all sessions comes first, to be cached.

    A prompt that is too long is replaced by the short one.
    """
    short = small_prompt()
    prompt = system if len(system) <= MAX_SYSTEM else short
    if not tools:
        return prompt
    lines = [
        f"- {tool.name}({', '.join(tool.schema.get('properties', {}))}): {tool.use}"
        for tool in tools
    ]
    first, rest = (short, prompt.removeprefix(short)) if prompt.startswith(short) else ("", prompt)
    parts = [first, "\n".join(["Tools:", *lines]), answer_format(), rest.strip()]
    return "\n\n".join(part for part in parts if part)
