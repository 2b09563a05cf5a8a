"""Pictures that a person hands over, taken into the blob store."""

from collections.abc import Sequence

import anyio

from hermes.kit.pictures import MAX_PICTURE, picture_kind
from hermes.ports.blobs import Blobs
from hermes.schema.errors import UsageError
from hermes.schema.messages import Media


async def load_pictures(blobs: Blobs, names: Sequence[str]) -> list[Media]:
    """Raises `UsageError` for a file that is not there or is no picture we know."""
    return [await _load(blobs, await anyio.Path(name).expanduser()) for name in names]


async def _load(blobs: Blobs, path: anyio.Path) -> Media:
    try:
        async with await path.open("rb") as file:
            data = await file.read(MAX_PICTURE + 1)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.",
            hint="Check the name, and that you may read it.",
        ) from error
    kind = picture_kind(data)
    if kind is None:
        raise UsageError(f"{path} is no picture.", hint="PNG, JPEG, GIF and WebP are understood.")
    if len(data) > MAX_PICTURE:
        raise UsageError(
            f"{path} is larger than {MAX_PICTURE:,} bytes.", hint="Make it smaller first."
        )
    return await blobs.put(data, kind, path.name)
