"""Where a session's shell stands on another machine, whose folders nobody can look at from here."""

from pathlib import Path, PurePosixPath

from hermes.kit.lru_map import LruMap
from hermes.schema.scope import Scope
from hermes.tools.paths import MAX_SESSIONS, SessionPaths, require_path

REMOTE_HOME = "~"
"""The home of whoever we are over there; its shell knows where that is."""


class RemotePaths:
    """As much of `Places` as commands need; they begin in the folder `first`."""

    def __init__(self, first: str = REMOTE_HOME) -> None:
        self._first = Path(first)
        self._standing: LruMap[str, Path] = LruMap(MAX_SESSIONS)

    def cwd(self, scope: Scope) -> Path:
        return self._standing.get(scope.session) or self._first

    def move(self, session: str, folder: Path | None) -> None:
        """None leads back to where they begin."""
        self._standing.keep(session, folder)

    def find(self, scope: Scope, path: str) -> Path:
        """The folder that is meant over there. Raises `ToolError`."""
        require_path(path)
        from_home = PurePosixPath(path).parts[0] == REMOTE_HOME
        return Path(path) if from_home else self.cwd(scope) / path

    def is_folder(self, path: Path) -> bool:
        """Whoever goes there finds out."""
        return True

    def begin_again(self, session: str) -> str:
        """Stand where commands begin; what is to be told of that, if it is somewhere else."""
        if self._standing.get(session) is None:
            return ""
        self._standing.drop(session)
        return f"The next command begins in {self._first} again."


def reset_remote_folder(places: SessionPaths | RemotePaths, session: str) -> str:
    """For a command that could not be begun: the folder may be gone, and nobody here sees that."""
    return places.begin_again(session) if isinstance(places, RemotePaths) else ""
