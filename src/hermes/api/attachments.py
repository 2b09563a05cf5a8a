"""What comes with a message besides words: pictures, addresses of pictures, and documents.

Nothing is fetched from anywhere. The address of a picture is handed to the model as it is; a
document becomes words, because every model can read those.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias, cast
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from hermes.api.errors import ApiError, invalid
from hermes.api.outside import is_public_url
from hermes.app.build import App
from hermes.kit.document_kinds import document_kind
from hermes.kit.pictures import picture_kind
from hermes.kit.text import one_line
from hermes.models.images import LINK
from hermes.ports.sandbox import Sandbox
from hermes.schema.errors import SandboxError, ToolError
from hermes.schema.messages import Media, Text
from hermes.tools.files.documents import Documents

LONGEST_LINK = 2_000
MOST_TEXT = 1_000_000
KINDS = {"pdf": "application/pdf", "ipynb": "application/x-ipynb+json"}
_MARKS = (("utf-8-sig", b"\xef\xbb\xbf"), ("utf-16", b"\xff\xfe"), ("utf-16", b"\xfe\xff"))
_Fields: TypeAlias = Mapping[str, object]


class Picture(Struct, frozen=True):
    """One that came with the request, or its address, and is not kept yet."""

    data: bytes
    kind: str


class Document(Struct, frozen=True):
    """`text` is None as long as it has to be made from the `data`, which is of a `made` kind."""

    name: str
    kind: str
    text: str | None
    data: bytes = b""
    made: str = ""


Attachment: TypeAlias = Picture | Document


def read_picture(given: object, place: str) -> Picture:
    """Raises `ApiError`."""
    url = given if isinstance(given, str) else _fields(given).get("url")
    if not isinstance(url, str) or not url:
        raise invalid("The image has no URL.", param=place, code="invalid_image_url")
    if url[:5].lower() != "data:":
        return _linked(url, place)
    data, _ = _data_url(url, place, "invalid_image_url")
    kind = picture_kind(data)
    if kind is None:
        told = "This is no image that is understood: PNG, JPEG, GIF and WebP are."
        raise invalid(told, param=place, code="unsupported_content_type")
    return Picture(data, kind)


def read_file(part: _Fields, place: str) -> Attachment:
    """A part `file` or `input_file`; one that is a picture is taken as such. Raises `ApiError`."""
    fields = _fields(part.get("file")) or part
    given = fields.get("file_data")
    if not isinstance(given, str) or not given:
        told = "A file must come whole, as file_data: nothing is fetched, and no files are kept."
        raise invalid(told, param=place, code="unsupported_file")
    named = fields.get("filename")
    name = one_line(named, 200) if isinstance(named, str) else ""
    data, kind = _file_data(given, place)
    if picture := picture_kind(data):
        return Picture(data, picture)
    if made := document_kind(Path(name), data):
        return Document(name or f"document.{made}", KINDS.get(made, kind), None, data, made)
    text = _as_text(data)
    if text is None:
        told = "This file is neither text, nor an image or a document that is understood."
        raise invalid(told, param=place, code="unsupported_file")
    return Document(name or "document", kind, _bounded(text, place))


async def keep(part: Attachment, app: App) -> Text | Media:
    """As a part of a message. Raises `ApiError` for a document that cannot be read."""
    match part:
        case Picture(data=data, kind=kind):
            return await app.blobs.put(data, kind, data.decode() if kind == LINK else "image")
        case Document(text=None):
            return _framed(part, await _extracted(part, app.toolbox.sandboxes.near))
        case Document(text=text):
            return _framed(part, text)


def _framed(document: Document, text: str | None) -> Text:
    name = document.name
    return Text(f"\n[attached: {name} ({document.kind})]\n{text}\n[end of {name}]\n")


def _linked(url: str, place: str) -> Picture:
    if len(url) > LONGEST_LINK or not is_public_url(url):
        told = "The address of an image must be a data: URL, or http(s) and not a private one."
        raise invalid(told, param=place, code="unsupported_image_url")
    return Picture(url.encode(), LINK)


def _data_url(url: str, place: str, code: str) -> tuple[bytes, str]:
    head, comma, body = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise invalid("The data: URL must be in base64.", param=place, code=code)
    return _decoded(body, place, code), head[5:].partition(";")[0].lower()


def _file_data(given: str, place: str) -> tuple[bytes, str]:
    """As a data: URL of either kind, or plain base64."""
    usual = "text/plain"
    if given[:5].lower() != "data:":
        return _decoded(given, place, "invalid_file"), usual
    head, comma, body = given.partition(",")
    if comma and not head.lower().endswith(";base64"):
        data = unquote_to_bytes(body)
    else:
        data = _data_url(given, place, "invalid_file")[0]
    kind = one_line(head[5:].partition(";")[0].lower(), 100)
    return data, kind or usual


def _decoded(body: str, place: str, code: str) -> bytes:
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("This is not valid base64.", param=place, code=code) from error


def _as_text(data: bytes) -> str | None:
    encoding = next((name for name, mark in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _bounded(text: str, place: str | None) -> str:
    if len(text) > MOST_TEXT:
        told = f"The document has more than {MOST_TEXT:,} characters. Send a part of it."
        raise ApiError(413, "document_too_large", told, param=place)
    return text


async def _extracted(document: Document, sandbox: Sandbox) -> str:
    """By a process of its own: what strangers made may do anything to whoever reads it."""
    path = Path(document.name)
    try:
        found = await Documents(sandbox).text(document.made, document.data, path, ())
    except (ToolError, SandboxError) as error:
        told = f"{document.name!r} cannot be read: it is broken, locked, or takes too long."
        raise invalid(f"{told} Send it as text.", code="unreadable_document") from error
    if not found.text.strip():
        told = f"{document.name!r} has no text, perhaps only pictures. Send its pages as images."
        raise invalid(told, code="unreadable_document")
    return _bounded(found.text, None)


def _fields(given: object) -> _Fields:
    if not isinstance(given, dict):
        return {}
    return {str(name): value for name, value in cast("dict[object, object]", given).items()}
