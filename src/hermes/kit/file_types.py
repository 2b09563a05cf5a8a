"""Which pictures we understand, and how large one may be."""

from pathlib import PurePath

MAX_IMAGE_BYTES = 20_000_000
"""Bytes; a picture goes to the model whole, and a third longer."""

_IMAGE_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def image_type(data: bytes) -> str | None:
    """The media type, by how the file begins: its first 12 bytes are enough."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGE_TYPES.items() if data.startswith(start)), None)


_OFFICE = {".docx": "docx", ".docm": "docx", ".xlsx": "xlsx", ".xlsm": "xlsx", ".pptx": "pptx"}


def document_type(path: PurePath, head: bytes) -> str:
    """By its first bytes, and for those that all begin alike by its name; empty for others."""
    suffix = path.suffix.lower()
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return _OFFICE.get(suffix, "")
    return "ipynb" if suffix == ".ipynb" and head.lstrip().startswith(b"{") else ""
