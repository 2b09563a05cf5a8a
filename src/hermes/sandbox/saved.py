"""A small file, link or folder kept in memory, to be put back if a command replaces it."""

# Paths as text are faster, and what is put back is named relative to an open folder.
# ruff: noqa: PTH115, PTH208

import os
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

_MOST_BYTES = 4 * 1024 * 1024
_MOST_ENTRIES = 500


class Saved(Struct, frozen=True):
    """`content` of a file, the target of a link, or what is in a folder."""

    content: "bytes | str | Mapping[str, Saved]"
    mode: int = 0o644


def save(path: str) -> Saved | None:
    """None for what is not there, cannot be read, or is too large to be kept."""
    try:
        return _saved(path, [_MOST_BYTES, _MOST_ENTRIES])
    except OSError:
        return None


def put_back(saved: Saved, name: str, folder: int) -> None:
    """As `name` in an open folder, where nothing of that name may be. Raises `OSError`."""
    match saved.content:
        case bytes() as content:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(name, flags, 0o600, dir_fd=folder)
            with os.fdopen(file, "wb") as stream:
                stream.write(content)
                os.fchmod(stream.fileno(), saved.mode)
        case str() as target:
            os.symlink(target, name, dir_fd=folder)
        case inside:
            os.mkdir(name, 0o700, dir_fd=folder)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            made = os.open(name, flags, dir_fd=folder)
            try:
                for one, part in inside.items():
                    put_back(part, one, made)
                os.fchmod(made, saved.mode)
            finally:
                os.close(made)


def _saved(path: str, left: list[int]) -> Saved:
    """`left` are bytes and entries. Raises `OSError`."""
    left[1] -= 1
    if left[1] < 0:
        raise OSError(path)
    with suppress(OSError):
        return Saved(os.readlink(path))
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(file).st_mode & 0o777
    try:
        names = [name for name in os.listdir(file) if not name.endswith(".sample")]
        return Saved({name: _saved(f"{path}/{name}", left) for name in names}, mode)
    except NotADirectoryError:
        content = os.read(file, left[0] + 1)
        left[0] -= len(content)
        if left[0] < 0:
            raise OSError(path) from None
        return Saved(content, mode)
    finally:
        os.close(file)
