"""Open files step by step through open folders, so that no symlink redirects the access.

A path is first resolved, following its links one by one, and the resolved path is what gets
checked. Then it is walked again, and a link anywhere in it is an error: what is opened is
what was checked, even if something is swapped meanwhile.
"""

import errno
import os
import stat as modes
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from hermes.schema.errors import ToolError

MAX_LINKS = 40
"""The kernel's limit."""

_FOLDER_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Non-blocking, in case a pipe took the place of the file."""
_KERNEL = ("proc", "sys")
_DEVICES, _SHARED_MEMORY = "dev", "shm"

Forbids: TypeAlias = Callable[[os.stat_result], bool]
"""Whether a file or folder is one that no tool may touch, whatever its name."""


def forbid_nothing(stat: os.stat_result) -> bool:
    return False


def resolve(path: Path) -> Path:
    """Resolve an absolute path; missing parts are kept as they are.

    Raises `OSError` for a broken path, `ToolError` for one in a kernel file system.
    """
    todo = list(reversed(path.parts[1:]))
    done: list[str] = []
    links = 0
    handle = os.open("/", _FOLDER_FLAGS)
    try:
        while todo:
            name = todo.pop()
            if name == "..":
                done = done[:-1]
                handle = _swap(handle, _descend(done))
                continue
            if len(done) < 2:
                reject_kernel_path(Path("/", *done, name))
            inside = _enter(handle, name)
            if inside is not None:
                handle = _swap(handle, inside)
                done.append(name)
                continue
            target = _link(handle, name)
            if target is None:
                return _unresolved_path(done, name, todo)
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if target.startswith("/"):
                done = []
                handle = _swap(handle, os.open("/", _FOLDER_FLAGS))
            todo += [part for part in reversed(target.split("/")) if part not in {"", "."}]
    finally:
        os.close(handle)
    return Path("/", *done)


def resolve_or_same(path: Path) -> Path:
    """Resolve a path, or return it unchanged if that fails."""
    try:
        return resolve(path)
    except (OSError, ValueError, ToolError):
        return path


def reject_kernel_path(path: Path) -> None:
    """Reject kernel file systems and devices, where reading and writing have side effects."""
    top, *below = path.parts[1:3] or ("",)
    inside = top in _KERNEL or (top == _DEVICES and below not in ([], [_SHARED_MEMORY]))
    if inside:
        raise ToolError(
            f"{path} is a kernel interface or device (device, pipe or socket), not a file, "
            "which file tools do not open.",
            hint="Use the terminal to inspect it.",
        )


class OpenFolder:
    """An open folder; names are looked up in it only, and links are not followed."""

    def __init__(self, handle: int, path: Path, forbids: Forbids) -> None:
        self.path = path
        self._handle = handle
        self._forbids = forbids

    def stat(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self, name: str) -> int:
        """Open a file for reading. Raises `OSError`, or `ToolError` if blocked or not regular.

        It is checked before opening, since opening a device may have effects, and again afterwards,
        since it may have been replaced.
        """
        self.check(name, os.stat(name, dir_fd=self._handle, follow_symlinks=False))
        handle = os.open(name, _READ_FLAGS, dir_fd=self._handle)
        try:
            self.check(name, os.fstat(handle))
        except BaseException:
            os.close(handle)
            raise
        return handle

    def create(self, name: str) -> int:
        """Create a file readable by its owner only. Raises `FileExistsError` if there is one."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=self._handle)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def link(self, old: str, new: str) -> None:
        handle = self._handle
        os.link(old, new, src_dir_fd=handle, dst_dir_fd=handle, follow_symlinks=False)

    def symlink(self, target: str, name: str) -> None:
        os.symlink(target, name, dir_fd=self._handle)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._handle)

    def rmdir(self, name: str) -> None:
        os.rmdir(name, dir_fd=self._handle)

    def check_writable(self, name: str) -> None:
        """Require write permission, although replacing a file would not need it."""
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            os.close(os.open(name, flags, dir_fd=self._handle))
        except PermissionError:
            where = str(self.path / name)
            raise PermissionError(errno.EACCES, "the file is read-only", where) from None
        except OSError as error:
            # A running program cannot be written, but it can be replaced.
            if error.errno != errno.ETXTBSY:
                raise

    def check(self, name: str, stat: os.stat_result) -> None:
        """Raises `ToolError` if it is not a regular file, or blocked."""
        path = self.path / name
        if self._forbids(stat):
            raise path_blocked(path)
        if modes.S_ISDIR(stat.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
        if modes.S_ISLNK(stat.st_mode):
            raise ToolError(f"{path} became a link while it was being opened.", hint="Try again.")
        if not modes.S_ISREG(stat.st_mode):
            raise ToolError(f"{path} is a device, pipe or socket, not a file.")


class PathBlocked(ToolError):
    """A file that no tool may touch, or only with an approval."""


def path_blocked(path: Path) -> PathBlocked:
    return PathBlocked(
        f"{path} belongs to Hermes itself (secrets or state) and is blocked for tools.",
        hint="Ask the user to view it, or to change it with `hermes config`.",
    )


@contextmanager
def open_folder(
    real: Path, forbids: Forbids, made: list[Path] | None = None
) -> Generator[OpenFolder]:
    """Open the folder of a resolved path; with a list, create missing folders and add them to it.

    Raises `OSError`, even for a link that is new in the path, and `ToolError` for a blocked folder.
    """
    reject_kernel_path(real)
    kernel = _kernel_devices()
    handle = os.open("/", _FOLDER_FLAGS)
    at = Path("/")
    try:
        for name in real.parts[1:]:
            at /= name
            handle = _swap(handle, _enter_or_make(handle, at, made))
            stat = os.fstat(handle)
            if forbids(stat):
                raise path_blocked(at)
            if stat.st_dev in kernel:
                raise ToolError(f"{at} is in a kernel file system, which file tools do not open.")
        yield OpenFolder(handle, real, forbids)
    finally:
        os.close(handle)


def _enter_or_make(handle: int, path: Path, made: list[Path] | None) -> int:
    try:
        return os.open(path.name, _FOLDER_FLAGS, dir_fd=handle)
    except FileNotFoundError:
        if made is None:
            raise
        with suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=handle)
            made.append(path)
        return os.open(path.name, _FOLDER_FLAGS, dir_fd=handle)
    except NotADirectoryError as error:
        raise NotADirectoryError(error.errno, error.strerror, str(path)) from None


def _kernel_devices() -> set[int]:
    """Return the devices of /proc and /sys, to recognize them under other mount points."""
    root = Path("/").stat().st_dev
    found: set[int] = set()
    for name in _KERNEL:
        with suppress(OSError):
            found.add(Path("/", name).stat().st_dev)
    return found - {root}


def _enter(handle: int, name: str) -> int | None:
    """Open a subfolder; None if it is missing or not a folder."""
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=handle)
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP, errno.ENOENT}:
            return None
        raise


def _link(handle: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=handle)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def _descend(names: list[str]) -> int:
    handle = os.open("/", _FOLDER_FLAGS)
    try:
        for name in names:
            handle = _swap(handle, os.open(name, _FOLDER_FLAGS, dir_fd=handle))
    except OSError:
        os.close(handle)
        raise
    return handle


def _unresolved_path(done: list[str], name: str, todo: list[str]) -> Path:
    if ".." in todo:
        where = str(Path("/", *done, name))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where)
    return Path("/", *done, name, *reversed(todo))


def _swap(old: int, new: int) -> int:
    os.close(old)
    return new
