"""Other names of a path: a file system that is mounted twice shows the same files in two places."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(Struct, frozen=True):
    """`root` is the folder of the file system `device` that is seen at `point`."""

    device: str
    root: str
    point: str


def mounts(table: str = MOUNTS) -> list[Mount]:
    """In the order in which they were made; empty where the machine has no such table."""
    try:
        lines = Path(table).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    rows = (line.split(" ", 5) for line in lines)
    found = (Mount(row[2], _plain(row[3]), _plain(row[4])) for row in rows if len(row) == 6)
    return [one for one in found if one.root.startswith("/")]


def second_names(
    paths: Iterable[str], open_: Callable[[str], bool], table: str = MOUNTS
) -> Iterator[str]:
    """Where else the real `paths`, or parts of them that are not `open_`, can be seen."""
    by_point = {one.point: one for one in mounts(table)}
    by_device: dict[str, list[Mount]] = {}
    for one in by_point.values():
        by_device.setdefault(one.device, []).append(one)
    if all(len(some) == 1 for some in by_device.values()):
        return
    for path in paths:
        own = _mount_of(path, by_point)
        for other in by_device[own.device] if own else ():
            if own and other is not own:
                yield from _seen_at(path, own, other, open_)


def _seen_at(path: str, own: Mount, other: Mount, open_: Callable[[str], bool]) -> Iterator[str]:
    inside = _joined(own.root, _below(path, own.point) or "")
    rest = _below(inside, other.root)
    if rest is not None:
        name = _joined(other.point, rest)
        if name != path and _is_same(name, path):
            yield name
        return
    part = _below(other.root, inside)
    if part is not None and _below(other.point, path) is None and not open_(_joined(path, part)):
        yield other.point


def _mount_of(path: str, by_point: dict[str, Mount]) -> Mount | None:
    while path not in by_point:
        if path == "/":
            return None
        path = path.rpartition("/")[0] or "/"
    return by_point[path]


def _below(path: str, folder: str) -> str | None:
    """The path as seen from the folder; None if it lies elsewhere."""
    folder = folder.rstrip("/")
    if path == folder:
        return ""
    return path[len(folder) + 1 :] if path.startswith(f"{folder}/") else None


def _joined(folder: str, rest: str) -> str:
    return f"{folder.rstrip('/')}/{rest}".rstrip("/") or "/"


def _is_same(one: str, other: str) -> bool:
    """Not where yet another file system lies above it."""
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
