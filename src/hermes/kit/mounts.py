"""Find other paths to the same files through bind mounts."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(Struct, frozen=True):
    """The folder `root` of file system `device`, mounted at `point`."""

    device: str
    root: str
    point: str


class Mounts:
    """The current mounts; empty if the system has no mount table."""

    def __init__(self, table: str = MOUNTS) -> None:
        self._by_point = {mount.point: mount for mount in _read(table)}
        self._by_device: dict[str, list[Mount]] = {}
        for mount in self._by_point.values():
            self._by_device.setdefault(mount.device, []).append(mount)

    def other_paths(
        self, path: str, is_open: Callable[[str], bool] = lambda path: True
    ) -> Iterator[str]:
        """Other paths of a real path, and mounts below it."""
        own = self._mount_of(path)
        for other in self._by_device[own.device] if own else ():
            if own and other is not own:
                yield from _seen_at(path, own, other, is_open)

    def _mount_of(self, path: str) -> Mount | None:
        while path not in self._by_point:
            if path in {"/", ""}:
                return None
            path = path.rpartition("/")[0] or "/"
        return self._by_point[path]


def _read(table: str) -> Iterator[Mount]:
    """In mount order: the last mount at a point is the visible one."""
    try:
        lines = Path(table).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        row = line.split(" ", 5)
        if len(row) == 6 and row[3].startswith("/"):
            yield Mount(row[2], _unescaped(row[3]), _unescaped(row[4]))


def _seen_at(path: str, own: Mount, other: Mount, is_open: Callable[[str], bool]) -> Iterator[str]:
    inside = _joined(own.root, _below(path, own.point) or "")
    rest = _below(inside, other.root)
    if rest is not None:
        name = _joined(other.point, rest)
        if name != path and _is_same(name, path):
            yield name
        return
    part = _below(other.root, inside)
    if part is not None and _below(other.point, path) is None and not is_open(_joined(path, part)):
        yield other.point


def _below(path: str, folder: str) -> str | None:
    """The path relative to the folder; None if it is elsewhere."""
    folder = folder.rstrip("/")
    if path == folder:
        return ""
    return path[len(folder) + 1 :] if path.startswith(f"{folder}/") else None


def _joined(folder: str, rest: str) -> str:
    return f"{folder.rstrip('/')}/{rest}".rstrip("/") or "/"


def _is_same(one: str, other: str) -> bool:
    """Whether no other file system is mounted over it."""
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
