"""Write a workspace into the shadow repository: what is new or changed, within limits."""

import os
import stat as modes
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from hermes.schema.errors import SandboxError, UsageError
from hermes.tools.checkpoints.git import Git, Where

MOST_FILES = 50_000
MOST_NESTED = 50
"""Repositories inside the workspace; each is kept for itself."""
MAX_SKIPPED = 5_000
STALE = 60.0
"""Seconds after which the lock of a git that was killed is in nobody's hands."""


class Limits(Struct, frozen=True, kw_only=True):
    """Bytes."""

    file: int = 10 << 20
    total: int = 500 << 20


class Root(Struct, frozen=True):
    """A work tree within the workspace by its path there, empty for the workspace itself.

    `skipped` are files that were not kept.
    """

    path: str
    tree: str
    skipped: tuple[str, ...] = ()


class Trees:
    def __init__(self, git: Git, limits: Limits, closed: Callable[[Path], bool]) -> None:
        """`closed` tells a file that is nobody's to copy."""
        self._git = git
        self._limits = limits
        self._closed = closed

    async def write(self, workspace: Path, now: float) -> list[Root]:
        """Raises `UsageError` when the workspace is beyond the limits."""
        roots: list[Root] = []
        waiting = [""]
        room = self._limits.total
        while waiting:
            path = waiting.pop(0)
            where = Where(workspace / path, self._index(workspace, path))
            unlock(where.index, now)
            found = await self._changes(where, room)
            room -= found.size
            skipped = tuple(map(written, found.skipped))
            roots.append(Root(path, await self._tree(where, found), skipped))
            waiting += [str(Path(path, nested)) for nested in found.nested]
            if len(roots) + len(waiting) > MOST_NESTED:
                raise UsageError(f"The workspace has more than {MOST_NESTED} repositories.")
        return roots

    def _index(self, workspace: Path, path: str) -> Path:
        name = f"{short(str(workspace))}.{short(path)}"
        return self._git.store / "indexes" / name

    async def _changes(self, where: Where, room: int) -> "_Changes":
        listed = await self._git.data(
            "ls-files", "-z", "--others", "--modified", "--deleted", "--exclude-standard",
            where=where,
        )  # fmt: skip
        names = dict.fromkeys(os.fsdecode(name) for name in listed.split(b"\0") if name)
        if len(names) > MOST_FILES:
            raise UsageError(
                f"The workspace has {len(names):,} new files, too many for a checkpoint.",
                hint="Name what need not be kept in a .gitignore.",
            )
        found = _Changes()
        for name in names:
            self._sort(where.work, name, found)
        if found.size > room:
            raise UsageError(
                f"The workspace is larger than checkpoints may be ({self._limits.total >> 20} MB).",
                hint="Name what need not be kept in a .gitignore, or raise "
                "checkpoints.max_total_size_mb.",
            )
        return found

    def _sort(self, work: Path, name: str, found: "_Changes") -> None:
        path = work / name
        if name.endswith("/"):
            if written(name) == name:
                found.nested.append(name.rstrip("/"))
            return
        try:
            stat = path.lstat() if found.is_inside(path.parent) else None
        except OSError:
            stat = None
        if stat is None or modes.S_ISDIR(stat.st_mode):
            found.gone.append(name)
        elif self._is_left_out(path, stat):
            found.skipped.append(name)
        else:
            found.size += stat.st_size
            found.kept.append(name)

    def _is_left_out(self, path: Path, stat: os.stat_result) -> bool:
        if modes.S_ISLNK(stat.st_mode):
            return False
        large = stat.st_size > self._limits.file
        return large or self._closed(path) or not os.access(path, os.R_OK)

    async def _tree(self, where: Where, found: "_Changes") -> str:
        if len(found.skipped) > MAX_SKIPPED:
            raise UsageError("The workspace has too many files that cannot be kept.")
        if found.skipped or found.gone:
            await self._update(["--force-remove"], [*found.skipped, *found.gone], where)
        if found.kept:
            await self._update(["--add", "--replace", "--remove"], found.kept, where)
        try:
            return await self._git.sha("write-tree", where=where)
        except SandboxError:
            # The index remembers files whose contents were cleared away; the next one is whole.
            where.index.unlink(missing_ok=True)
            raise

    async def _update(self, how: list[str], names: list[str], where: Where) -> None:
        listed = b"".join(os.fsencode(name) + b"\0" for name in names)
        await self._git.run("update-index", *how, "-z", "--stdin", where=where, stdin=listed)


class _Changes:
    """What git sees differently from the index, sorted by what becomes of it."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.gone: list[str] = []
        self.skipped: list[str] = []
        self.nested: list[str] = []
        self.size = 0
        self._inside: dict[Path, bool] = {}

    def is_inside(self, folder: Path) -> bool:
        """Whether a folder is really where it seems to be, behind no link."""
        if folder not in self._inside:
            self._inside[folder] = folder.resolve() == folder
        return self._inside[folder]


def short(text: str) -> str:
    return sha256(os.fsencode(text)).hexdigest()[:16]


def written(name: str) -> str:
    """A file's name as text, whatever its bytes are."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def unlock(index: Path, now: float) -> None:
    """Take away the lock that a killed git left behind."""
    lock = index.with_name(f"{index.name}.lock")
    try:
        if now - lock.stat().st_mtime > STALE:
            lock.unlink()
    except FileNotFoundError:
        return
