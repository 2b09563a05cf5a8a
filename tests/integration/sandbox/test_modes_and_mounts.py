"""File modes, owners, namespaces and second mounts do not defeat the sandbox."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.sandbox.conftest import SampleHome

from hermes.config.home import Home
from hermes.kit.mounts import Mounts
from hermes.sandbox.home_policy import protected_paths
from hermes.schema.errors import ToolError
from hermes.tools.paths import SessionPaths

BACKENDS = pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
ROOT = os.geteuid() == 0

SET_ID = """
import ctypes, os, sys
outside, flags = sys.argv[1], os.O_CREAT | os.O_WRONLY
libc = ctypes.CDLL(None, use_errno=True)
open("mine", "w").close()
for path in ("mine", outside):
    for bit in map(int, sys.argv[2:]):
        file = os.open(path, os.O_RDONLY)
        name = path.encode()
        for change in (
            lambda: os.chmod(path, 0o755 | bit),
            lambda: os.fchmod(file, 0o755 | bit),
            lambda: libc.fchmodat(-100, name, 0o755 | bit, 0),
            lambda: libc.syscall(452, -100, name, 0o755 | bit, 0),
        ):
            try:
                change()
            except OSError:
                pass
for number, make in enumerate((
    lambda name: os.open(name, flags, 0o4755),
    lambda name: libc.creat(name.encode(), 0o4755),
    lambda name: libc.open(name.encode(), flags, 0o4755),
    lambda name: os.mknod(name, 0o104755),
    lambda name: libc.syscall(437, -100, name.encode(),
        (ctypes.c_uint64 * 3)(flags, 0o4755, 0), 24),
    lambda name: os.fchmod(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755), 0o755),
)):
    try:
        make(f"new{number}")
    except OSError:
        pass
os.chmod("mine", 0o700)
os.close(os.open("plain", flags, 0o750))
print("end")
"""


@BACKENDS
async def test_setuid_bits_cannot_be_set(sample: SampleHome, backend: str):
    tool = sample.outside / "tool"
    tool.touch(0o755)
    bits = [stat.S_ISUID, stat.S_ISGID] if ROOT else [stat.S_ISUID]
    done = await sample.run(backend, sys.executable, "-c", SET_ID, str(tool), *map(str, bits))
    assert done.output == b"end\n"
    files = [tool, *sample.work.iterdir()]
    assert [path.name for path in files if path.stat().st_mode & sum(bits)] == []
    assert (sample.work / "mine").stat().st_mode & 0o777 == 0o700
    assert (sample.work / "plain").stat().st_mode & 0o777 == 0o750


OWNERS = """
import ctypes, fcntl, os, struct, sys
SET_FLAGS, NO_DUMP, FILE_SETATTR = 0x40086602, 0x40, 469
def file_setattr(name):
    no_dump = struct.pack("QIIII", 0x80, 0, 0, 0, 0)
    if ctypes.CDLL(None).syscall(FILE_SETATTR, -100, name, no_dump, len(no_dump), 0):
        raise OSError
path, group = sys.argv[1], os.getgroups()[-1:] or [os.getgid()]
for change in (
    lambda: os.chown(path, -1, group[0]),
    lambda: os.lchown(path, -1, group[0]),
    lambda: os.fchown(os.open(path, os.O_RDONLY), -1, group[0]),
    lambda: os.setxattr(path, "user.mine", b"x"),
    lambda: os.setxattr(path, "system.posix_acl_access", bytes.fromhex(
        "0200000001000600ffffffff04000400ffffffff20000400ffffffff")),
    lambda: os.removexattr(path, "user.theirs"),
    lambda: os.truncate(path, 0),
    lambda: fcntl.ioctl(os.open(path, os.O_RDONLY), SET_FLAGS, struct.pack("l", NO_DUMP)),
    lambda: file_setattr(path.encode()),
):
    try:
        change()
        print("CHANGED")
    except OSError as error:
        print("refused")
