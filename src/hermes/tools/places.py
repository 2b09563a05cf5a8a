"""Where a session stands in the file system, and which files no tool may touch."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from hermes.kit.text import one_line
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.tools.recent import Recent

SESSIONS = 512
MAX_PATH = 4_096
MAX_NAME = 255
"""Bytes that file systems take."""


class Places:
    """`home` is what `~` means; `protected` are files, folders or names with `*` (`state.db*`)."""

    def __init__(self, home: Path, protected: Sequence[Path] = ()) -> None:
        self._home = home
        self._protected = [path.parent.resolve() / path.name for path in protected]
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
        if len(os.fsencode(found)) >= MAX_PATH or _longest_name(found) > MAX_NAME:
            raise ToolError(f"the path is too long: {one_line(path, 100)}")
        return Path(found)

    def guard(self, path: Path) -> Path:
        """The path itself, unless it is (a link to) one of our own secrets or databases."""
        if self.is_protected(path):
            raise ToolError(
                f"{path} belongs to Hermes itself (secrets or state) and is closed to tools.",
                hint="Ask the user to look at it or to change it with `hermes config`.",
            )
        return path

    def is_protected(self, path: Path) -> bool:
        real = _real(path)
        return any(_covers(secret, real) for secret in self._protected)


def is_folder(path: Path) -> bool:
    """False also where the system will not say: a shell can stand deeper than a path can name."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _longest_name(path: str) -> int:
    return max(len(os.fsencode(name)) for name in path.split("/"))


def _covers(secret: Path, real: Path) -> bool:
    depth = len(secret.parts)
    below = len(real.parts) >= depth and real.parts[: depth - 1] == secret.parts[:-1]
    named = below and fnmatchcase(real.parts[depth - 1], secret.name)
    return named or _same_file(secret, real)


def _same_file(secret: Path, real: Path) -> bool:
    """A second name of the same file opens it as well as the first."""
    try:
        mine, other = secret.stat(), real.stat()
    except OSError:
        return False
    return (mine.st_dev, mine.st_ino) == (other.st_dev, other.st_ino)


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path
