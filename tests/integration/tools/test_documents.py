"""Documents as shown by `read_file`, including hostile ones."""

import json
from collections.abc import Awaitable, Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import anyio
import msgspec
import pytest
from msgspec import Raw
from pypdf import PdfReader, PdfWriter

from hermes.kit.clock import SystemClock
from hermes.ports.sandbox import ProcessResult, ProcessSpec, Sandbox
from hermes.ports.tool import ToolContext
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.store.blobs import FileBlobs
from hermes.tools.files.documents import DocumentReader
from hermes.tools.files.editor import SeenFiles
from hermes.tools.files.read import ReadDeps, ReadFile
from hermes.tools.paths import SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.thread_runner import ThreadRunner

Read = Callable[..., Awaitable[dict[str, Any]]]

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'


class CountingSandbox:
    """A real sandbox that counts its jobs."""

    def __init__(self, sandbox: LocalSandbox) -> None:
        self._sandbox = sandbox
        self.jobs: list[ProcessSpec] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._sandbox, name)

    async def run(
        self, job: ProcessSpec, on_output: Any = None, *, pty: bool = False
    ) -> ProcessResult:
        self.jobs.append(job)
        return await self._sandbox.run(job, on_output, pty=pty)


class DocumentHarness:
    def __init__(self, folder: Path, spawner: Spawner) -> None:
        self.folder = folder
        self.sandbox = CountingSandbox(LocalSandbox(spawner))
        sandbox: Sandbox = self.sandbox  # pyright: ignore[reportAssignmentType]
        parts = ReadDeps(
            paths=SessionPaths(folder),
            seen=SeenFiles(),
            blobs=FileBlobs(folder / "blobs"),
            redact=lambda text: text.replace("topsecret", "[redacted]"),
            threads=ThreadRunner(),
            documents=DocumentReader(sandbox),
            provenance=FileProvenance(SystemClock()),
        )
        self._tool = ReadFile(parts)

    async def read(self, name: str, data: bytes = b"", **args: int) -> dict[str, Any]:
        if data:
            (self.folder / name).write_bytes(data)

        async def progress(_: str) -> None:
            await anyio.lowlevel.checkpoint()

        ctx = ToolContext(Scope("p", "s", "r", str(self.folder)), "c", progress)
        with anyio.fail_after(60):
            output = await self._tool.run(Raw(msgspec.json.encode({"path": name} | args)), ctx)
        part = output.parts[0]
        assert isinstance(part, Text)
        return msgspec.json.decode(part.text)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[DocumentHarness]:
    with Spawner() as spawner:
        yield DocumentHarness(tmp_path, spawner)


def zipped(**parts: str | bytes) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return file.getvalue()


def docx(body: str, before: str = "") -> bytes:
    text = f"<?xml version='1.0'?>{before}<w:document {W}><w:body>{body}</w:body></w:document>"
    return zipped(**{"word/document.xml": text})


def paragraph(text: str, style: str = "") -> str:
    kind = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{kind}<w:r><w:t>{text}</w:t></w:r></w:p>"


def relations(**targets: str) -> str:
    listed = "".join(f'<Relationship Id="{i}" Target="{t}"/>' for i, t in targets.items())
    return f"<Relationships>{listed}</Relationships>"


