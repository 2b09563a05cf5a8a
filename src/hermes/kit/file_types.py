"""Detect image types and limit their size."""

from pathlib import PurePath

MAX_IMAGE_BYTES = 20_000_000
"""Bytes; images are sent to the model whole, as base64."""

_IMAGE_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def image_type(data: bytes) -> str | None:
    """The media type by the first 12 bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGE_TYPES.items() if data.startswith(start)), None)


_OFFICE = {".docx": "docx", ".docm": "docx", ".xlsx": "xlsx", ".xlsm": "xlsx", ".pptx": "pptx"}


def document_type(path: PurePath, head: bytes) -> str:
    """The media type by the first bytes, or for ambiguous ones by the name; empty if unknown."""
    suffix = path.suffix.lower()
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return _OFFICE.get(suffix, "")
    return "ipynb" if suffix == ".ipynb" and head.lstrip().startswith(b"{") else ""
