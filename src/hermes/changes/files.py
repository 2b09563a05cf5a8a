"""Carrying a change out on the disk: all files as expected, or none is touched."""

import fcntl
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from hermes.changes.change import Edit
from hermes.kit.errors import HermesError, UsageError
from hermes.kit.failpoints import passing
from hermes.kit.files import read_ordinary, write_atomic

LARGEST = 4 * 1024 * 1024
_LOCK = ".changes.lock"
_PRIVATE = 0o600


class Drifted(HermesError):
    """A file is not as it was when the change was made."""

    code = "drifted"


def carry_out(root: Path, edits: Sequence[Edit]) -> None:
    """Write every file. What an earlier, interrupted attempt has written already is left so.

    Raises `Drifted` before anything is written.
    """
    paths = [_path(root, edit) for edit in edits]
    with locked(root):
        for path, edit in zip(paths, edits, strict=True):
            found = present(path)
            if found not in {edit.before, edit.after}:
                raise Drifted(
                    f"{edit.path} was changed in the meantime, so it was left as it is.",
                    hint="Look at the file, then make the change again.",
                )
        for path, edit in zip(paths, edits, strict=True):
            if present(path) != edit.after:
                _write(root, path, edit.after)
                passing("ledger.one_file_written")


def present(path: Path) -> bytes | None:
    """What is in the file; None when there is none. Raises `UsageError` for what is no file."""
    try:
        return read_ordinary(path, LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


@contextmanager
def locked(root: Path) -> Generator[None]:
    """One writer at a time, also among processes; the kernel frees it at death."""
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _PRIVATE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _path(root: Path, edit: Edit) -> Path:
    parts = PurePosixPath(edit.path).parts
    if not parts or edit.path.startswith("/") or ".." in parts or "\0" in edit.path:
        raise UsageError(f"{edit.path!r} is no file below the home.")
    return root.joinpath(*parts)


def _write(root: Path, path: Path, data: bytes | None) -> None:
    if data is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, mode=None if path.exists() else _PRIVATE)
        return
    path.unlink(missing_ok=True)
    folder = path.parent
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
