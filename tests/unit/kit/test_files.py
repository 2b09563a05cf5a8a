"""Atomic writes and safe reads."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.kit.files import read_file_below, read_regular_file, write_atomic, write_error_hint


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomic(path, b"\x00new\xff")
    assert path.read_bytes() == b"\x00new\xff"
    assert mode(path) == 0o644
    assert names(tmp_path) == ["a"]


def test_an_old_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_atomic(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o640)
    write_atomic(path, b"newer", mode=0o600)
    assert (path.read_bytes(), mode(path)) == (b"newer", 0o600)


def test_reader_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        write_atomic(path, b"new")
        assert reader.read() == b"old"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    real, link, dangling = tmp_path / "far" / "real", tmp_path / "link", tmp_path / "dangling"
    real.write_bytes(b"old")
    link.symlink_to(real)
    dangling.symlink_to("far/missing")
    write_atomic(link, b"new")
    write_atomic(dangling, b"made")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert (tmp_path / "far" / "missing").read_bytes() == b"made"
    assert names(tmp_path / "far") == ["missing", "real"]


def test_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "inside").write_bytes(b"x")
    with pytest.raises(OSError, match="directory"):
        write_atomic(folder, b"new")
    assert names(tmp_path) == ["a"]
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "missing" / "b", b"new")


_KILLED = """
import os, sys
from pathlib import Path
from hermes.kit.files import write_atomic

os.fsync = lambda handle: os.kill(os.getpid(), 9)
write_atomic(Path(sys.argv[1]), b"new" * 100_000)
"""


def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False)
    assert done.returncode == -9
    assert path.read_bytes() == b"old"


def test_an_ordinary_file_is_read_whole(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular_file(tmp_path / "file", limit=5) == b"12345"
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular_file(tmp_path / "link") == b"12345"


def test_special_file_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"123456")
    with pytest.raises(OSError, match="a pipe or a device"):
        read_regular_file(tmp_path / "pipe")
    with pytest.raises(OSError, match="a pipe or a device"):
        read_regular_file(tmp_path / "device")
    with pytest.raises(OSError, match="larger than 5 bytes"):
        read_regular_file(tmp_path / "large", limit=5)
    with pytest.raises(IsADirectoryError):
        read_regular_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "nothing")


def test_a_refused_file_leaves_no_handle_open(tmp_path: Path):
    before = names(Path("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(IsADirectoryError):
            read_regular_file(tmp_path)
    assert names(Path("/proc/self/fd")) == before


def test_full_disk_has_its_own_hint():
    assert "Free some space" in write_error_hint(
        OSError(errno.ENOSPC, "No space left on device"), "Check"
    )
    assert write_error_hint(OSError(errno.EACCES, "Permission denied"), "Check") == "Check"


def test_links_below_a_folder_are_not_followed(tmp_path: Path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/file").write_bytes(b"text")
    (tmp_path / "secret").write_bytes(b"key")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    assert read_file_below(folder, folder / "sub/file") == b"text"
    for name in ("link", "up/secret"):
        with pytest.raises(OSError, match=name.partition("/")[0]):
            read_file_below(folder, folder / name)
