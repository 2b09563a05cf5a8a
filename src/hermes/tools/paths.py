"""Resolve paths for a session and decide which files tools may open or write."""

import os
import stat as modes
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from msgspec import Struct

from hermes.kit.lru_map import LruMap
from hermes.kit.mounts import Mounts
from hermes.kit.text import one_line
from hermes.ports.protected_paths import ProtectedPaths
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.tools.files.safe_open import path_blocked, resolve, resolve_or_same

MAX_SESSIONS = 512
MAX_PATH = 4_096
MAX_NAME = 255
"""Limits of Linux file systems, in bytes."""
MAX_COMPARED_FILES = 50_000
"""Files in blocked folders that are compared with a file that has several hard links."""
TMP_FOLDERS = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - these are the names of the folders
EXECUTED_NAMES = frozenset({".git", ".husky", ".envrc", "HEAD"})
"""Names that the user's git or shell executes without asking.

A folder with a `HEAD` may be a bare repository; then `REPOSITORY_CONFIG_NAMES` count as well.
"""
REPOSITORY_CONFIG_NAMES = frozenset({"config", "config.worktree", "commondir", "hooks"})

FileIdentity = tuple[int, int]


def require_path(path: str) -> None:
    if not path.strip() or "\0" in path:
        raise ToolError("the path is empty or contains a NUL character.")


class SensitivePaths(Struct, frozen=True):
    """Paths that need an approval to be written because programs act on their content.

    - `instruction_folders`: folders that instruct the agent.
    - `startup_files`: those of the user's shell, desktop and editor. They are not sensitive if
      the workspace lies inside one.
    - `is_executed_by_git`: whether the user's git would execute a file or read settings from it.
    """

    instruction_folders: Sequence[Path] = ()
    startup_files: Sequence[Path] = ()
    is_executed_by_git: Callable[[Path], bool] = lambda path: False


