"""Decode and encode text files, preserving encoding, byte order mark and line ends."""

from pathlib import Path

from msgspec import Struct

from hermes.schema.errors import ToolError

_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)


class TextFormat(Struct, frozen=True):
    """`newline` is the line end most lines have."""

    encoding: str = "utf-8"
    mark: bytes = b""
    newline: str = "\n"

    def encode_text(self, text: str, path: Path) -> bytes:
        """Raises `ToolError` if the encoding lacks a character."""
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            odd = text[error.start : error.start + 1]
            raise ToolError(f"{path} is {self.encoding}, which cannot encode {odd!r}") from error

    def with_newlines(self, text: str) -> str:
        """Convert the text to this file's line ends."""
        plain = text.replace("\r\n", "\n")
        return plain if self.newline == "\n" else plain.replace("\n", self.newline)


def decode_text(data: bytes, path: Path) -> tuple[str, TextFormat]:
    """Decode the text unchanged. Raises `ToolError` for a binary file."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            text = _decode(data[len(mark) :], encoding, path)
            return text, TextFormat(encoding, mark, _main_newline(text))
    if b"\0" in data:
        raise ToolError(f"{path} is a binary file and cannot be edited as text")
    try:
        text, encoding = data.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = data.decode("latin-1"), "latin-1"
    return text, TextFormat(encoding, newline=_main_newline(text))


def split_lines(text: str) -> list[str]:
    """Split into lines with their ends; only `\\n` ends a line, as in editors and diffs."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def strip_line_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _decode(data: bytes, encoding: str, path: Path) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is damaged {encoding} text: {error.reason}") from error


def _main_newline(text: str) -> str:
    crlf = text.count("\r\n")
    return "\r\n" if crlf * 2 > text.count("\n") else "\n"
