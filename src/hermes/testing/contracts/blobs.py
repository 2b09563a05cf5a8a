"""The contract of blobs. Subclass `BlobsContract` with the fixture `blobs`."""

import hashlib

import pytest

from hermes.ports.store import Blobs
from hermes.schema.errors import NotFound


class BlobsContract:
    @pytest.mark.parametrize("data", [b"", b"\x00\xff", b"x" * 1_000_000])
    async def test_stored_bytes_are_read_by_digest(self, blobs: Blobs, data: bytes) -> None:
        media = await blobs.put(data, "image/png", "a.png")
        assert media.digest == hashlib.sha256(data).hexdigest()
        assert (media.media_type, media.name) == ("image/png", "a.png")
        assert await blobs.read(media.digest) == data

    async def test_identical_bytes_share_a_digest(self, blobs: Blobs) -> None:
        first = await blobs.put(b"same", "text/plain", "one.txt")
        second = await blobs.put(b"same", "application/pdf", "two.pdf")
        assert first.digest == second.digest
        assert await blobs.read(first.digest) == b"same"

    @pytest.mark.parametrize(
        "digest",
        [
            "",
            "0" * 64,
            "../../etc/passwd",
            "/etc/passwd",
            "0" * 63 + "/",
            "0" * 62 + "..",
            "A" * 64,
            "\x00" * 64,
            "\u0660" * 64,
            "0" * 64 + "\n",
            "0" * 65,
        ],
    )
    async def test_invalid_or_unknown_digest_is_not_found(self, blobs: Blobs, digest: str) -> None:
        with pytest.raises(NotFound):
            await blobs.read(digest)
