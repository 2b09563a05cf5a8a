"""Load images that a person attaches into the blob store."""

from collections.abc import Sequence

import anyio

from hermes.kit.file_types import MAX_IMAGE_BYTES, image_type
from hermes.ports.blobs import Blobs
from hermes.schema.errors import UsageError
from hermes.schema.messages import Media


async def load_images(blobs: Blobs, names: Sequence[str]) -> list[Media]:
    """Raises `UsageError` for a missing file or an unsupported format."""
    return [await _load_image(blobs, await anyio.Path(name).expanduser()) for name in names]


async def _load_image(blobs: Blobs, path: anyio.Path) -> Media:
    try:
        async with await path.open("rb") as file:
            data = await file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"Cannot read {path}: {error.strerror}.",
            hint="Check the name and the permissions.",
        ) from error
    kind = image_type(data)
    if kind is None:
        raise UsageError(f"{path} is not an image.", hint="PNG, JPEG, GIF and WebP are supported.")
    if len(data) > MAX_IMAGE_BYTES:
        raise UsageError(
            f"{path} is larger than {MAX_IMAGE_BYTES:,} bytes.", hint="Make it smaller first."
        )
    return await blobs.put(data, kind, path.name)
