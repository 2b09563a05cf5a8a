"""Bytes by content address: images and documents that messages only name."""

from typing import Protocol

from hermes.schema.messages import Media


class Blobs(Protocol):
    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        """Durable when it returns; the same bytes are kept once."""
        ...

    async def read(self, digest: str) -> bytes:
        """Raises `NotFound`."""
        ...
