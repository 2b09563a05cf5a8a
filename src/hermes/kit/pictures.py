"""Which pictures we understand, and how large one may be."""

MAX_PICTURE = 20_000_000
"""Bytes; a picture goes to the model whole, and a third longer."""

_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def picture_kind(data: bytes) -> str | None:
    """The media type, by how the file begins: its first 12 bytes are enough."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _KINDS.items() if data.startswith(start)), None)
