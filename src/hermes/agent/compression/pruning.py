"""Old tool results in one line: what was called, how long the answer was, how it began."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from hermes.kit.text import one_line
from hermes.schema.messages import Assistant, Media, Message, Result, Text, text_of

SHORT = 200
"""A result of at most so many characters stays as it is."""
_WIDTH = 160


def pruned(messages: Sequence[Message], names: dict[str, str] | None = None) -> list[Message]:
    """The same messages, with every long result as a line. Short ones stay the same objects."""
    known = call_names(messages) if names is None else names
    return [_pruned(one, known) if isinstance(one, Result) else one for one in messages]


def call_names(messages: Iterable[Message]) -> dict[str, str]:
    """The tool of each call, by the call's id."""
    return {
        call.id: call.name
        for message in messages
        if isinstance(message, Assistant)
        for call in message.calls
    }


def line_of(result: Result, tool: str) -> str:
    text = text_of(result)
    pictures = sum(isinstance(part, Media) for part in result.parts)
    said = "failed" if result.failed else "answered"
    shown = f", {pictures} picture(s) no longer shown" if pictures else ""
    return f"[{tool} {said}: {len(text):,} characters{shown}] {one_line(text, _WIDTH)}".rstrip()


def _pruned(result: Result, names: dict[str, str]) -> Result:
    has_media = any(isinstance(part, Media) for part in result.parts)
    if not has_media and len(text_of(result)) <= SHORT:
        return result
    line = line_of(result, names.get(result.call, "a tool"))
    return replace(result, parts=(Text(line),))
