"""Files that people drop on the page are stored where they belong."""

from pathlib import Path

import pytest

from hermes.schema.errors import UsageError
from hermes.web.uploads import store_upload


def test_upload_follows_no_link(tmp_path: Path):
    folder, secret = tmp_path / "uploads", tmp_path / "secret"
    secret.write_bytes(b"old")
    folder.mkdir()
    (folder / "a").symlink_to(secret)
    assert store_upload(folder, "a", b"new").read_bytes() == b"new"
    assert secret.read_bytes() == b"old"
    (tmp_path / "linked").symlink_to(folder)
    with pytest.raises(UsageError):
        store_upload(tmp_path / "linked", "b", b"new")