class PathPatterns:
    """Match paths part by part; any part may contain `*`."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.by_folder: dict[Path, dict[str, None]] = {}
        """Entry names by folder; a path is listed under its last folder without `*`."""
        self._root = _PatternNode()
        for path in paths:
            node = self._root
            for name in path.parts:
                node = node.child(name)
            node.is_end = True
            folder, last = path.parent, path.name
            while "*" in str(folder):
                folder, last = folder.parent, folder.name
            self.by_folder.setdefault(folder, {})[last] = None

    def longest_match(self, parts: Sequence[str]) -> int:
        """Return the length of the longest pattern that is the path or a parent of it, or 0."""
        found, nodes = 0, [self._root]
        for depth, name in enumerate(parts, 1):
            nodes = [pattern_node for node in nodes for pattern_node in node.matching(name)]
            if not nodes:
                break
            if any(node.is_end for node in nodes):
                found = depth
        return found


class _PatternNode:
    def __init__(self) -> None:
        self.is_end = False
        self._plain: dict[str, _PatternNode] = {}
        self._wild: dict[str, _PatternNode] = {}

    def child(self, name: str) -> "_PatternNode":
        return (self._wild if "*" in name else self._plain).setdefault(name, _PatternNode())

    def matching(self, name: str) -> "Iterator[_PatternNode]":
        if (node := self._plain.get(name)) is not None:
            yield node
        yield from (node for wild, node in self._wild.items() if fnmatchcase(name, wild))


class BlockedPaths:
    """Files and folders that no tool may touch, as they are at this moment.

    They match by name, which covers files that do not exist yet, and by inode, which covers hard
    links. Opened and blocked paths may be nested: the longer one wins, and of equals the blocked.
    """

    def __init__(self, protected: Sequence[PathPatterns], opened: Sequence[Path] = ()) -> None:
        self._protected = protected
        self._opened = [path.parts for path in opened]
        self._open_prefixes = [f"{path}/" for path in opened]
        self._folders: list[Path] = []
        self._identities: set[FileIdentity] = set()
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
        """Add a path unless it contains something that is open."""
        if any(prefix.startswith(f"{path}/") for prefix in self._open_prefixes):
            return
        try:
            stat = path.stat()
        except OSError:
            return
        self._identities.add(_identity(stat))
        if modes.S_ISDIR(stat.st_mode):
            self._folders.append(path)

    def covers(self, real: Path) -> bool:
        """Match a path without symlinks, even under the names other mounts give it."""
        return any(self._covers(path.parts) for path in (real, *self._second_names(real)))

    def _second_names(self, real: Path) -> Iterator[Path]:
        existing = next((path for path in (real, *real.parents) if os.path.lexists(path)), real)
        for name in self._mounts.other_paths(str(existing)):
            yield Path(name, *real.parts[len(existing.parts) :])

    def _covers(self, parts: tuple[str, ...]) -> bool:
        blocked = max((names.longest_match(parts) for names in self._protected), default=0)
        return blocked > 0 and not any(
            len(one) > blocked and parts[: len(one)] == one for one in self._opened
        )

    def forbids(self, stat: os.stat_result) -> bool:
        if _identity(stat) in self._identities:
            return True
        hard_linked = modes.S_ISREG(stat.st_mode) and stat.st_nlink > 1
        return hard_linked and self._has_inside(_identity(stat))

    def _has_inside(self, wanted: FileIdentity) -> bool:
        """True if there are too many files to compare: better block a file than leak a secret."""
        compared = 0
        for folder in self._folders:
            for found in _identities(folder):
                compared += 1
                if found == wanted or compared > MAX_COMPARED_FILES:
                    return True
        return False


class SessionPaths:
    """The working directory of each session, and the rules for reading and writing files.

    - `home`: the folder `~` stands for.
    - `protected`: files and folders no tool may open; names may contain `*` (`hermes.db*`).
    - `temporary`: folders that need no approval to be written.
    - `private`: the user's files that need an approval to be read (keys, passwords, histories).
    - `own_tmp`: the folder that a principal's commands see as `/tmp`, if it is not the system's.
    - `steering`: what needs an approval to be written; a list means `instruction_folders`.
    """

    def __init__(
        self,
        home: Path,
        protected: "ProtectedPaths | Sequence[Path]" = (),
        temporary: Sequence[Path] = TMP_FOLDERS,
        private: Sequence[Path] = (),
        own_tmp: Callable[[str], Path | None] = lambda principal: None,
        sensitive: "SensitivePaths | Sequence[Path]" = (),
    ) -> None:
        self._home = home
        sensitive = (
            sensitive if isinstance(sensitive, SensitivePaths) else SensitivePaths(sensitive)
        )
        self._instruction_folders = _with_real_parents(sensitive.instruction_folders)
        self._startup_files = _with_real_parents(sensitive.startup_files)
        self._is_executed_by_git = sensitive.is_executed_by_git
        rules = protected if isinstance(protected, ProtectedPaths) else ProtectedPaths(protected)
        self._opened = rules.opened
        self._protected = PathPatterns(_with_real_parents(rules.paths))
        self._private = PathPatterns(_with_real_parents(private))
        self._temporary = tuple(path.resolve() for path in temporary)
        self._own_tmp = own_tmp
        self._folders: LruMap[str, Path] = LruMap(MAX_SESSIONS)

    def cwd(self, scope: Scope) -> Path:
        """Return the session's working directory, or its workspace if that folder is gone."""
        folder = self._folders.get(scope.session)
        if folder is not None and is_folder(folder):
            return folder
        return Path(scope.workspace)

    def set_folder(self, session: str, folder: Path | None) -> None:
        """Set the working directory; None resets it to the workspace."""
        self._folders.keep(session, folder)

    def resolve(self, scope: Scope, path: str) -> Path:
        """Resolve a tool's path argument to an absolute path. Raises `ToolError`."""
        require_path(path)
        if path == "~" or path.startswith("~/"):
            path = f"{self._home}{path[1:]}"
        found = os.path.normpath(self.cwd(scope) / path)
        found = f"/{found.lstrip('/')}"
        names = map(_encode_path, found.split("/"))
        if len(_encode_path(found)) >= MAX_PATH or any(len(name) > MAX_NAME for name in names):
            raise ToolError(f"the path is too long: {one_line(path, 100)}")
        return self._map_tmp(Path(found), scope)

    def _map_tmp(self, path: Path, scope: Scope) -> Path:
        """Map `/tmp` to the one commands see, unless only the system's has the file."""
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
        """Return what is blocked for this scope now; valid for one call, since files change."""
        return self.blocked(scope.principal, scope.workspace, private=private)

    def blocked(
        self, principal: str = "", workspace: str = "", *, private: bool = False
    ) -> BlockedPaths:
        """Return what is blocked for a principal, with `private` including the private files.

        Without a principal nothing is opened.
        """
        opened = [
            *self._opened(principal),
            *([resolve_or_same(Path(workspace))] if workspace else ()),
        ]
        names = [self._protected, self._private] if private else [self._protected]
        return BlockedPaths(names, opened)

    def guard(self, path: Path, blocked: BlockedPaths | None = None) -> Path:
        """Return the real path.

        Raises `ToolError` if it is protected, directly or through a link, or cannot be resolved.
        """
        real = real_path(path)
        if _is_blocked(real, blocked or self.blocked()):
            raise path_blocked(path)
        return real

    def is_protected(self, path: Path, blocked: BlockedPaths | None = None) -> bool:
        """True for paths that cannot be resolved."""
        try:
            return _is_blocked(real_path(path), blocked or self.blocked())
        except ToolError:
            return True

    def needs_write_approval(self, scope: Scope, real: Path) -> bool:
        """Whether a write there needs an approval.

        True outside the workspace and `/tmp`. Inside them, true for what other programs act on:
        `EXECUTED_NAMES`, sensitive paths, startup files, and in the user's home for hidden, new and
        top-level files, as for commands. A workspace at `/` allows nothing.
        """
        workspace = resolve_or_same(Path(scope.workspace))
        tmp = self._own_tmp(scope.principal)
        temporary = self._temporary if tmp is None else (resolve_or_same(tmp),)
        free = (workspace, *temporary) if workspace.parts[1:] else temporary
        root = next((folder for folder in free if real.is_relative_to(folder)), None)
        if root is None or not EXECUTED_NAMES.isdisjoint(real.relative_to(root).parts):
            return True
        if _is_repository_config(root, real) or self._is_executed_by_git(real):
            return True
        if any(real.is_relative_to(folder) for folder in self._instruction_folders):
            return True
        if tmp is not None and root == resolve_or_same(tmp):
            return False
        starts = (start for start in self._startup_files if start.is_relative_to(root))
        return any(real.is_relative_to(start) for start in starts) or self._is_home_entry(
            root, real
        )

    def _is_home_entry(self, root: Path, real: Path) -> bool:
        """Whether it is a hidden, new or top-level entry of the home."""
        home = resolve_or_same(self._home)
        if not real.is_relative_to(home) or root.is_relative_to(home / _first_part(real, home)):
            return False
        first = _first_part(real, home)
        if first.startswith(".") or first == "bin":
            return True
        return real.parent == home or not is_folder(home / first)

    def contains_home(self, scope: Scope) -> bool:
        """Whether the workspace is the user's home or contains it."""
        return resolve_or_same(self._home).is_relative_to(resolve_or_same(Path(scope.workspace)))


