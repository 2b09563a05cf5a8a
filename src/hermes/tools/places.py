"""Where a session stands in the file system, and which files no tool may touch."""

import os
import stat as modes
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from hermes.kit.text import one_line
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.tools.files.ways import closed, resolve
from hermes.tools.recent import Recent

SESSIONS = 512
MAX_PATH = 4_096
MAX_NAME = 255
"""Bytes that file systems take."""
MOST_FILES = 50_000
"""Files in closed folders that are compared with one that has several names."""
TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - these are the names of the folders
STEERING = frozenset({".git", ".husky", ".envrc"})
"""What the user's own git or shell executes without asking."""

Identity = tuple[int, int]


class Closed:
    """Files and folders that no tool may touch, as they are at this moment.

    By name, which also holds for files that do not exist yet, and by identity: a second name
    of a file opens it as well as the first.
    """

    def __init__(self, protected: Sequence[Path]) -> None:
        self._protected = protected
        self._folders: list[Path] = []
        self._known: set[Identity] = set()
        by_folder: dict[Path, list[str]] = {}
        for path in protected:
            by_folder.setdefault(path.parent, []).append(path.name)
        for folder, names in by_folder.items():
            plain = {name for name in names if "*" not in name}
            wild = [name for name in names if "*" in name]
            if len(names) == 1 and plain:
                self._know(folder / names[0])
                continue
            for entry in _entries(folder):
                name = entry.name
                if name in plain or any(fnmatchcase(name, one) for one in wild):
                    self._know(Path(entry.path))

    def _know(self, path: Path) -> None:
        try:
            stat = path.stat()
        except OSError:
            return
        self._known.add(_identity(stat))
        if modes.S_ISDIR(stat.st_mode):
            self._folders.append(path)

    def covers(self, real: Path) -> bool:
        """By the names of a path without links."""
        return any(_covers(secret, real) for secret in self._protected)

    def forbids(self, stat: os.stat_result) -> bool:
        if _identity(stat) in self._known:
            return True
        several = modes.S_ISREG(stat.st_mode) and stat.st_nlink > 1
        return several and self._has_inside(_identity(stat))

    def _has_inside(self, wanted: Identity) -> bool:
        """Also where there are too many files to tell: a second name is not worth a secret."""
        looked = 0
        for folder in self._folders:
            for found in _identities(folder):
                looked += 1
                if found == wanted or looked > MOST_FILES:
                    return True
        return False


