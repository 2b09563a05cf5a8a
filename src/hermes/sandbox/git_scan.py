"""Find every git repository below some folders, without limits on depth or names.

A folder is listed once and again only when its change time differs, which a command cannot set
back. Links are not followed.
"""

# On the path of every command: string paths are faster.

import errno
import heapq
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct

MAX_CACHED_FOLDERS = 100_000
"""Folders remembered from one scan to the next."""
MAX_CACHED_SCANS = 8
_CLOCK_GRANULARITY = 2_000_000_000
"""Nanoseconds within which two changes may have the same time."""
_MAX_PATH = 2_000
"""Maximum length of a path that can be mounted, in characters."""
_VIRTUAL_FOLDERS = frozenset({"/dev", "/proc", "/sys"})
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})


class ScanResult(Struct, frozen=True):
    """`gits` are the folders and files that git takes for a repository, parents first.

    `unread` are folders that were not scanned: there were too many, or they cannot be read.
    """

    gits: tuple[str, ...]
    unread: tuple[str, ...]


class _CachedFolder(Struct, frozen=True, gc=False):
    identity: tuple[int, int, int]
    listed: int
    inside: tuple[str, ...]
    has_git: bool
    is_bare: bool

    def is_same(self, identity: tuple[int, int, int]) -> bool:
        """Whether the names are unchanged; a change right after the listing may not show."""
        return self.identity == identity and identity[2] + _CLOCK_GRANULARITY < self.listed


class RepositoryScanner:
    """Caches the folders it has listed; thread-safe."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], dict[str, _CachedFolder]] = {}
        self._lock = threading.Lock()

    def find(
        self, tops: Sequence[str], *, max_folders: int | None = None, home: str = ""
    ) -> ScanResult:
        """Scan at most `max_folders` folders; hidden ones directly in `home` are skipped."""
        with self._lock:
            key = tuple(tops)
            walker = _Walk(self._known.pop(key, {}), home)
            found = walker.run(key, max_folders)
            if len(walker.seen) <= MAX_CACHED_FOLDERS:
                self._known[key] = walker.seen
            while len(self._known) > MAX_CACHED_SCANS:
                del self._known[next(iter(self._known))]
            return found


class _Walk:
    def __init__(self, known: dict[str, _CachedFolder], home: str) -> None:
        self._known = known
        self._home = home
        self.seen: dict[str, _CachedFolder] = {}
        self._unread: list[str] = []

    def run(self, tops: Sequence[str], max_folders: int | None) -> ScanResult:
        """Scan breadth first; if that exceeds the limit, scan folders with few siblings first.

        Otherwise creating many folders in one place could keep other places from being scanned.
        """
        left = self._scan_breadth_first(tops, max_folders)
        if left:
            self._known, self.seen, self._unread = self.seen, {}, []
            left = self._scan_sparse_first(tops, max_folders or 0)
        gits: dict[str, None] = {}
        for path, folder in self.seen.items():
            if folder.has_git:
                gits[f"{path.rstrip('/')}/.git"] = None
            if folder.is_bare:
                gits[path] = None
        return ScanResult(tuple(gits), (*self._unread, *left))

    def _scan_breadth_first(self, tops: Iterable[str], max_folders: int | None) -> list[str]:
        waiting = deque(tops)
        while waiting and (max_folders is None or len(self.seen) < max_folders):
            waiting.extend(self._enter(waiting.popleft()))
        return [path for path in waiting if path not in self.seen]

    def _scan_sparse_first(self, tops: Iterable[str], max_folders: int) -> list[str]:
        waiting = [(0, path) for path in tops]
        while waiting and len(self.seen) < max_folders:
            siblings, path = heapq.heappop(waiting)
            inside = self._enter(path)
            for one in inside:
                heapq.heappush(waiting, (siblings + len(inside), one))
        return [path for _, path in waiting if path not in self.seen]

    def _enter(self, path: str) -> list[str]:
        folder = None if path in self.seen else self._look(path)
        if folder is None:
            return []
        self.seen[path] = folder
        return [f"{path.rstrip('/')}/{name}" for name in folder.inside]

    def _look(self, path: str) -> _CachedFolder | None:
        if path in _VIRTUAL_FOLDERS:
            return None
        now = time.time_ns()
        try:
            status = os.lstat(path)
        except OSError as error:
            if error.errno not in _GONE:
                self._unread.append(path)
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None
        identity = (status.st_dev, status.st_ino, status.st_ctime_ns)
        known = self._known.get(path)
        if known is not None and known.is_same(identity):
            return known
        return self._list(path, identity, now, status.st_uid)

    def _list(
        self, path: str, identity: tuple[int, int, int], now: int, owner: int
    ) -> _CachedFolder | None:
        try:
            with os.scandir(path) as entries:
                names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError as error:
            # A folder of another user was not made, or closed, by a command.
            if error.errno not in _GONE and owner == os.geteuid():
                self._unread.append(path)
            return None
        inside = [name for name, is_folder in names.items() if is_folder]
        if path == self._home:
            inside = [name for name in inside if not name.startswith(".")]
        is_bare = "HEAD" in names and ("commondir" in names or {"objects", "refs"} <= names.keys())
        return _CachedFolder(identity, now, tuple(inside), ".git" in names, is_bare)


def common_folders(paths: Iterable[str], tops: Sequence[str], max_folders: int) -> list[str]:
    """Return the deepest folders, at most `max_folders` per top, that contain all paths."""
    chosen: list[str] = []
    for top in tops:
        base = top.rstrip("/")
        below = {path[len(base) + 1 :] for path in paths if path.startswith(f"{base}/")}
        parts = [tuple(path.split("/")) for path in below]
        depth = max(map(len, parts), default=0)
        while len(cut := {part[:depth] for part in parts}) > max_folders or _is_long(cut):
            depth -= 1
        if any(path == top for path in paths) or (cut and not depth):
            chosen.append(top)
        else:
            chosen += sorted(f"{base}/{'/'.join(one)}" for one in cut)
    return [*dict.fromkeys(chosen)]


def _is_long(paths: Iterable[tuple[str, ...]]) -> bool:
    return any(sum(map(len, path)) + len(path) > _MAX_PATH for path in paths)
