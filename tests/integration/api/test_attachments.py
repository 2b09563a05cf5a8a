"""Documents and image URLs: what the model gets, and what is never fetched."""

import base64
import io
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pypdf
import pytest
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from hermes.schema.messages import text_of
from support.api_server import KEY, ApiHarness, ApiResponse, api_harness

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
IMAGE_URL = "https://example.com/heron.png"


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pdf(*pages: str) -> bytes:
    """A PDF with a line of text on each page."""
    writer = pypdf.PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(200, 200)
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


async def ask(harness: ApiHarness, *parts: dict[str, Any]) -> ApiResponse:
    content = [{"type": "text", "text": "Read this."}, *parts]
    return await harness.chat({"messages": [{"role": "user", "content": content}]})


def sent(harness: ApiHarness) -> Any:
    return harness.model_request(-1)["messages"][-1]["content"]


@pytest.mark.parametrize(
    "value",
    [
        "data:text/markdown;base64," + base64_of("# Grüße".encode()),
        "data:text/markdown,%23%20Gr%C3%BC%C3%9Fe",
        base64_of("# Grüße".encode()),
        base64_of("# Grüße".encode("utf-16")),
    ],
)
async def test_text_file_is_sent_as_text(tmp_path: Path, value: str) -> None:
    async with api_harness(tmp_path) as harness:
        file = {"filename": "no\nte.md", "file_data": value}
        assert (await ask(harness, {"type": "file", "file": file})).status == 200
        assert "# Grüße\n[end of no te.md]" in sent(harness)
        assert (await ask(harness, {"type": "input_file", **file})).status == 200
        assert "# Grüße" in sent(harness)
        (kept, _) = await harness.sessions()
        assert "# Grüße" in text_of((await harness.messages(kept.session.id))[0])


async def test_pdf_becomes_text(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        data = "data:application/pdf;base64," + base64_of(pdf("first page", "second page"))
        file = {"filename": "report.pdf", "file_data": data}
        assert (await ask(harness, {"type": "file", "file": file})).status == 200
        assert "[attached: report.pdf (application/pdf)]" in sent(harness)
        assert "--- page 1 of 2 ---\nfirst page\n--- page 2 of 2 ---\nsecond page" in sent(harness)


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
RELATED = '<Relationships><Relationship Id="a" Target="{}"/></Relationships>'
OFFICE = {
    "docx": {
        "word/document.xml": f"<w:document {W}><w:body><w:p><w:r><w:t>heron</w:t></w:r></w:p>"
        "</w:body></w:document>"
    },
    "xlsx": {
        "xl/workbook.xml": f'<workbook {R}><sheets><sheet name="A" r:id="a"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": RELATED.format("worksheets/sheet1.xml"),
        "xl/worksheets/sheet1.xml": "<worksheet><sheetData><row><c r='A1' t='inlineStr'><is>"
        "<t>heron</t></is></c></row></sheetData></worksheet>",
    },
    "pptx": {
        "ppt/presentation.xml": f"<p:presentation xmlns:p='p' {R}><p:sldIdLst><p:sldId r:id='a'/>"
        "</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": RELATED.format("slides/slide1.xml"),
        "ppt/slides/slide1.xml": "<p:sld xmlns:p='p' xmlns:a='a'><a:p><a:r><a:t>heron</a:t></a:r>"
        "</a:p></p:sld>",
    },
}


@pytest.mark.parametrize("kind", OFFICE)
async def test_document_becomes_text(tmp_path: Path, kind: str) -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, text in OFFICE[kind].items():
            archive.writestr(name, text)
    async with api_harness(tmp_path) as harness:
        file = {"filename": f"note.{kind}", "file_data": base64_of(written.getvalue())}
        assert (await ask(harness, {"type": "file", "file": file})).status == 200
        assert f"[attached: note.{kind}" in sent(harness)
        assert "heron" in sent(harness)


async def test_broken_document_is_rejected_and_nothing_stored(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        for data in (b"%PDF-1.7 broken", pdf("a")[:200]):
            file = {"file_data": base64_of(data)}
            response = await ask(harness, {"type": "file", "file": file})
            assert (response.status, response.code) == (400, "unreadable_document")
        body = b'{"input": [{"content": [{"type": "input_file", "file_data": "JVBERi0xLjcg"}]}]}'
        for path in ("/v1/responses", "/v1/runs"):
            assert (await harness.ask("POST", path, body)).status == 400
        assert await harness.sessions() == []
        assert harness.model_server.requests == []


async def test_image_sent_as_a_file_is_an_image(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        file = {"filename": "a.png", "file_data": base64_of(PNG)}
        assert (await ask(harness, {"type": "file", "file": file})).status == 200
        assert sent(harness)[1]["image_url"]["url"] == "data:image/png;base64," + base64_of(PNG)


async def test_image_url_is_passed_on_unchanged(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        assert (
            await ask(harness, {"type": "image_url", "image_url": {"url": IMAGE_URL}})
        ).status == 200
        assert sent(harness)[1]["image_url"]["url"] == IMAGE_URL
        (kept,) = await harness.sessions()
        headers = {"X_Hermes_Session_Id": kept.session.id}
        again = {"messages": [{"role": "user", "content": "And what else?"}]}
        assert (await harness.chat(again, **headers)).status == 200
        assert IMAGE_URL in str(harness.model_request(-1)["messages"])


async def test_too_long_document_is_rejected(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        part = {"type": "file", "file": {"file_data": base64_of(b"a" * 1_000_001)}}
        body = msgspec.json.encode({"messages": [{"role": "user", "content": [part]}]})
        url, headers = f"{harness.url}/v1/chat/completions", {"Authorization": f"Bearer {KEY}"}
        async with harness.http.post(url, data=io.BytesIO(body), headers=headers) as response:
            reply = await response.json()
            assert (response.status, reply["error"]["code"]) == (413, "document_too_large")
