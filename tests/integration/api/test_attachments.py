"""Documents and addresses of pictures: what the model is given, and what is never fetched."""

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

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
FAR = "https://example.com/heron.png"


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


async def ask(one: ApiHarness, *parts: dict[str, Any]) -> ApiResponse:
    content = [{"type": "text", "text": "Read this."}, *parts]
    return await one.chat({"messages": [{"role": "user", "content": content}]})


def sent(one: ApiHarness) -> Any:
    return one.asked(-1)["messages"][-1]["content"]


@pytest.mark.parametrize(
    "given",
    [
        "data:text/markdown;base64," + base64_of("# Grüße".encode()),
        "data:text/markdown,%23%20Gr%C3%BC%C3%9Fe",
        base64_of("# Grüße".encode()),
        base64_of("# Grüße".encode("utf-16")),
    ],
)
async def test_a_text_is_read_by_every_model(tmp_path: Path, given: str) -> None:
    async with api_harness(tmp_path) as one:
        file = {"filename": "no\nte.md", "file_data": given}
        assert (await ask(one, {"type": "file", "file": file})).status == 200
        assert "# Grüße\n[end of no te.md]" in sent(one)
        assert (await ask(one, {"type": "input_file", **file})).status == 200
        assert "# Grüße" in sent(one)
        (kept, _) = await one.sessions()
        assert "# Grüße" in text_of((await one.said(kept.session.id))[0])


async def test_a_pdf_becomes_words(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        data = "data:application/pdf;base64," + base64_of(pdf("first page", "second page"))
        file = {"filename": "report.pdf", "file_data": data}
        assert (await ask(one, {"type": "file", "file": file})).status == 200
        assert "[attached: report.pdf (application/pdf)]" in sent(one)
        assert "--- page 1 of 2 ---\nfirst page\n--- page 2 of 2 ---\nsecond page" in sent(one)


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
async def test_an_office_document_becomes_words(tmp_path: Path, kind: str) -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, text in OFFICE[kind].items():
            archive.writestr(name, text)
    async with api_harness(tmp_path) as one:
        file = {"filename": f"note.{kind}", "file_data": base64_of(written.getvalue())}
        assert (await ask(one, {"type": "file", "file": file})).status == 200
        assert f"[attached: note.{kind}" in sent(one)
        assert "heron" in sent(one)


async def test_a_broken_document_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        for data in (b"%PDF-1.7 broken", pdf("a")[:200]):
            file = {"file_data": base64_of(data)}
            told = await ask(one, {"type": "file", "file": file})
            assert (told.status, told.code) == (400, "unreadable_document")
        body = b'{"input": [{"content": [{"type": "input_file", "file_data": "JVBERi0xLjcg"}]}]}'
        for path in ("/v1/responses", "/v1/runs"):
            assert (await one.ask("POST", path, body)).status == 400
        assert await one.sessions() == []
        assert one.mock.requests == []


async def test_a_picture_sent_as_a_file_is_a_picture(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        file = {"filename": "a.png", "file_data": base64_of(PNG)}
        assert (await ask(one, {"type": "file", "file": file})).status == 200
        assert sent(one)[1]["image_url"]["url"] == "data:image/png;base64," + base64_of(PNG)


async def test_an_address_of_a_picture_is_handed_on_as_it_is(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        assert (await ask(one, {"type": "image_url", "image_url": {"url": FAR}})).status == 200
        assert sent(one)[1]["image_url"]["url"] == FAR
        (kept,) = await one.sessions()
        headers = {"X_Hermes_Session_Id": kept.session.id}
        again = {"messages": [{"role": "user", "content": "And what else?"}]}
        assert (await one.chat(again, **headers)).status == 200
        assert FAR in str(one.asked(-1)["messages"])


async def test_a_document_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        part = {"type": "file", "file": {"file_data": base64_of(b"a" * 1_000_001)}}
        body = msgspec.json.encode({"messages": [{"role": "user", "content": [part]}]})
        url, headers = f"{one.url}/v1/chat/completions", {"Authorization": f"Bearer {KEY}"}
        async with one.http.post(url, data=io.BytesIO(body), headers=headers) as response:
            told = await response.json()
            assert (response.status, told["error"]["code"]) == (413, "document_too_large")
