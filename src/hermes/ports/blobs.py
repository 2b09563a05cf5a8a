"""Content-addressed storage for images and documents that messages refer to."""

from typing import Protocol

from hermes.schema.messages import Media


class Blobs(Protocol):
    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        """Store the bytes durably; identical content is stored once."""
        ...

    async def read(self, digest: str) -> bytes:
        """Raises `NotFound`."""
        ...
