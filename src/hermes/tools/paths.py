"""Where a session stands in the file system, and which files no tool may touch."""

import os
import stat as modes
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from hermes.kit.lru_map import LruMap
from hermes.kit.mounts import Mounts
from hermes.kit.text import one_line
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope, principal_digest
from hermes.tools.files.safe_open import path_blocked, resolve

MAX_SESSIONS = 512
MAX_PATH = 4_096
MAX_NAME = 255
"""Bytes that file systems take."""
MAX_COMPARED_FILES = 50_000
"""Files in closed folders that are compared with one that has several names."""
TMP_FOLDERS = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - these are the names of the folders
EXECUTED_NAMES = frozenset({".git", ".husky", ".envrc", "HEAD"})
"""What the user's own git or shell executes without asking.

A folder with a `HEAD` may be a repository itself, which then does what `OF_REPOSITORIES` say.
"""
REPOSITORY_CONFIG_NAMES = frozenset({"config", "config.worktree", "commondir", "hooks"})

FileIdentity = tuple[int, int]


class ProtectedPaths(Struct, frozen=True):
    """Files and folders that are closed to tools, by names in which parts may have a `*`.

    `opened` are the real paths of what a principal may open in them all the same.
    """

    closed: Sequence[Path] = ()
    opened: Callable[[str], Sequence[Path]] = lambda principal: ()


def require_path(path: str) -> None:
    if not path.strip() or "\0" in path:
        raise ToolError("the path is empty or contains a NUL character")


def principal_folder(folder: Path, principal: str) -> Path:
    """Of a folder of ours, what is for a principal; all of it is the owner's."""
    mark = principal_digest(principal)
    return folder / f"of-{mark}" if mark else folder


class SensitivePaths(Struct, frozen=True):
    """What is written with leave only, because programs do what it says.

    `ours` are folders that tell the agent what to do. `starts` belong to the user's own shell,
    desktop and editor: executed at the next login, or by its name. Somebody whose workspace lies
    in one of those has chosen so. `executed` says whether the user's git would execute a file
    there, or read settings from it.
    """

    ours: Sequence[Path] = ()
    starts: Sequence[Path] = ()
    executed: Callable[[Path], bool] = lambda path: False


