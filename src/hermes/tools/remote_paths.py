"""Track the working folder of sessions whose commands run on another machine."""

from pathlib import Path, PurePosixPath

from hermes.kit.lru_map import LruMap
from hermes.schema.scope import Scope
from hermes.tools.paths import MAX_SESSIONS, SessionPaths, require_path

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
        """Set the working folder; None resets it to the initial one."""
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
