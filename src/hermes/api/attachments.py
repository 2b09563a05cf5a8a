"""Read images, image URLs and documents attached to a message.

Nothing is fetched: an image URL is passed to the model as it is, and a document is converted to
text, which every model can read.
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
from hermes.kit.files import document_type, image_type
from hermes.kit.hosts import is_public_url
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
    """An image that is not stored yet. With the kind `LINK_TYPE`, `data` is its URL."""

    data: bytes
    kind: str


class AttachedDocument(Struct, frozen=True):
    """A document of the media type `kind`.

    If `text` is None, it is extracted from `data`, a file in the format `format`, such as `pdf`.
    """

    name: str
    kind: str
    text: str | None
    data: bytes = b""
    format: str = ""


Attachment: TypeAlias = AttachedImage | AttachedDocument


def read_image(value: object, param: str) -> AttachedImage:
    """Raises `ApiError` if the image is not supported."""
    url = value if isinstance(value, str) else _as_fields(value).get("url")
    if not isinstance(url, str) or not url:
        raise invalid("The image has no URL.", param=param, code="invalid_image_url")
    if url[:5].lower() != "data:":
        if len(url) > MAX_LINK or not is_public_url(url):
            message = "An image URL must be a data: URL or a public http(s) URL."
            raise invalid(message, param=param, code="unsupported_image_url")
        return AttachedImage(url.encode(), LINK_TYPE)
    head, comma, body = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        message = "The data: URL must be base64-encoded."
        raise invalid(message, param=param, code="invalid_image_url")
    data = _decode_base64(body, param, "invalid_image_url")
    kind = image_type(data)
    if kind is None:
        message = "Unsupported image format. Use PNG, JPEG, GIF or WebP."
        raise invalid(message, param=param, code="unsupported_content_type")
    return AttachedImage(data, kind)


def read_file(part: _Fields, param: str) -> Attachment:
    """Read a `file` or `input_file` part; an image file becomes an image. Raises `ApiError`."""
    fields = _as_fields(part.get("file")) or part
    file_data = fields.get("file_data")
    if not isinstance(file_data, str) or not file_data:
        message = "Send the file content as file_data: files are neither fetched nor stored."
        raise invalid(message, param=param, code="unsupported_file")
    filename = fields.get("filename")
    name = one_line(filename, 200) if isinstance(filename, str) else ""
    data, kind = _read_file_data(file_data, param)
    if picture := image_type(data):
        return AttachedImage(data, picture)
    if document_format := document_type(Path(name), data):
        return AttachedDocument(
            name or f"document.{document_format}",
            MEDIA_TYPES.get(document_format, kind),
            None,
            data,
            document_format,
        )
    text = _as_text(data)
    if text is None:
        message = "This file is neither text nor a supported image or document."
        raise invalid(message, param=param, code="unsupported_file")
    return AttachedDocument(name or "document", kind, _check_length(text, param))


async def store_attachment(part: Attachment, app: App) -> Text | Media:
    """Convert to a message part. Raises `ApiError` for a document that cannot be read."""
    match part:
        case AttachedImage(data=data, kind=kind):
            return await app.blobs.put(data, kind, data.decode() if kind == LINK_TYPE else "image")
        case AttachedDocument(text=None):
            return _document_text(part, await _extract_text(part, app.sandboxes.local))
        case AttachedDocument(text=text):
            return _document_text(part, text)


def _document_text(document: AttachedDocument, text: str | None) -> Text:
    name = document.name
    return Text(f"\n[attached: {name} ({document.kind})]\n{text}\n[end of {name}]\n")


def _read_file_data(text: str, param: str) -> tuple[bytes, str]:
    """Decode a data: URL (base64 or percent-encoded) or plain base64."""
    default = "text/plain"
    if text[:5].lower() != "data:":
        return _decode_base64(text, param, "invalid_file"), default
    head, comma, body = text.partition(",")
    if not comma:
        raise invalid("The data: URL has no comma.", param=param, code="invalid_file")
    is_base64 = head.lower().endswith(";base64")
    data = _decode_base64(body, param, "invalid_file") if is_base64 else unquote_to_bytes(body)
    kind = one_line(head[5:].partition(";")[0].lower(), 100)
    return data, kind or default


def _decode_base64(body: str, param: str, code: str) -> bytes:
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("This is not valid base64.", param=param, code=code) from error


def _as_text(data: bytes) -> str | None:
    encoding = next((name for name, mark in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _check_length(text: str, param: str | None) -> str:
    if len(text) > MAX_TEXT:
        message = f"The document has more than {MAX_TEXT:,} characters. Send only a part of it."
        raise ApiError(413, "document_too_large", message, param=param)
    return text


async def _extract_text(document: AttachedDocument, sandbox: Sandbox) -> str:
    """Extract the text in a separate process, because the document is untrusted."""
    path = Path(document.name)
    try:
        document_text = await DocumentReader(sandbox).text(document.format, document.data, path, ())
    except (ToolError, SandboxError) as error:
        message = f"{document.name!r} cannot be read: it is damaged, encrypted, or takes too long."
        raise invalid(f"{message} Send it as text.", code="unreadable_document") from error
    if not document_text.text.strip():
        message = f"{document.name!r} has no text, perhaps only images. Send its pages as images."
        raise invalid(message, code="unreadable_document")
    return _check_length(document_text.text, None)


def _as_fields(fields: object) -> _Fields:
    if not isinstance(fields, dict):
        return {}
    return {str(name): value for name, value in cast("dict[object, object]", fields).items()}