class PathPatterns:
    """Paths by their parts; any part may have a `*` in it."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.by_folder: dict[Path, dict[str, None]] = {}
        """Where they lie; what has a `*` on the way to it counts with all that is around it."""
        self._first = _PatternNode()
        for path in paths:
            part = self._first
            for name in path.parts:
                part = part.after(name)
            part.ends = True
            folder, last = path.parent, path.name
            while "*" in str(folder):
                folder, last = folder.parent, folder.name
            self.by_folder.setdefault(folder, {})[last] = None

    def longest_match(self, parts: Sequence[str]) -> int:
        """The length of the longest of them that the path is, or lies in; 0 if there is none."""
        found, here = 0, [self._first]
        for depth, name in enumerate(parts, 1):
            here = [one for part in here for one in part.named(name)]
            if not here:
                break
            if any(part.ends for part in here):
                found = depth
        return found


class _PatternNode:
    def __init__(self) -> None:
        self.ends = False
        self._plain: dict[str, _PatternNode] = {}
        self._wild: dict[str, _PatternNode] = {}

    def after(self, name: str) -> "_PatternNode":
        return (self._wild if "*" in name else self._plain).setdefault(name, _PatternNode())

    def named(self, name: str) -> "Iterator[_PatternNode]":
        if (part := self._plain.get(name)) is not None:
            yield part
        yield from (part for wild, part in self._wild.items() if fnmatchcase(name, wild))


class BlockedPaths:
    """Files and folders that no tool may touch for whom it asks, as they are at this moment.

    By name, which also holds for files that do not exist yet, and by identity: a second name
    of a file opens it as well as the first. What is `opened` may lie in something closed, and
    have something closed in it: the longer name counts, and of two that are the same the closed.
    """

    def __init__(self, protected: Sequence[PathPatterns], opened: Sequence[Path] = ()) -> None:
        self._protected = protected
        self._opened = [path.parts for path in opened]
        self._ways = [f"{path}/" for path in opened]
        self._folders: list[Path] = []
        self._known: set[FileIdentity] = set()
        self._mounts = Mounts()
        for names in protected:
            for folder, inside in names.by_folder.items():
                self._add_names(folder, inside)

    def _add_names(self, folder: Path, names: Collection[str]) -> None:
        plain = {name for name in names if "*" not in name}
        wild = [name for name in names if "*" in name]
        if len(names) == 1 and plain:
            self._add_path(folder / next(iter(plain)))
            return
        for entry in _entries(folder):
            name = entry.name
            if name in plain or any(fnmatchcase(name, one) for one in wild):
                self._add_path(Path(entry.path))

    def _add_path(self, path: Path) -> None:
        """Not what is on the way to something that is open."""
        if any(way.startswith(f"{path}/") for way in self._ways):
            return
        try:
            stat = path.stat()
        except OSError:
            return
        self._known.add(_identity(stat))
        if modes.S_ISDIR(stat.st_mode):
            self._folders.append(path)

    def covers(self, real: Path) -> bool:
        """By the names of a path without links, also those that another mount gives it."""
        return any(self._covers(one.parts) for one in (real, *self._second_names(real)))

    def _second_names(self, real: Path) -> Iterator[Path]:
        there = next((one for one in (real, *real.parents) if os.path.lexists(one)), real)
        for name in self._mounts.second_names(str(there)):
            yield Path(name, *real.parts[len(there.parts) :])

    def _covers(self, parts: tuple[str, ...]) -> bool:
        shut = max((names.longest_match(parts) for names in self._protected), default=0)
        return shut > 0 and not any(
            len(one) > shut and parts[: len(one)] == one for one in self._opened
        )

    def forbids(self, stat: os.stat_result) -> bool:
        if _identity(stat) in self._known:
            return True
        several = modes.S_ISREG(stat.st_mode) and stat.st_nlink > 1
        return several and self._has_inside(_identity(stat))

    def _has_inside(self, wanted: FileIdentity) -> bool:
        """Also where there are too many files to tell: a second name is not worth a secret."""
        looked = 0
        for folder in self._folders:
            for found in _identities(folder):
                looked += 1
                if found == wanted or looked > MAX_COMPARED_FILES:
                    return True
        return False


class SessionPaths:
    """`home` is what `~` means; `protected` are files, folders or names with `*` (`state.db*`).

    `temporary` are folders that anybody writes in without asking; `private` are files of the
    user's own that are read with leave only: keys, passwords, histories. `own_tmp` is the
    folder that somebody's commands see as `/tmp`, if not the machine's. `steering` that is only
    a list of folders is `ours`.
    """

    def __init__(
        self,
        home: Path,
        protected: "ProtectedPaths | Sequence[Path]" = (),
        temporary: Sequence[Path] = TMP_FOLDERS,
        private: Sequence[Path] = (),
        own_tmp: Callable[[str], Path | None] = lambda principal: None,
        steering: "SensitivePaths | Sequence[Path]" = (),
    ) -> None:
        self._home = home
        steering = steering if isinstance(steering, SensitivePaths) else SensitivePaths(steering)
        self._steering = _with_real_parents(steering.ours)
        self._starts = _with_real_parents(steering.starts)
        self._executed = steering.executed
        enclosure = (
            protected if isinstance(protected, ProtectedPaths) else ProtectedPaths(protected)
        )
        self._opened = enclosure.opened
        self._protected = PathPatterns(_with_real_parents(enclosure.closed))
        self._private = PathPatterns(_with_real_parents(private))
        self._temporary = tuple(path.resolve() for path in temporary)
        self._own_tmp = own_tmp
        self._standing: LruMap[str, Path] = LruMap(MAX_SESSIONS)

    def cwd(self, scope: Scope) -> Path:
        """Where the session's shell stands; its workspace when that folder is gone."""
        standing = self._standing.get(scope.session)
        if standing is not None and is_folder(standing):
            return standing
        return Path(scope.workspace)

    def move(self, session: str, folder: Path | None) -> None:
        """None leads back to the workspace."""
        self._standing.keep(session, folder)

    def find(self, scope: Scope, path: str) -> Path:
        """The absolute path that a tool's argument means. Raises `ToolError`."""
        require_path(path)
        if path == "~" or path.startswith("~/"):
            path = f"{self._home}{path[1:]}"
        found = os.path.normpath(self.cwd(scope) / path)
        found = f"/{found.lstrip('/')}"
        if len(_encode_path(found)) >= MAX_PATH or _longest_name(found) > MAX_NAME:
            raise ToolError(f"the path is too long: {one_line(path, 100)}")
        return self._map_tmp(Path(found), scope)

    def _map_tmp(self, path: Path, scope: Scope) -> Path:
        """What commands call `/tmp` is meant, unless only the machine's own has that file."""
        outer = next((folder for folder in TMP_FOLDERS if path.is_relative_to(folder)), None)
        if outer is None or path.is_relative_to(scope.workspace or "/"):
            return path
        tmp = self._own_tmp(scope.principal)
        if tmp is None:
            return path
        inner = tmp / path.relative_to(outer)
        return path if os.path.lexists(path) and not os.path.lexists(inner) else inner

    def is_folder(self, path: Path) -> bool:
        return is_folder(path)

    def blocked_for(self, scope: Scope, *, private: bool = False) -> BlockedPaths:
        """What is closed now to who asks there; for one call, since files come and go."""
        return self.closed(scope.principal, scope.workspace, private=private)

    def closed(
        self, principal: str = "", workspace: str = "", *, private: bool = False
    ) -> BlockedPaths:
        """The same for somebody who works in a folder, or also what is private.

        Nobody in particular has nothing of their own.
        """
        opened = [
            *self._opened(principal),
            *([_resolve_or_same(Path(workspace))] if workspace else ()),
        ]
        names = [self._protected, self._private] if private else [self._protected]
        return BlockedPaths(names, opened)

    def guard(self, path: Path, now: BlockedPaths | None = None) -> Path:
        """The real path, unless it is (a link to) one of our own secrets or databases.

        Raises `ToolError`; a path that leads nowhere is one, too.
        """
        real = real_path(path)
        if _is_blocked(real, now or self.closed()):
            raise path_blocked(path)
        return real

    def is_protected(self, path: Path, now: BlockedPaths | None = None) -> bool:
        """True also for what nobody may reach at all."""
        try:
            return _is_blocked(real_path(path), now or self.closed())
        except ToolError:
            return True

    def beyond(self, scope: Scope, real: Path) -> bool:
        """Whether a write there must be allowed by somebody: outside the workspace and `/tmp`.

        What steers other programs is beyond, too, wherever the workspace is: `STEERING`, what
        is executed at a login, and in the user's home all that is hidden, new or no folder, as it
        is for commands. The root is nobody's workspace.
        """
        workspace = _resolve_or_same(Path(scope.workspace))
        tmp = self._own_tmp(scope.principal)
        temporary = self._temporary if tmp is None else (_resolve_or_same(tmp),)
        free = (workspace, *temporary) if workspace.parts[1:] else temporary
        root = next((folder for folder in free if real.is_relative_to(folder)), None)
        if root is None or not EXECUTED_NAMES.isdisjoint(real.relative_to(root).parts):
            return True
        if _is_repository_config(root, real) or self._executed(real):
            return True
        if any(real.is_relative_to(folder) for folder in self._steering):
            return True
        if tmp is not None and root == _resolve_or_same(tmp):
            return False
        starts = (one for one in self._starts if one.is_relative_to(root))
        return any(real.is_relative_to(one) for one in starts) or self._is_home_entry(root, real)

    def _is_home_entry(self, root: Path, real: Path) -> bool:
        """Whether it is one of the user's own things, and not below a folder that is there."""
        home = _resolve_or_same(self._home)
        if not real.is_relative_to(home) or root.is_relative_to(home / _first_part(real, home)):
            return False
        first = _first_part(real, home)
        if first.startswith(".") or first == "bin":
            return True
        return real.parent == home or not is_folder(home / first)

    def holds_home(self, scope: Scope) -> bool:
        """Whether the workspace is the user's home, or lies around it."""
        return _resolve_or_same(self._home).is_relative_to(_resolve_or_same(Path(scope.workspace)))


