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
from hermes.app.build import App
from hermes.kit.file_types import document_type, image_type
from hermes.kit.public_urls import is_public_url
from hermes.kit.text import one_line
from hermes.models.images import LINK_TYPE
from hermes.ports.sandbox import Sandbox
from hermes.schema.errors import SandboxError, ToolError
from hermes.schema.messages import Media, Text
from hermes.tools.files.documents import DocumentReader

MAX_LINK = 2_000
MAX_TEXT = 1_000_000
MEDIA_TYPES = {"pdf": "application/pdf", "ipynb": "application/x-ipynb+json"}
_BYTE_ORDER_MARKS = (
    ("utf-8-sig", b"\xef\xbb\xbf"),
    ("utf-16", b"\xff\xfe"),
    ("utf-16", b"\xfe\xff"),
)
_Fields: TypeAlias = Mapping[str, object]


class AttachedImage(Struct, frozen=True):
    """One that came with the request, or its address, and is not kept yet."""

    data: bytes
    kind: str


class AttachedDocument(Struct, frozen=True):
    """`text` is None as long as it has to be made from the `data`, which is of a `made` kind."""

    name: str
    kind: str
    text: str | None
    data: bytes = b""
    made: str = ""


Attachment: TypeAlias = AttachedImage | AttachedDocument


def read_image(given: object, place: str) -> AttachedImage:
    """Raises `ApiError`."""
    url = given if isinstance(given, str) else _as_fields(given).get("url")
    if not isinstance(url, str) or not url:
        raise invalid("The image has no URL.", param=place, code="invalid_image_url")
    if url[:5].lower() != "data:":
        return _image_link(url, place)
    data, _ = _read_data_url(url, place, "invalid_image_url")
    kind = image_type(data)
    if kind is None:
        told = "This is no image that is understood: PNG, JPEG, GIF and WebP are."
        raise invalid(told, param=place, code="unsupported_content_type")
    return AttachedImage(data, kind)


def read_file(part: _Fields, place: str) -> Attachment:
    """A part `file` or `input_file`; one that is a picture is taken as such. Raises `ApiError`."""
    fields = _as_fields(part.get("file")) or part
    given = fields.get("file_data")
    if not isinstance(given, str) or not given:
        told = "A file must come whole, as file_data: nothing is fetched, and no files are kept."
        raise invalid(told, param=place, code="unsupported_file")
    named = fields.get("filename")
    name = one_line(named, 200) if isinstance(named, str) else ""
    data, kind = _read_file_data(given, place)
    if picture := image_type(data):
        return AttachedImage(data, picture)
    if made := document_type(Path(name), data):
        return AttachedDocument(
            name or f"document.{made}", MEDIA_TYPES.get(made, kind), None, data, made
        )
    text = _as_text(data)
    if text is None:
        told = "This file is neither text, nor an image or a document that is understood."
        raise invalid(told, param=place, code="unsupported_file")
    return AttachedDocument(name or "document", kind, _check_length(text, place))


async def store_attachment(part: Attachment, app: App) -> Text | Media:
    """As a part of a message. Raises `ApiError` for a document that cannot be read."""
    match part:
        case AttachedImage(data=data, kind=kind):
            return await app.blobs.put(data, kind, data.decode() if kind == LINK_TYPE else "image")
        case AttachedDocument(text=None):
            return _document_text(part, await _extract_text(part, app.toolbox.sandboxes.near))
        case AttachedDocument(text=text):
            return _document_text(part, text)


def _document_text(document: AttachedDocument, text: str | None) -> Text:
    name = document.name
    return Text(f"\n[attached: {name} ({document.kind})]\n{text}\n[end of {name}]\n")


def _image_link(url: str, place: str) -> AttachedImage:
    if len(url) > MAX_LINK or not is_public_url(url):
        told = "The address of an image must be a data: URL, or http(s) and not a private one."
        raise invalid(told, param=place, code="unsupported_image_url")
    return AttachedImage(url.encode(), LINK_TYPE)


def _read_data_url(url: str, place: str, code: str) -> tuple[bytes, str]:
    head, comma, body = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise invalid("The data: URL must be in base64.", param=place, code=code)
    return _decode_base64(body, place, code), head[5:].partition(";")[0].lower()


def _read_file_data(given: str, place: str) -> tuple[bytes, str]:
    """As a data: URL of either kind, or plain base64."""
    usual = "text/plain"
    if given[:5].lower() != "data:":
        return _decode_base64(given, place, "invalid_file"), usual
    head, comma, body = given.partition(",")
    if comma and not head.lower().endswith(";base64"):
        data = unquote_to_bytes(body)
    else:
        data = _read_data_url(given, place, "invalid_file")[0]
    kind = one_line(head[5:].partition(";")[0].lower(), 100)
    return data, kind or usual


def _decode_base64(body: str, place: str, code: str) -> bytes:
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("This is not valid base64.", param=place, code=code) from error


def _as_text(data: bytes) -> str | None:
    encoding = next((name for name, mark in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _check_length(text: str, place: str | None) -> str:
    if len(text) > MAX_TEXT:
        told = f"The document has more than {MAX_TEXT:,} characters. Send a part of it."
        raise ApiError(413, "document_too_large", told, param=place)
    return text


async def _extract_text(document: AttachedDocument, sandbox: Sandbox) -> str:
    """By a process of its own: what strangers made may do anything to whoever reads it."""
    path = Path(document.name)
    try:
        found = await DocumentReader(sandbox).text(document.made, document.data, path, ())
    except (ToolError, SandboxError) as error:
        told = f"{document.name!r} cannot be read: it is broken, locked, or takes too long."
        raise invalid(f"{told} Send it as text.", code="unreadable_document") from error
    if not found.text.strip():
        told = f"{document.name!r} has no text, perhaps only pictures. Send its pages as images."
        raise invalid(told, code="unreadable_document")
    return _check_length(found.text, None)


def _as_fields(given: object) -> _Fields:
    if not isinstance(given, dict):
        return {}
    return {str(name): value for name, value in cast("dict[object, object]", given).items()}