"""


@BACKENDS
async def test_owners_and_attributes_outside_cannot_be_changed(sample: SampleHome, backend: str):
    path = sample.outside / "theirs"
    path.write_text("text")
    path.chmod(0o644)
    done = await sample.run(backend, sys.executable, "-c", OWNERS, str(path))
    assert done.output == b"refused\n" * 9
    assert path.read_text() == "text"


NAMESPACES = """
import ctypes, os, signal, subprocess, threading
libc, user = ctypes.CDLL(None, use_errno=True), 0x10000000
clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
pid = libc.syscall(clone, user | signal.SIGCHLD, 0, 0, 0, 0)
if pid == 0:
    os._exit(0)
print(pid, libc.unshare(user))
worker = threading.Thread(target=lambda: subprocess.run(["echo", "works"]))
worker.start()
worker.join()
"""


@BACKENDS
async def test_user_namespaces_are_refused_but_threads_work(sample: SampleHome, backend: str):
    done = await sample.run(backend, sys.executable, "-u", "-c", NAMESPACES)
    assert done.output == b"-1 -1\nworks\n"


@contextmanager
def bind_mount(folder: Path, point: Path) -> Iterator[None]:
    point.mkdir()
    argv = ["mount", "--bind", str(folder), str(point)]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(point)], check=True)


@BACKENDS
async def test_second_mount_does_not_reveal_secrets(sample: SampleHome, backend: str):
    """Mounts of a parent, of the hidden folder itself, and of a part of it."""
    deep = sample.home / ".ssh/keys"
    deep.mkdir()
    (deep / "id").write_text("SECRET")
    (sample.home / "note").write_text("open")
    points = [sample.base / name for name in ("second", "third", "with space")]
    script = 'for path do find "$path" -type f -exec cat {} +; done; echo; cat "$1/note"'
    with (
        bind_mount(sample.home, points[0]),
        bind_mount(sample.home / ".ssh", points[1]),
        bind_mount(deep, points[2]),
    ):
        argv = ("sh", "-c", script, "sh", *map(str, points))
        shown = await sample.run(backend, *argv, unsandboxed=True)
        assert shown.output.count(b"SECRET") == 5
        done = await sample.run(backend, *argv)
    assert b"SECRET" not in done.output
    assert done.output.endswith(b"open")


def test_second_mount_does_not_open_paths_to_file_tools(sample: SampleHome):
    root = sample.home / ".hermes"
    (root / "profiles/other").mkdir(parents=True)
    (root / "profiles/other/.env").write_text("SECRET")
    (root / "skills").mkdir()
    (root / "skills/SKILL.md").write_text("open")
    paths, point = (
        SessionPaths(sample.home, protected_paths(Home(root, root))),
        sample.base / "second",
    )
    with bind_mount(sample.home, point):
        for name in ("profiles/other/.env", "profiles/new/config.yaml"):
            with pytest.raises(ToolError):
                paths.guard(point / ".hermes" / name)
        skill = point / ".hermes/skills/SKILL.md"
        assert paths.guard(skill, paths.blocked("owner")) == skill


def test_mounts_of_visible_paths_stay_visible(tmp_path: Path):
    """For example, `/etc/resolv.conf` may be a mount of a file in `/run`."""
    table = tmp_path / "mounts"
    table.write_text(
        "1 0 8:1 / / rw - ext4 disk rw\n"
        "2 1 0:30 / /run rw - tmpfs tmpfs rw\n"
        "3 1 0:30 /resolve/stub.conf /etc/resolv.conf rw - tmpfs tmpfs rw\n"
        "4 1 0:30 /secrets /etc/with\\040space rw - tmpfs tmpfs rw\n"
        "5 1 0:4 mnt:[402] /run/ns rw - nsfs nsfs rw\n"
        "garbled\n"
    )
    mounts = Mounts(str(table))
    found = mounts.other_paths("/run", lambda path: path.startswith("/run/resolve"))
    assert [*found] == ["/etc/with space"]
