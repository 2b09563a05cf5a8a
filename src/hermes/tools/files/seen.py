"""Remember what a session saw of a file, to notice that somebody else changed it since."""

import os
from pathlib import Path

from hermes.tools.recent import Recent

FILES = 8_192

Stamp = tuple[int, int, int]


class Seen:
    """One memory for all file tools; a session that read nothing knows nothing."""

    def __init__(self, limit: int = FILES) -> None:
        self._stamps: Recent[tuple[str, Path], Stamp] = Recent(limit)

    def note(self, session: str, path: Path, stat: os.stat_result) -> None:
        self._stamps.put((session, path), _stamp(stat))

    def forget(self, session: str, path: Path) -> None:
        self._stamps.drop((session, path))

    def knows(self, session: str, path: Path) -> bool:
        return self._stamps.get((session, path)) is not None

    def changed(self, session: str, path: Path, stat: os.stat_result | None) -> bool:
        """True when the session saw another state of this file than the one on disk."""
        known = self._stamps.get((session, path))
        return known is not None and (stat is None or _stamp(stat) != known)


def _stamp(stat: os.stat_result) -> Stamp:
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
