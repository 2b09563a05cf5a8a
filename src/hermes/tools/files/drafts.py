"""Edit text files in memory, in their encoding, until every edit of a call has succeeded."""

import os
from difflib import unified_diff
from pathlib import Path

from msgspec import Struct

from hermes.schema.errors import ToolError
from hermes.tools.files.editor import read_bytes
from hermes.tools.files.file_changes import FileChange
from hermes.tools.files.lint import LintResult, check_syntax
from hermes.tools.files.path_suggestions import suggest_path
from hermes.tools.files.safe_open import Forbids, forbid_nothing

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
            raise ToolError(f"{path} is {self.encoding}, which cannot encode {odd!r}.") from error

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
        raise ToolError(f"{path} is a binary file and cannot be edited as text.")
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
        raise ToolError(f"{path} is damaged {encoding} text: {error.reason}.") from error


def _main_newline(text: str) -> str:
    crlf = text.count("\r\n")
    return "\r\n" if crlf * 2 > text.count("\n") else "\n"


MAX_LINES = 300_000
"""Lines of a file that can be edited; each is processed several times."""


class Draft:
    """One file: `old` is its text on disk, `text` the new text; None means no file."""

    def __init__(self, path: Path, forbids: Forbids, *, whole: bool = False) -> None:
        """`whole`: the file is replaced completely, so it need not be text."""
        found = read_bytes(path, forbids)
        self.path = path
        self.before: bytes | None = None
        self.stat: os.stat_result | None = None
        self.old: str | None = None
        self.text_format = TextFormat()
        self.mode: int | None = None
        if found is not None:
            self.before, self.stat = found
            try:
                self.old, self.text_format = decode_text(self.before, path)
            except ToolError:
                if not whole:
                    raise
                self.old = ""
            if self.old.count("\n") > MAX_LINES and not whole:
                raise ToolError(
                    f"patch: {path} has more than {MAX_LINES:,} lines.",
                    hint="Edit it with sed in the terminal.",
                )
        self.text = self.old

    def require_text(self) -> str:
        """Raises `ToolError` if there is no such file."""
        if self.text is None:
            raise ToolError(f"patch: {self.path} does not exist. {suggest_path(self.path)}")
        return self.text

    def create(self, text: str, text_format: TextFormat, mode: int | None = None) -> None:
        """`mode`: permissions of the file it is moved from."""
        if self.text is not None:
            raise ToolError(
                f"patch: {self.path} already exists.", hint="Update it, or delete it first."
            )
        self.text = text
        self.text_format = text_format
        self.mode = mode

    @property
    def change(self) -> FileChange:
        after = None if self.text is None else self.text_format.encode_text(self.text, self.path)
        return FileChange(self.path, self.before, after, self.stat, self.mode)


class Drafts:
    """The files of one call; a file named twice is edited twice."""

    def __init__(self, forbids: Forbids = forbid_nothing) -> None:
        self._files: dict[Path, Draft] = {}
        self._forbids = forbids

    def open(self, path: Path) -> Draft:
        if path not in self._files:
            self._files[path] = Draft(path, self._forbids)
        return self._files[path]

    @property
    def changed(self) -> list[Draft]:
        return [draft for draft in self._files.values() if draft.text != draft.old]

    def diff(self) -> str:
        """Return a diff of all files, named relative to their common folder."""
        changed = self.changed
        folder = os.path.commonpath([d.path.parent for d in changed]) if changed else ""
        return "\n".join(diff_text(d.old, d.text, str(d.path.relative_to(folder))) for d in changed)

    def lint(self) -> LintResult:
        """Return the worst result of all files, naming the files if there are several."""
        checks = [
            (d.path, check_syntax(d.path, d.text, d.old))
            for d in self.changed
            if d.text is not None
        ]
        faults = [(path, lint) for path, lint in checks if lint.status == "error"]
        if faults:
            several = len(checks) > 1
            return LintResult(
                "error",
                "\n".join(
                    f"{path}: {lint.output}" if several else lint.output for path, lint in faults
                ),
            )
        return next((lint for _, lint in checks if lint.status == "ok"), LintResult("skipped"))


CONTEXT_LINES = 3
MAX_COUNTED_LINES = 500_000
"""Lines of both sides up to which they are compared."""
MAX_COMPARED_LINES = 2_000
"""Changed lines up to which a minimal diff is computed."""


def diff_text(before: str | None, after: str | None, name: str) -> str:
    """None means a file that does not exist."""
    labels = (
        "/dev/null" if before is None else f"a/{name}",
        "/dev/null" if after is None else f"b/{name}",
    )
    removed, added = (before or "").count("\n"), (after or "").count("\n")
    if removed + added > MAX_COUNTED_LINES:
        return _summary_diff(removed, added, labels, 0)
    old = [strip_line_end(line) for line in split_lines(before or "")]
    new = [strip_line_end(line) for line in split_lines(after or "")]
    same_start, same_end = _common_ends(old, new)
    changed = max(len(old), len(new)) - same_start - same_end
    if changed > MAX_COMPARED_LINES:
        same = same_start + same_end
        return _summary_diff(len(old) - same, len(new) - same, labels, same_start)
    first = max(same_start - CONTEXT_LINES, 0)
    last = max(same_end - CONTEXT_LINES, 0)
    hunks = list(
        unified_diff(
            old[first : len(old) - last],
            new[first : len(new) - last],
            *labels,
            n=CONTEXT_LINES,
            lineterm="",
        )
    )
    return "\n".join(_shift(line, first) for line in hunks)


def _common_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    """Count the equal lines at the beginning and, apart from those, at the end."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end


def _shift(line: str, by: int) -> str:
    """Shift line numbers from the compared part to the whole file."""
    if not by or not line.startswith("@@ "):
        return line
    _, old, new, _ = line.split(" ", 3)
    return f"@@ -{_shift_span(old[1:], by)} +{_shift_span(new[1:], by)} @@"


def _shift_span(span: str, by: int) -> str:
    start, comma, length = span.partition(",")
    return f"{int(start) + by}{comma}{length}"


def _summary_diff(removed: int, added: int, labels: tuple[str, str], start: int) -> str:
    return "\n".join(
        (
            f"--- {labels[0]}",
            f"+++ {labels[1]}",
            f"@@ -{start + 1},{removed} +{start + 1},{added} @@",
            f"(too many changes to show: {removed:,} lines became {added:,})",
        )
    )
