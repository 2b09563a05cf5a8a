"""Extract text from documents; untrusted formats are parsed in a separate process."""

import logging
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.lru_map import LruMap
from hermes.ports.sandbox import ProcessSpec, Sandbox
from hermes.schema.errors import SandboxError, ToolError

log = logging.getLogger(__name__)

MAX_DOCUMENT = 32 << 20
"""Bytes."""
TIMEOUT = 30.0
MAX_ANSWER = 16 << 20
"""Bytes of the answer, whose characters may be escaped."""
CACHE_SIZE = 4
"""Documents whose text is cached for the next page."""
MAX_OUTPUT = 4_000
"""Characters of one output of a notebook cell."""

_CHILD = str(Path(__file__).with_name("extraction.py"))

Stamp = tuple[int, ...]


class ExtractedText(Struct, frozen=True):
    text: str = ""
    note: str = ""
    error: str = ""


class DocumentReader:
    """`sandbox` runs the process that parses untrusted documents."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._kept: LruMap[Stamp, ExtractedText] = LruMap(CACHE_SIZE)

    async def text(self, kind: str, data: bytes, path: Path, stamp: Stamp) -> ExtractedText:
        """Raises `ToolError` if the document cannot be read."""
        known = self._kept.get(stamp)
        if known is not None:
            return known
        found = read_notebook(data) if kind == "ipynb" else await self._extract(kind, data, path)
        if found.error:
            log.info("no text could be extracted from %s: %s", path, found.error)
            raise ToolError(
                f"read_file: {path} cannot be read: {found.error}.",
                hint="Try a program in the terminal.",
            )
        self._kept.put(stamp, found)
        return found

    async def _extract(self, kind: str, data: bytes, path: Path) -> ExtractedText:
        job = ProcessSpec(
            argv=(sys.executable, "-I", "-B", _CHILD, kind),
            cwd="/",
            env={"LANG": "C.UTF-8"},
            timeout=TIMEOUT,
            stdin=data,
            keep=MAX_ANSWER,
        )
        try:
            done = await self._sandbox.run(job)
        except SandboxError as error:
            raise ToolError(f"read_file: {path}: {error}", hint=error.hint) from error
        if done.timed_out:
            return ExtractedText(error=f"it took longer than {TIMEOUT:g} s")
        try:
            return msgspec.json.decode(done.output, type=ExtractedText)
        except JSON_ERRORS:
            return ExtractedText(
                error=f"the program that extracts its text failed (exit code {done.exit_code})"
            )


class _Output(Struct, frozen=True):
    output_type: str = ""
    text: str | list[str] = ""
    data: dict[str, msgspec.Raw] = {}
    ename: str = ""
    evalue: str = ""


class _Cell(Struct, frozen=True):
    cell_type: str = "code"
    source: str | list[str] = ""
    outputs: list[_Output] = []


class _Notebook(Struct, frozen=True):
    cells: list[_Cell]


_NOTEBOOK = msgspec.json.Decoder(_Notebook)
_TEXT = msgspec.json.Decoder(str | list[str])


def read_notebook(data: bytes) -> ExtractedText:
    """Return the cells in order, code with its output."""
    try:
        cells = _NOTEBOOK.decode(data).cells
    except JSON_ERRORS as error:
        return ExtractedText(error=f"it is not a valid notebook ({error})")
    pieces: list[str] = []
    for number, cell in enumerate(cells, 1):
        pieces.append(f"--- cell {number} ({cell.cell_type}) ---\n{_joined(cell.source)}")
        outputs = [text for output in cell.outputs if (text := _output_text(output))]
        if outputs:
            pieces.append("--- output ---\n" + "\n".join(outputs))
    return ExtractedText(
        text="\n".join(pieces),
        note="These are a notebook's cells; the file itself is JSON.",
    )


def _output_text(output: _Output) -> str:
    if output.ename:
        return f"{output.ename}: {output.evalue}"[:MAX_OUTPUT]
    text = _joined(output.text)
    plain = output.data.get("text/plain")
    if not text and plain is not None:
        try:
            text = _joined(_TEXT.decode(plain))
        except JSON_ERRORS:
            text = ""
    shown = text.rstrip("\n")
    cut = f"{shown[:MAX_OUTPUT]} [… {len(shown) - MAX_OUTPUT:,} more]"
    others = [f"({kind})" for kind in output.data if not kind.startswith("text/")]
    return " ".join(filter(None, [shown if len(shown) <= MAX_OUTPUT else cut, *others]))


def _joined(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)
