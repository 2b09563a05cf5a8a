"""Track the working folder of sessions whose commands run on another machine."""

from pathlib import Path, PurePosixPath

from hermes.kit.lru_map import LruMap
from hermes.schema.scope import Scope
from hermes.tools.paths import MAX_SESSIONS, SessionPaths, require_path

REMOTE_HOME = "~"
"""The remote user's home; the remote shell expands it."""


class RemotePaths:
    """The part of `SessionPaths` that commands need; they start in the folder `initial`."""

    def __init__(self, first: str = REMOTE_HOME) -> None:
        self._first = Path(first)
        self._standing: LruMap[str, Path] = LruMap(MAX_SESSIONS)

    def cwd(self, scope: Scope) -> Path:
        return self._standing.get(scope.session) or self._first

    def move(self, session: str, folder: Path | None) -> None:
        """Set the working folder; None resets it to the initial one."""
        self._standing.keep(session, folder)

    def find(self, scope: Scope, path: str) -> Path:
        """Resolve a path argument to a remote path. Raises `ToolError`."""
        require_path(path)
        from_home = PurePosixPath(path).parts[0] == REMOTE_HOME
        return Path(path) if from_home else self.cwd(scope) / path

    def is_folder(self, path: Path) -> bool:
        """Assume so: only the remote machine can tell."""
        return True

    def begin_again(self, session: str) -> str:
        """Return to the initial folder, with a note for the model if that is another one."""
        if self._standing.get(session) is None:
            return ""
        self._standing.drop(session)
        return f"The next command starts in {self._first} again."


def reset_remote_folder(places: SessionPaths | RemotePaths, session: str) -> str:
    """Reset the folder after a command failed to start: it may no longer exist there."""
    return places.begin_again(session) if isinstance(places, RemotePaths) else ""
