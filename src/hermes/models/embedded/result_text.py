"""Shorten a conversation for a small model: recent messages, and both ends of long texts.

The start moves in large steps that depend on the messages alone, so that consecutive requests
share most of their prompt and the engine can reuse its cache.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hermes.models.images import part_text
from hermes.schema.messages import Assistant, Message, Result, Text, ToolCall, User

MAX_TEXT = 3_000
"""Characters of one message: about 800 tokens, half a minute on one core."""
MAX_HISTORY = 9_000
"""Characters of all messages; beyond it the older half is dropped."""


def shorten_text(text: str, limit: int = MAX_TEXT) -> str:
    """Keep the beginning and the end, with a note about what is missing."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return f"{text[: limit - tail]}\n[… {len(text) - limit} characters left out …]\n{text[-tail:]}"


def recent_messages(messages: Sequence[Message], limit: int = MAX_HISTORY) -> Sequence[Message]:
    """Start at a question; the last one is always included, however long its turn is."""
    sizes = [_size(message) for message in messages]
    questions = [at for at, message in enumerate(messages) if isinstance(message, User)]
    start, total = 0, 0
    for at, size in enumerate(sizes):
        total += size
        if total <= limit:
            continue
        ahead = [later for later in questions if start < later <= at]
        fits = (later for later in ahead if sum(sizes[later : at + 1]) <= limit // 2)
        start = next(fits, ahead[-1] if ahead else start)
        total = sum(sizes[start : at + 1])
    return messages[start:]


def _size(message: Message) -> int:
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    size = sum(min(len(text), MAX_TEXT) for text in texts)
    match message:
        case Assistant():
            return size + sum(
                len(bytes(part.args)) for part in message.parts if isinstance(part, ToolCall)
            )
        case User() | Result():
            return size


WORKED, WRITTEN, CHANGED = "It worked. No output.", "The file is written.", "The file is changed."
_CODE = "exit code"
_FOLDER = re.compile(r"read_file: .* is a folder with: (?P<names>.+)")
_NUMBERS = re.compile(r"^\s*\d+\|", re.MULTILINE)


class _Match(Struct):
    path: str = ""
    line: int = 0
    content: str = ""


class _ToolOutput(Struct):
    """The fields of tool results that are worth reading."""

    content: str | None = None
    output: str | None = None
    exit_code: int | None = None
    bytes_written: int | None = None
    diff: str | None = None
    matches: list[_Match] | None = None
    files: list[str] | None = None


def plain_text(text: str) -> str:
    """Return tool output as plain text, or unknown text unchanged."""
    if not text.startswith("{"):
        return text
    try:
        output = msgspec.json.decode(text, type=_ToolOutput)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text
    return _output_text(output) or text


def plain_result(result: Result) -> tuple[str, bool]:
    """Return the text of a result, and whether it failed."""
    text = shorten_text("\n".join(plain_text(part_text(part)) for part in result.parts))
    # Reading a folder fails, but the error lists its files, which is the answer.
    names = _FOLDER.match(text) if result.failed else None
    if names:
        return f"The folder has: {names['names']}", False
    return text, result.failed or text.startswith(_CODE)


def has_no_output(text: str) -> bool:
    """Return whether the step succeeded without output."""
    return text.startswith((WORKED, WRITTEN, CHANGED))


def _output_text(result: _ToolOutput) -> str:
    text = ""
    if result.output is not None:
        code = f"{_CODE} {result.exit_code}\n" if result.exit_code else ""
        text = (code + result.output.strip()).strip() or WORKED
    elif result.content is not None:
        text = _NUMBERS.sub("", result.content).strip() or "The file is empty."
    elif result.diff is not None:
        text = f"{CHANGED}\n{_changed_lines(result.diff)}"
    elif result.bytes_written is not None:
        text = WRITTEN
    elif result.matches is not None:
        lines = (f"{match.path}: {match.content.strip()}" for match in result.matches)
        text = "\n".join(lines) or "Nothing was found."
    elif result.files is not None:
        text = "\n".join(result.files) or "Nothing was found."
    return text


def _changed_lines(diff: str) -> str:
    lines: Sequence[str] = diff.splitlines()
    return "\n".join(
        line for line in lines if line[:1] in "+-" and not line.startswith(("+++", "---"))
    )
