import hashlib
from pathlib import Path

import anyio
import pytest

from hermes.schema.errors import StoreCorrupt, StoreError
from hermes.store.blobs import FileBlobs


async def test_equal_bytes_share_one_private_file(tmp_path: Path):
    blobs = FileBlobs(tmp_path / "blobs")
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(blobs.put, b"same", "text/plain")
    digest = hashlib.sha256(b"same").hexdigest()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [tmp_path / "blobs" / digest[:2] / digest]
    assert files[0].stat().st_mode & 0o777 == 0o600
    assert files[0].parent.stat().st_mode & 0o777 == 0o700


async def test_truncated_blob_is_rewritten(tmp_path: Path):
    blobs = FileBlobs(tmp_path)
    media = await blobs.put(b"whole", "text/plain")
    (tmp_path / media.digest[:2] / media.digest).write_bytes(b"who")
    await blobs.put(b"whole", "text/plain")
    assert await blobs.read(media.digest) == b"whole"


async def test_damaged_blob_raises(tmp_path: Path):
    blobs = FileBlobs(tmp_path)
    media = await blobs.put(b"whole", "text/plain")
    (tmp_path / media.digest[:2] / media.digest).write_bytes(b"other")
    with pytest.raises(StoreCorrupt):
        await blobs.read(media.digest)


async def test_unwritable_blob_folder_raises(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError) as caught:
        await FileBlobs(tmp_path / "file").put(b"x", "text/plain")
    assert caught.value.hint