def is_folder(path: Path) -> bool:
    """False if the system cannot tell: a shell's folder can be deeper than `MAX_PATH`."""
    try:
        return path.is_dir()
    except OSError:
        return False


def real_path(path: Path) -> Path:
    """Resolve a path with its links. Raises `ToolError` if that fails."""
    try:
        return resolve(path)
    except FileNotFoundError:
        raise ToolError(f"{path} cannot be resolved: a link in it is broken.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ToolError(f"{path}: {reason}.") from error


def _with_real_parents(paths: Sequence[Path]) -> list[Path]:
    """Resolve the parents of the paths; add the targets of paths that are links."""
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


def _is_repository_config(root: Path, real: Path) -> bool:
    """Whether it is the config of a bare repository, one without a `.git` folder."""
    candidates = [
        path for path in (real, *real.parents) if path != root and path.is_relative_to(root)
    ]
    return any(
        path.name in REPOSITORY_CONFIG_NAMES and os.path.lexists(path.parent / "HEAD")
        for path in candidates
    )


def _first_part(real: Path, home: Path) -> str:
    return next(iter(real.relative_to(home).parts), "")


def _encode_path(path: str) -> bytes:
    try:
        return os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ToolError("the path contains characters that file names cannot have.") from error


def _identity(stat: os.stat_result) -> FileIdentity:
    return stat.st_dev, stat.st_ino


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _identities(folder: Path) -> Iterator[FileIdentity]:
    """Yield the identity of everything below a folder without following links."""
    pending = [folder]
    while pending:
        for entry in _entries(pending.pop()):
            try:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                yield _identity(entry.stat(follow_symlinks=False))
            except OSError:
                continue


REMOTE_HOME = "~"
"""The remote user's home; the remote shell expands it."""


class RemotePaths:
    """The part of `SessionPaths` that commands need; they start in the folder `initial`."""

    def __init__(self, initial: str = REMOTE_HOME) -> None:
        self._initial = Path(initial)
        self._folders: LruMap[str, Path] = LruMap(MAX_SESSIONS)

    def cwd(self, scope: Scope) -> Path:
        return self._folders.get(scope.session) or self._initial

    def set_folder(self, session: str, folder: Path | None) -> None:
        """Set the working directory; None resets it to the initial one."""
        self._folders.keep(session, folder)

    def resolve(self, scope: Scope, path: str) -> Path:
        """Resolve a path argument to a remote path. Raises `ToolError`."""
        require_path(path)
        from_home = PurePosixPath(path).parts[0] == REMOTE_HOME
        return Path(path) if from_home else self.cwd(scope) / path

    def is_folder(self, path: Path) -> bool:
        """Assume so: only the remote machine can tell."""
        return True

    def reset(self, session: str) -> str:
        """Return to the initial folder, with a note for the model if that is another one."""
        if self._folders.get(session) is None:
            return ""
        self._folders.drop(session)
        return f"The next command starts in {self._initial} again."


def reset_remote_folder(paths: SessionPaths | RemotePaths, session: str) -> str:
    """Reset the folder after a command failed to start: it may no longer exist there."""
    return paths.reset(session) if isinstance(paths, RemotePaths) else ""
