import hashlib
import os
from pathlib import Path

import anyio
import pytest

from hermes.schema.errors import StoreCorrupt, StoreError
from hermes.store.blobs import FileBlobs, forget_files


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


async def test_oldest_files_are_deleted_until_the_rest_fits(tmp_path: Path):
    blobs = FileBlobs(tmp_path)
    stored = [await blobs.put(bytes([number]) * 100, "text/plain") for number in range(4)]
    paths = [tmp_path / one.digest[:2] / one.digest for one in stored]
    for age, path in zip((1000, 4000, 3000, 2000), paths, strict=True):
        os.utime(path, (10_000 - age,) * 2)
    assert forget_files(tmp_path, before=10_000, max_bytes=400) == 0
    assert forget_files(tmp_path, before=10_000, max_bytes=250) == 2
    assert [path.exists() for path in paths] == [True, False, False, True]
    # What is stored again is new, and new files are kept.
    await blobs.put(bytes([3]) * 100, "text/plain")
    assert forget_files(tmp_path, before=10_000, max_bytes=0) == 1
    assert [path.exists() for path in paths] == [False, False, False, True]


async def test_links_are_not_followed_when_files_are_deleted(tmp_path: Path):
    outside, folder = tmp_path / "outside", tmp_path / "blobs"
    outside.mkdir()
    folder.mkdir()
    (outside / "mine").write_text("x" * 100)
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "mine")
    assert forget_files(folder, before=1e12, max_bytes=0) == 0
    assert (outside / "mine").exists()


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
