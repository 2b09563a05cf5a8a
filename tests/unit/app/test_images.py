import os
from pathlib import Path

import pytest

from hermes.app.storage import load_images
from hermes.kit.files import MAX_IMAGE_BYTES
from hermes.schema.errors import UsageError
from hermes.store.blobs import FileBlobs

GIF = b"GIF89a and so on"


async def test_images_are_stored_by_content(tmp_path: Path):
    (tmp_path / "a.jpg").write_bytes(GIF)
    blobs = FileBlobs(tmp_path / "blobs")
    (media,) = await load_images(blobs, [str(tmp_path / "a.jpg")])
    assert (media.media_type, media.name) == ("image/gif", "a.jpg")
    assert await blobs.read(media.digest) == GIF


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.png", "Cannot read .*: No such file"),
        ("notes.png", "is not an image"),
        ("huge.gif", "is larger than 20,000,000 bytes"),
    ],
)
async def test_unusable_image_is_refused(tmp_path: Path, name: str, message: str):
    (tmp_path / "notes.png").write_text("words")
    (tmp_path / "huge.gif").write_bytes(GIF)
    os.truncate(tmp_path / "huge.gif", MAX_IMAGE_BYTES + 1)
    with pytest.raises(UsageError, match=message):
        await load_images(FileBlobs(tmp_path / "blobs"), [str(tmp_path / name)])