class Places:
    """`home` is what `~` means; `protected` are files, folders or names with `*` (`state.db*`).

    `temporary` are folders that anybody writes in without asking; `private` are files of the
    user's own that are read with leave only: keys, passwords, histories. `own_tmp` is the
    folder that somebody's commands see as `/tmp`, if not the machine's. `steering` are folders
    of ours that tell the agent what to do, and so are written with leave only.
    """

    def __init__(
        self,
        home: Path,
        protected: Sequence[Path] = (),
        temporary: Sequence[Path] = TEMPORARY,
        private: Sequence[Path] = (),
        own_tmp: Callable[[str], Path | None] = lambda principal: None,
        steering: Sequence[Path] = (),
    ) -> None:
        self._home = home
        self._steering = _settled(steering)
        self._protected = _settled(protected)
        self._private = _settled(private)
        self._temporary = tuple(path.resolve() for path in temporary)
        self._own_tmp = own_tmp
        self._standing: Recent[str, Path] = Recent(SESSIONS)

    def cwd(self, scope: Scope) -> Path:
        """Where the session's shell stands; its workspace when that folder is gone."""
        standing = self._standing.get(scope.session)
        if standing is not None and is_folder(standing):
            return standing
        return Path(scope.workspace)

    def move(self, session: str, folder: Path | None) -> None:
        """None leads back to the workspace."""
        if folder is None:
            self._standing.drop(session)
        else:
            self._standing.put(session, folder)

    def find(self, scope: Scope, path: str) -> Path:
        """The absolute path that a tool's argument means. Raises `ToolError`."""
        if not path.strip() or "\0" in path:
            raise ToolError("the path is empty or contains a NUL character")
        if path == "~" or path.startswith("~/"):
            path = f"{self._home}{path[1:]}"
        found = os.path.normpath(self.cwd(scope) / path)
        found = f"/{found.lstrip('/')}"
        if len(_bytes(found)) >= MAX_PATH or _longest_name(found) > MAX_NAME:
            raise ToolError(f"the path is too long: {one_line(path, 100)}")
        return self._as_commands_see(Path(found), scope)

    def _as_commands_see(self, path: Path, scope: Scope) -> Path:
        """What commands call `/tmp` is meant, unless only the machine's own has that file."""
        outer = next((folder for folder in TEMPORARY if path.is_relative_to(folder)), None)
        if outer is None or path.is_relative_to(scope.workspace or "/"):
            return path
        tmp = self._own_tmp(scope.principal)
        if tmp is None:
            return path
        inner = tmp / path.relative_to(outer)
        return path if os.path.lexists(path) and not os.path.lexists(inner) else inner

    def closed(self, *, private: bool = False) -> Closed:
        """What is closed now, or also what is private; for one call, since files come and go."""
        return Closed([*self._protected, *self._private] if private else self._protected)

    def guard(self, path: Path, now: Closed | None = None) -> Path:
        """The real path, unless it is (a link to) one of our own secrets or databases.

        Raises `ToolError`; a path that leads nowhere is one, too.
        """
        real = real_path(path)
        if _shut(real, now or self.closed()):
            raise closed(path)
        return real

    def is_protected(self, path: Path, now: Closed | None = None) -> bool:
        """True also for what nobody may reach at all."""
        try:
            return _shut(real_path(path), now or self.closed())
        except ToolError:
            return True

    def beyond(self, scope: Scope, real: Path) -> bool:
        """Whether a write there must be allowed by somebody: outside the workspace and `/tmp`.

        What steers other programs is beyond, too, wherever the workspace is: `STEERING`, and
        the hidden files and programs in the user's home. The root is nobody's workspace.
        """
        workspace = _lenient(Path(scope.workspace))
        tmp = self._own_tmp(scope.principal)
        temporary = self._temporary if tmp is None else (_lenient(tmp),)
        free = (workspace, *temporary) if workspace.parts[1:] else temporary
        root = next((folder for folder in free if real.is_relative_to(folder)), None)
        if root is None or not STEERING.isdisjoint(real.relative_to(root).parts):
            return True
        if any(real.is_relative_to(folder) for folder in self._steering):
            return True
        if tmp is not None and root == _lenient(tmp):
            return False
        home = _lenient(self._home)
        if not real.is_relative_to(home) or root.is_relative_to(home / _first(real, home)):
            return False
        return _first(real, home).startswith(".") or _first(real, home) == "bin"


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


def _settled(paths: Sequence[Path]) -> list[Path]:
    """With their folders as they really are."""
    folders = {folder: folder.resolve() for folder in {path.parent for path in paths}}
    return [folders[path.parent] / path.name for path in paths]


def _shut(real: Path, now: Closed) -> bool:
    if now.covers(real):
        return True
    try:
        return now.forbids(real.lstat())
    except OSError:
        return False


def _lenient(path: Path) -> Path:
    try:
        return resolve(path)
    except (OSError, ToolError):
        return path


def _first(real: Path, home: Path) -> str:
    return next(iter(real.relative_to(home).parts), "")


def _bytes(path: str) -> bytes:
    try:
        return os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ToolError("the path has characters that no file name can have") from error


def _longest_name(path: str) -> int:
    return max(len(_bytes(name)) for name in path.split("/"))


def _covers(secret: Path, real: Path) -> bool:
    depth = len(secret.parts)
    below = len(real.parts) >= depth and real.parts[: depth - 1] == secret.parts[:-1]
    return below and fnmatchcase(real.parts[depth - 1], secret.name)


def _identity(stat: os.stat_result) -> Identity:
    return stat.st_dev, stat.st_ino


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _identities(folder: Path) -> Iterator[Identity]:
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
