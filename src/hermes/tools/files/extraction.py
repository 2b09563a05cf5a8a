"""Extract the text of a document in a separate process, since a hostile file may crash it.

Run as a program: the kind is the argument, standard input the document, standard output JSON. It
opens no files, starts no processes, and limits its memory, processor time and output.
"""

import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from posixpath import basename, dirname, join, normpath
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile

MAX_TEXT = 2_000_000
"""Characters."""
MAX_UNPACKED = 64 << 20
"""Bytes of all unpacked parts of an archive."""
MAX_PARTS = 20_000
MAX_MEMORY = 1 << 30
MAX_PAGES = 2_000
SECONDS = 20
"""Seconds of work after which the text found so far is returned."""
MAX_COLUMNS = 1_000
CHUNK = 1 << 16

Handler = Callable[[str, dict[str, str]], None]


class UnreadableDocument(Exception):
    """The document cannot be read; the message is shown to the model."""


class LimitReached(Exception):
    """The limit of text or time is reached."""


class TextBuffer:
    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.note = ""
        self._room = MAX_TEXT
        self._until = time.monotonic() + SECONDS

    def add(self, text: str) -> None:
        """Raises `LimitReached` once the text is full."""
        self.pieces.append(text[: self._room])
        self._room -= len(text)
        if self._room <= 0:
            self.note = f"Cut after {MAX_TEXT:,} characters."
            raise LimitReached
        self.check_time()

    def check_time(self) -> None:
        """Raises `LimitReached` once the time is over."""
        if time.monotonic() > self._until:
            self.note = f"Cut after {SECONDS} s of work."
            raise LimitReached