def is_folder(path: Path) -> bool:
    """False also where the system will not say: a shell can stand deeper than a path can name."""
    try:
        return path.is_dir()
    except OSError:
        return False


def real_path(path: Path) -> Path:
    """Where the path leads, links followed. Raises `ToolError` where it leads nowhere."""
    try:
        return resolve(path)
    except FileNotFoundError:
        raise ToolError(f"{path} leads nowhere: a link on the way is broken") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ToolError(f"{path}: {reason}") from error


def _with_real_parents(paths: Sequence[Path]) -> list[Path]:
    """With their folders as they really are, and what is a link also where it leads."""
    folders = {folder: folder.resolve() for folder in {path.parent for path in paths}}
    found = [*dict.fromkeys(folders[path.parent] / path.name for path in paths)]
    return [*found, *(Path(os.path.realpath(path)) for path in found if path.is_symlink())]


def _is_blocked(real: Path, now: BlockedPaths) -> bool:
    if now.covers(real):
        return True
    try:
        return now.forbids(real.lstat())
    except OSError:
        return False


def _resolve_or_same(path: Path) -> Path:
    try:
        return resolve(path)
    except (OSError, ToolError):
        return path


def _is_repository_config(root: Path, real: Path) -> bool:
    """One that stands in a folder of its own, without a `.git`."""
    ways = [one for one in (real, *real.parents) if one != root and one.is_relative_to(root)]
    return any(
        one.name in REPOSITORY_CONFIG_NAMES and os.path.lexists(one.parent / "HEAD") for one in ways
    )


def _first_part(real: Path, home: Path) -> str:
    return next(iter(real.relative_to(home).parts), "")


def _encode_path(path: str) -> bytes:
    try:
        return os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ToolError("the path has characters that no file name can have") from error


def _longest_name(path: str) -> int:
    return max(len(_encode_path(name)) for name in path.split("/"))


def _identity(stat: os.stat_result) -> FileIdentity:
    return stat.st_dev, stat.st_ino


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _identities(folder: Path) -> Iterator[FileIdentity]:
    """Of everything below; links are not followed."""
    waiting = [folder]
    while waiting:
        for entry in _entries(waiting.pop()):
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                yield _identity(entry.stat(follow_symlinks=False))
            except OSError:
                continue
