"""Files are replaced all-or-nothing, even on a full disk."""

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes.schema.errors import ToolError
from hermes.tools.files.file_changes import FileChange, apply_changes
from hermes.tools.files.safe_open import forbid_nothing


@contextmanager
def full_disk(most: int = 1_000) -> Generator[None]:
    """Limit the size of any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def change(path: Path, after: bytes | None) -> FileChange:
    if not path.exists():
        return FileChange(path, None, after)
    return FileChange(path, path.read_bytes(), after, path.lstat())


def test_full_disk_loses_nothing(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"old a")
    (tmp_path / "gone").write_bytes(b"to be deleted")
    before = {name: (tmp_path / name).lstat().st_ino for name in ("a", "gone")}
    changes = [
        change(tmp_path / "a", b"new a"),
        change(tmp_path / "gone", None),
        change(tmp_path / "new" / "deep" / "b", b"new b"),
        change(tmp_path / "large", b"x" * 100_000),
    ]
    with full_disk(), pytest.raises(OSError, match="large"):
        apply_changes(changes, forbid_nothing)
    assert names(tmp_path) == {"a", "gone"}
    assert {name: (tmp_path / name).lstat().st_ino for name in before} == before
    assert (tmp_path / "a").read_bytes() == b"old a"
    made = apply_changes(changes, forbid_nothing)
    assert names(tmp_path) == {"a", "new", "new/deep", "new/deep/b", "large"}
    assert made == [tmp_path / "new", tmp_path / "new" / "deep"]


def test_failed_change_rolls_back_the_others(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"old a")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "b").write_bytes(b"old b")
    inode = (tmp_path / "a").lstat().st_ino
    stale = FileChange(tmp_path / "b", b"old b", b"new b", (tmp_path / "a").lstat())
    with pytest.raises(ToolError, match="b was changed by another program meanwhile"):
        apply_changes([change(tmp_path / "a", b"new a"), stale], forbid_nothing)
    assert names(tmp_path) == {"a", "b"}
    assert (tmp_path / "a").read_bytes() == b"old a"
    assert (tmp_path / "a").lstat().st_ino == inode


def test_created_or_deleted_file_is_not_overwritten(tmp_path: Path):
    appears = change(tmp_path / "new", b"mine")
    (tmp_path / "new").write_bytes(b"theirs")
    with pytest.raises(ToolError, match="changed by another program"):
        apply_changes([appears], forbid_nothing)
    vanishes = change(tmp_path / "new", b"mine")
    (tmp_path / "new").unlink()
    with pytest.raises(ToolError, match="was deleted"):
        apply_changes([vanishes], forbid_nothing)
    assert names(tmp_path) == set()


def test_owner_and_permissions_are_kept(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o4751)
    wanted = (os.getuid(), os.getgid())
    if os.geteuid() == 0:
        wanted = (12_345, 54_321)
        os.chown(path, *wanted)
        path.chmod(0o4751)
    apply_changes([change(path, b"new")], forbid_nothing)
    stat = path.stat()
    assert ((stat.st_uid, stat.st_gid), stat.st_mode & 0o7777) == (wanted, 0o4751)
    apply_changes([FileChange(path, b"new", b"newer", stat, 0o600)], forbid_nothing)
    assert path.stat().st_mode & 0o7777 == 0o600


def test_hard_link_keeps_the_old_content(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "other").hardlink_to(tmp_path / "a")
    apply_changes([change(tmp_path / "a", b"new")], forbid_nothing)
    assert (tmp_path / "other").read_bytes() == b"old"
