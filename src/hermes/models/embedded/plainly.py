"""The results of our tools in plain words: a small model reads slowly, and JSON is mostly marks."""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hermes.models.embedded.trimming import cut
from hermes.models.wire.pictures import as_text
from hermes.schema.messages import Result

WORKED, WRITTEN, CHANGED = "It worked. No output.", "The file is written.", "The file is changed."
_CODE = "exit code"
_FOLDER = re.compile(r"read_file: .* is a folder with: (?P<names>.+)")
_NUMBERS = re.compile(r"^\s*\d+\|", re.MULTILINE)


class _Match(Struct):
    path: str = ""
    line: int = 0
    content: str = ""


class _Told(Struct):
    """What the tools of the small profile answer with, as far as it is worth reading."""

    content: str | None = None
    output: str | None = None
    exit_code: int | None = None
    bytes_written: int | None = None
    diff: str | None = None
    matches: list[_Match] | None = None
    files: list[str] | None = None


def plainly(text: str) -> str:
    """As it is, when it is nothing we know."""
    if not text.startswith("{"):
        return text
    try:
        told = msgspec.json.decode(text, type=_Told)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text
    return _words(told) or text


def plain_result(result: Result) -> tuple[str, bool]:
    """What it tells, and whether it failed."""
    told = cut("\n".join(plainly(as_text(part)) for part in result.parts))
    # Whoever reads a folder wants to know what is in it, and has just been told.
    names = _FOLDER.match(told) if result.failed else None
    if names:
        return f"The folder has: {names['names']}", False
    return told, result.failed or told.startswith(_CODE)


def is_silent(told: str) -> bool:
    """It did something, and there is nothing to read about it."""
    return told.startswith((WORKED, WRITTEN, CHANGED))


def _words(told: _Told) -> str:
    words = ""
    if told.output is not None:
        code = f"{_CODE} {told.exit_code}\n" if told.exit_code else ""
        words = (code + told.output.strip()).strip() or WORKED
    elif told.content is not None:
        words = _NUMBERS.sub("", told.content).strip() or "The file is empty."
    elif told.diff is not None:
        words = f"{CHANGED}\n{_changed(told.diff)}"
    elif told.bytes_written is not None:
        words = WRITTEN
    elif told.matches is not None:
        words = "\n".join(map(_line, told.matches)) or "Nothing was found."
    elif told.files is not None:
        words = "\n".join(told.files) or "Nothing was found."
    return words


def _changed(diff: str) -> str:
    lines: Sequence[str] = diff.splitlines()
    return "\n".join(
        line for line in lines if line[:1] in "+-" and not line.startswith(("+++", "---"))
    )


def _line(match: _Match) -> str:
    return f"{match.path}: {match.content.strip()}"