def pdf(*pages: str) -> bytes:
    """A minimal PDF with one line of text per page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, text in enumerate(pages):
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] "
            f"/Contents {5 + 2 * number} 0 R /Resources << /Font << /F1 3 0 R >> >> >>"
        )
        stream = f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    data = b"%PDF-1.4\n"
    places: list[int] = []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n{table}"
    end += f"trailer << /Size {len(places) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + end.encode()


async def test_word_document(harness: DocumentHarness):
    row = "<w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr>"
    table = "<w:tbl>" + row.format(paragraph("a"), paragraph("b")) + "</w:tbl>"
    body = paragraph("Title", "Heading1") + paragraph("Grüße &amp; topsecret") + table
    answer = await harness.read("a.docx", docx(body))
    assert answer["content"] == "1|# Title\n2|Grüße & [redacted]\n3|a  | b  | "
    assert (answer["total_lines"], answer["is_binary"]) == (3, False)


async def test_workbook(harness: DocumentHarness):
    data = zipped(
        **{
            "xl/workbook.xml": f'<workbook {R}><sheets><sheet name="B" r:id="r2"/>'
            '<sheet name="A" r:id="r1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(
                r1="worksheets/sheet1.xml", r2="/xl/worksheets/sheet2.xml"
            ),
            "xl/sharedStrings.xml": "<sst><si><t>one</t></si><si><r><t>tw</t></r><r><t>o</t></r>"
            "</si></sst>",
            "xl/worksheets/sheet1.xml": "<worksheet><sheetData><row><c r='A1' t='s'><v>0</v></c>"
            "<c r='C1' t='s'><v>1</v></c></row><row><c r='A2'><v>4.5</v></c>"
            "<c r='B2' t='b'><v>1</v></c><c r='C2' t='inlineStr'><is><t>in</t></is></c>"
            "<c r='D2' t='s'><v>99</v></c></row></sheetData></worksheet>",
            "xl/worksheets/sheet2.xml": "<worksheet/>",
        }
    )
    answer = await harness.read("a.xlsx", data)
    assert answer["content"] == (
        "1|--- sheet B ---\n2|--- sheet A ---\n3|one\t\ttwo\n4|4.5\tTRUE\tin"
    )


async def test_slides_in_order(harness: DocumentHarness):
    slide = "<p:sld xmlns:p='p' xmlns:a='a'><a:p><a:r><a:t>{}</a:t></a:r></a:p></p:sld>"
    data = zipped(
        **{
            "ppt/presentation.xml": f"<p:presentation xmlns:p='p' {R}><p:sldIdLst>"
            "<p:sldId r:id='b'/><p:sldId r:id='a'/></p:sldIdLst></p:presentation>",
            "ppt/_rels/presentation.xml.rels": relations(
                a="slides/slide1.xml", b="slides/slide2.xml"
            ),
            "ppt/slides/slide1.xml": slide.format("second"),
            "ppt/slides/slide2.xml": slide.format("first"),
        }
    )
    answer = await harness.read("a.pptx", data)
    assert answer["content"] == "1|--- slide 1 ---\n2|first\n3|--- slide 2 ---\n4|second"


async def test_pdf_is_extracted_once_and_paged(harness: DocumentHarness):
    data = pdf("first words", "second topsecret")
    answer = await harness.read("a.pdf", data)
    assert answer["content"] == (
        "1|--- page 1 of 2 ---\n2|first words\n3|--- page 2 of 2 ---\n4|second [redacted]"
    )
    rest = await harness.read("a.pdf", offset=3, limit=1)
    assert rest["content"] == "3|--- page 2 of 2 ---"
    assert len(harness.sandbox.jobs) == 1
    assert harness.sandbox.jobs[0].env == {"LANG": "C.UTF-8"}
    await harness.read("b", pdf("another name"))
    assert len(harness.sandbox.jobs) == 2


async def test_encrypted_pdf_is_refused(harness: DocumentHarness):
    writer = PdfWriter(PdfReader(BytesIO(pdf("words"))))
    writer.encrypt("password", algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    with pytest.raises(ToolError, match="protected by a password"):
        await harness.read("a.pdf", out.getvalue())


async def test_notebook(harness: DocumentHarness):
    cells = [
        {"cell_type": "markdown", "source": ["# Head\n", "text"]},
        {
            "cell_type": "code",
            "source": "print(1)",
            "outputs": [
                {"output_type": "stream", "text": ["1\n"]},
                {
                    "output_type": "display_data",
                    "data": {"image/png": "abc", "text/plain": ["fig"]},
                },
                {"output_type": "error", "ename": "ValueError", "evalue": "topsecret"},
            ],
        },
    ]
    answer = await harness.read("a.ipynb", json.dumps({"cells": cells}).encode())
    assert answer["content"].split("\n") == [
        "1|--- cell 1 (markdown) ---", "2|# Head", "3|text", "4|--- cell 2 (code) ---",
        "5|print(1)", "6|--- output ---", "7|1", "8|fig (image/png)", "9|ValueError: [redacted]",
    ]  # fmt: skip
    assert "JSON" in answer["note"]
    with pytest.raises(ToolError, match="not a valid notebook"):
        await harness.read("b.ipynb", b'{"cells": 7}')
    with pytest.raises(ToolError, match="not a valid notebook"):
        await harness.read("c.ipynb", b'{"cells":' + b"[" * 100_000)


LAUGHS = "<!DOCTYPE d [<!ENTITY a 'ha'>{}]>".format(
    "".join(f"<!ENTITY {chr(98 + n)} '{f'&{chr(97 + n)};' * 10}'>" for n in range(12))
)
OUTSIDE = "<!DOCTYPE d [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>"


def bomb() -> bytes:
    """A hundred megabytes compressed to a hundred kilobytes."""
    head = f"<w:document {W}><w:body>".encode()
    return zipped(**{"word/document.xml": head + b" " * 100_000_000})


def deep_pdf() -> bytes:
    """Pages whose tree contains itself."""
    return pdf("x").replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]")


HOSTILE = {
    "laughs.docx": lambda: docx(paragraph("&m;"), LAUGHS),
    "outside.docx": lambda: docx(paragraph("&a;"), OUTSIDE),
    "wide.docx": lambda: zipped(**{"word/document.xml": (LAUGHS + "<d>&m;</d>").encode("utf-16")}),
    "none.docx": lambda: zipped(other="x"),
    "cut.docx": lambda: docx(paragraph("words"))[:-30],
    "torn.docx": lambda: docx("<w:p>"),
    "lies.docx": lambda: docx(paragraph("words")).replace(b"word/document", b"word/d0cument", 1),
    "none.xlsx": lambda: zipped(**{"xl/workbook.xml": "<workbook/>"}),
    "none.pptx": lambda: zipped(**{"ppt/slides/slide1.xml": "<a/>"}),
    "head.pdf": lambda: b"%PDF-1.7\n",
    "noise.pdf": lambda: b"%PDF-1.7\n" + bytes(range(256)) * 400,
    "loop.pdf": deep_pdf,
    "size.pdf": lambda: pdf("x").replace(b"/Count 1", b"/Count 999999999"),
    "nested.pdf": lambda: (
        b"%PDF-1.7\n1 0 obj\n" + b"[" * 200_000 + b"\nendobj\ntrailer << /Root 1 0 R >>"
    ),
    "filters.pdf": lambda: pdf("x").replace(
        b"/Length", b"/Filter [" + b"/FlateDecode " * 1_000 + b"] /Length"
    ),
}


@pytest.mark.parametrize("name", list(HOSTILE))
async def test_hostile_document_breaks_nothing(harness: DocumentHarness, name: str):
    """It is read or refused quickly with one sentence, and reveals nothing foreign."""
    text = ""
    try:
        text = (await harness.read(name, HOSTILE[name]()))["content"]
    except ToolError as error:
        text = error.sentence
    assert 0 < len(text) < 200_000
    assert "root:" not in text
    assert "hahaha" not in text


async def test_zip_bomb_is_refused(harness: DocumentHarness):
    with pytest.raises(ToolError, match="unpacks to more"):
        await harness.read("bomb.docx", bomb())


async def test_overlong_text_is_cut(harness: DocumentHarness):
    answer = await harness.read("long.docx", docx(paragraph("x" * 1_000) * 3_000), offset=-1)
    assert "Cut after 2,000,000 characters." in answer["note"]
    assert answer["total_lines"] < 2_100
