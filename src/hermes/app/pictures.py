"""Pictures that a person hands over, taken into the blob store."""

from collections.abc import Sequence

import anyio

from hermes.ports.blobs import Blobs
from hermes.schema.errors import UsageError
from hermes.schema.messages import Media

LIMIT = 20_000_000
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


async def load_pictures(blobs: Blobs, names: Sequence[str]) -> list[Media]:
    """Raises `UsageError` for a file that is not there or is no picture we know."""
    return [await _load(blobs, await anyio.Path(name).expanduser()) for name in names]


async def _load(blobs: Blobs, path: anyio.Path) -> Media:
    try:
        data = await path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    kind = picture_kind(data)
    if kind is None:
        raise UsageError(f"{path} is no picture.", hint="PNG, JPEG, GIF and WebP are understood.")
    if len(data) > LIMIT:
        raise UsageError(f"{path} is larger than 20 MB.", hint="Make it smaller first.")
    return await blobs.put(data, kind, path.name)


def picture_kind(data: bytes) -> str | None:
    """The media type, by how the file begins."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _KINDS.items() if data.startswith(start)), None)
