"""How much of a conversation a small model is shown: its end, and of long texts both ends.

The beginning moves in large steps, each a function of the messages alone, so that from one
request to the next almost everything stays where it was and need not be read again.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hermes.models.wire.images import part_text
from hermes.schema.messages import Assistant, Message, Result, Text, ToolCall, User

MAX_TEXT = 3_000
"""Characters of one message: about 800 tokens, which take one core half a minute to read."""
MAX_HISTORY = 9_000
"""Characters of all messages; beyond it the older half is left out."""


def shorten_text(text: str, limit: int = MAX_TEXT) -> str:
    """The beginning and the end, with a word about what is missing."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return f"{text[: limit - tail]}\n[… {len(text) - limit} characters left out …]\n{text[-tail:]}"


def recent_messages(messages: Sequence[Message], most: int = MAX_HISTORY) -> Sequence[Message]:
    """From a question on; the last one is always there, however long its turn is."""
    sizes = [_size(one) for one in messages]
    questions = [at for at, one in enumerate(messages) if isinstance(one, User)]
    start, held = 0, 0
    for at, size in enumerate(sizes):
        held += size
        if held <= most:
            continue
        ahead = [later for later in questions if start < later <= at]
        fits = (later for later in ahead if sum(sizes[later : at + 1]) <= most // 2)
        start = next(fits, ahead[-1] if ahead else start)
        held = sum(sizes[start : at + 1])
    return messages[start:]


def _size(message: Message) -> int:
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    size = sum(min(len(text), MAX_TEXT) for text in texts)
    match message:
        case Assistant():
            return size + sum(
                len(bytes(one.args)) for one in message.parts if isinstance(one, ToolCall)
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
    """What the tools of the small profile answer with, as far as it is worth reading."""

    content: str | None = None
    output: str | None = None
    exit_code: int | None = None
    bytes_written: int | None = None
    diff: str | None = None
    matches: list[_Match] | None = None
    files: list[str] | None = None


def plain_text(text: str) -> str:
    """As it is, when it is nothing we know."""
    if not text.startswith("{"):
        return text
    try:
        told = msgspec.json.decode(text, type=_ToolOutput)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text
    return _output_text(told) or text


def plain_result(result: Result) -> tuple[str, bool]:
    """What it tells, and whether it failed."""
    told = shorten_text("\n".join(plain_text(part_text(part)) for part in result.parts))
    # Whoever reads a folder wants to know what is in it, and has just been told.
    names = _FOLDER.match(told) if result.failed else None
    if names:
        return f"The folder has: {names['names']}", False
    return told, result.failed or told.startswith(_CODE)


def has_no_output(told: str) -> bool:
    """It did something, and there is nothing to read about it."""
    return told.startswith((WORKED, WRITTEN, CHANGED))


def _output_text(told: _ToolOutput) -> str:
    words = ""
    if told.output is not None:
        code = f"{_CODE} {told.exit_code}\n" if told.exit_code else ""
        words = (code + told.output.strip()).strip() or WORKED
    elif told.content is not None:
        words = _NUMBERS.sub("", told.content).strip() or "The file is empty."
    elif told.diff is not None:
        words = f"{CHANGED}\n{_changed_lines(told.diff)}"
    elif told.bytes_written is not None:
        words = WRITTEN
    elif told.matches is not None:
        words = "\n".join(map(_match_line, told.matches)) or "Nothing was found."
    elif told.files is not None:
        words = "\n".join(told.files) or "Nothing was found."
    return words


def _changed_lines(diff: str) -> str:
    lines: Sequence[str] = diff.splitlines()
    return "\n".join(
        line for line in lines if line[:1] in "+-" and not line.startswith(("+++", "---"))
    )


def _match_line(match: _Match) -> str:
    return f"{match.path}: {match.content.strip()}"
