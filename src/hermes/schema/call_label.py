"""Describe a tool call to people in a few words, such as `read_file notes.md`."""

import msgspec

from hermes.kit.terminal_text import single_line
from hermes.kit.text import one_line
from hermes.schema.messages import ToolCall

_ARGUMENTS = (
    "command", "path", "pattern", "query", "url", "goal", "question", "name", "content",
)  # fmt: skip
_MAX = 400


def call_label(call: ToolCall, width: int = 0) -> str:
    """The tool and its most telling argument, of which at most `width` characters are kept."""
    texts = {name: text for name, text in call_arguments(call).items() if isinstance(text, str)}
    label = next((texts[name] for name in (*_ARGUMENTS, *texts) if name in texts), "")
    return f"{call.name} {one_line(single_line(label), min(width or _MAX, _MAX))}".rstrip()


def call_arguments(call: ToolCall) -> dict[str, object]:
    """The arguments; empty if they are not an object."""
    try:
        return msgspec.json.decode(call.args, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