class ZipParts:
    """The parts of a zip archive, unpacked in chunks up to a total limit."""

    def __init__(self, data: bytes, page: TextBuffer) -> None:
        self._page = page
        try:
            self._zip = ZipFile(BytesIO(data))
        except (BadZipFile, ValueError, NotImplementedError) as error:
            raise UnreadableDocument(f"it is a damaged archive ({error})") from error
        if len(self._zip.infolist()) > MAX_PARTS:
            raise UnreadableDocument("it has too many parts")
        self.names = frozenset(self._zip.namelist())
        self._room = MAX_UNPACKED

    def chunks(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(name) as part:
                while chunk := part.read(CHUNK):
                    self._page.check_time()
                    self._room -= len(chunk)
                    if self._room < 0:
                        raise UnreadableDocument("it unpacks to more than a document should")
                    yield chunk
        except (BadZipFile, RuntimeError, NotImplementedError, EOFError, OSError) as error:
            raise UnreadableDocument(f"its part {name} is damaged ({error})") from error


class XmlReader:
    """Parses one part as XML. Document types are rejected: entities could expand without limit."""

    def __init__(self, start: Handler, end: Callable[[str], None]) -> None:
        self.text: list[str] | None = None
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = lambda name, attrs: start(_local(name), attrs)
        self._parser.EndElementHandler = lambda name: end(_local(name))
        self._parser.CharacterDataHandler = self._add_text
        self._parser.StartDoctypeDeclHandler = _no_doctype

    def read(self, archive: ZipParts, name: str) -> None:
        try:
            for chunk in archive.chunks(name):
                self._parser.Parse(chunk, False)
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise UnreadableDocument(f"its part {name} is not valid XML ({error})") from error

    def start_text(self) -> None:
        self.text = []

    def take_text(self) -> str:
        """Return the text since `start_text`."""
        text, self.text = "".join(self.text or ()), None
        return text

    def _add_text(self, data: str) -> None:
        if self.text is not None:
            self.text.append(data)


def _no_doctype(*_: object) -> None:
    raise UnreadableDocument("it declares entities, which documents do not need")


def _local(name: str) -> str:
    return name.rpartition(":")[2]


class ParagraphReader:
    """Reads paragraphs and tables, as in a Word document or on a slide."""

    def __init__(self, page: TextBuffer) -> None:
        self._page = page
        self._line: list[str] = []
        self._cells = 0
        self.events = XmlReader(self._start, self._end)

    def _start(self, name: str, attrs: dict[str, str]) -> None:
        if name == "t":
            self.events.start_text()
        elif name == "tc":
            self._cells += 1
        elif name in {"tab", "br", "cr"}:
            self._line.append("\t" if name == "tab" or self._cells else "\n")
        elif name == "pStyle":
            level = re.fullmatch(r"[Hh]eading ?([1-6])", _attribute(attrs, "val"))
            if level:
                self._line.insert(0, "#" * int(level[1]) + " ")

    def _end(self, name: str) -> None:
        if name == "t":
            self._line.append(self.events.take_text())
        elif name == "p":
            self._page.add("".join(self._line) + (" " if self._cells else "\n"))
            self._line.clear()
        elif name == "tc":
            self._cells -= 1
            self._page.add(" | ")
        elif name == "tr":
            self._page.add("\n")


class SharedStrings:
    """Reads the strings shared by the cells of a workbook."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._item: list[str] = []
        self._room = 4 * MAX_TEXT
        self.events = XmlReader(self._start, self._end)

    def _start(self, name: str, attrs: dict[str, str]) -> None:
        if name == "t":
            self.events.start_text()

    def _end(self, name: str) -> None:
        if name == "t":
            self._item.append(self.events.take_text())
        elif name == "si":
            text = "".join(self._item)
            self._item.clear()
            self._room -= len(text) + 8
            self.strings.append(text if self._room > 0 else "…")


class SheetReader:
    """Reads rows of cells, separated by tabs."""

    def __init__(self, page: TextBuffer, strings: list[str]) -> None:
        self._page = page
        self._strings = strings
        self._row: list[str] = []
        self._column = 0
        self._kind = ""
        self._value: list[str] = []
        self.events = XmlReader(self._start, self._end)

    def _start(self, name: str, attrs: dict[str, str]) -> None:
        if name == "c":
            self._kind = attrs.get("t", "")
            self._column = _column(attrs.get("r", ""), len(self._row))
            self._value = []
        elif name in {"v", "t"}:
            self.events.start_text()

    def _end(self, name: str) -> None:
        if name in {"v", "t"}:
            self._value.append(self.events.take_text())
        elif name == "c":
            self._row += [""] * (self._column - len(self._row))
            self._row.append(self._text())
        elif name == "row":
            self._page.add("\t".join(self._row).rstrip("\t") + "\n")
            self._row = []

    def _text(self) -> str:
        value = "".join(self._value)
        if self._kind == "s":
            number = int(value) if value.isascii() and value.isdigit() else -1
            return self._strings[number] if 0 <= number < len(self._strings) else ""
        if self._kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        return " ".join(value.split())


def _column(cell: str, default: int) -> int:
    """Return the column index of a cell name: `C7` is column 2."""
    letters = re.match(r"[A-Z]{1,3}", cell)
    if not letters:
        return min(default, MAX_COLUMNS)
    number = 0
    for letter in letters[0]:
        number = number * 26 + ord(letter) - 64
    return min(number - 1, MAX_COLUMNS)


def _attribute(attrs: dict[str, str], name: str) -> str:
    return next((value for key, value in attrs.items() if _local(key) == name), "")


def _related(archive: ZipParts, part: str, element: str) -> list[tuple[str, str]]:
    """Return the parts listed in `part`, in order, each with its title."""
    rels = join(dirname(part), "_rels", basename(part) + ".rels")
    targets: dict[str, str] = {}
    wanted: list[tuple[str, str]] = []

    def relation(name: str, attrs: dict[str, str]) -> None:
        if name == "Relationship":
            targets[attrs.get("Id", "")] = attrs.get("Target", "")

    def listed(name: str, attrs: dict[str, str]) -> None:
        if name == element:
            key = next((value for key, value in attrs.items() if key.endswith(":id")), "")
            wanted.append((attrs.get("name", ""), key))

    for name, start in ((rels, relation), (part, listed)):
        if name not in archive.names:
            raise UnreadableDocument(f"its part {name} is missing")
        XmlReader(start, lambda _: None).read(archive, name)
    found = [(title, targets.get(key, "")) for title, key in wanted]
    paths = [
        (title, target.lstrip("/") if target.startswith("/") else join(dirname(part), target))
        for title, target in found
    ]
    return [
        (title, path)
        for title, path in ((t, normpath(p)) for t, p in paths)
        if path in archive.names
    ]


def docx(data: bytes, page: TextBuffer) -> None:
    archive = ZipParts(data, page)
    if "word/document.xml" not in archive.names:
        raise UnreadableDocument("it contains no document")
    for part in ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml"):
        if part in archive.names:
            ParagraphReader(page).events.read(archive, part)


def pptx(data: bytes, page: TextBuffer) -> None:
    archive = ZipParts(data, page)
    for number, (_, part) in enumerate(_related(archive, "ppt/presentation.xml", "sldId"), 1):
        page.add(f"--- slide {number} ---\n")
        ParagraphReader(page).events.read(archive, part)


def xlsx(data: bytes, page: TextBuffer) -> None:
    archive = ZipParts(data, page)
    strings = SharedStrings()
    if "xl/sharedStrings.xml" in archive.names:
        strings.events.read(archive, "xl/sharedStrings.xml")
    for title, part in _related(archive, "xl/workbook.xml", "sheet"):
        page.add(f"--- sheet {title} ---\n")
        SheetReader(page, strings.strings).events.read(archive, part)


def pdf(data: bytes, page: TextBuffer) -> None:
    try:
        from pypdf import PdfReader  # noqa: PLC0415 - only needed for a PDF
        from pypdf.errors import PyPdfError  # noqa: PLC0415 - likewise
    except ImportError as error:
        raise UnreadableDocument(
            "the library that reads PDF files (pypdf) is not installed"
        ) from error
    try:
        reader = PdfReader(BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableDocument("it is protected by a password")
        count = len(reader.pages)
        for number in range(min(count, MAX_PAGES)):
            page.add(f"--- page {number + 1} of {count} ---\n{_pdf_page(reader.pages[number])}\n")
        if count > MAX_PAGES:
            page.note = f"Only the first {MAX_PAGES:,} pages."
    except PyPdfError as error:
        raise UnreadableDocument(f"it is a damaged PDF ({error})") from error


def _pdf_page(page: object) -> str:
    extract = getattr(page, "extract_text")  # noqa: B009 - the library has no types
    try:
        return str(extract()).strip() or "(no text on this page)"
    except RecursionError:
        return "(this page cannot be read: it is nested too deeply)"
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
        return f"(this page cannot be read: {type(error).__name__})"


EXTRACTORS = {"docx": docx, "pptx": pptx, "xlsx": xlsx, "pdf": pdf}


def extract(kind: str, data: bytes) -> dict[str, str]:
    """Return `text` and a `note`, or an `error`."""
    page = TextBuffer()
    try:
        EXTRACTORS[kind](data, page)
    except LimitReached:
        pass
    except UnreadableDocument as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "it takes more memory than a document should"}
    except Exception as error:  # noqa: BLE001 - a parser of untrusted files; logged by the caller
        return {"error": f"it is damaged ({type(error).__name__})"}
    return {"text": "".join(page.pieces), "note": page.note}


def main() -> None:
    # Keep warnings of libraries out of the answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 5, SECONDS + 10))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer = extract(sys.argv[1], sys.stdin.buffer.read())
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
