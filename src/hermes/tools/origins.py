"""Where a file's words come from: the person's own work, or the world outside.

Files in the workspace are the daily work. Foreign are those that came in while a command could
reach the network, those that our tools wrote with strangers' words in them, those in folders
where things from outside are put, those of other users, and what lies outside of the workspace.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hermes.kit.clock import Clock
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.tools.files.ways import resolve
from hermes.tools.recent import Recent

OUTSIDE_NAMES = frozenset({"downloads", "attachments", ".cache", "node_modules", "site-packages"})
"""Folders in a workspace that hold what others wrote, by their names in small letters."""
KNOWN = 8_192
MOST_SPANS = 500
LONGEST = 600.0
"""Seconds of a command in which what changes counts as brought by it: a server runs for days."""
OLDEST = 7 * 86_400.0
COARSE = 0.02
"""Seconds by which the clock of a file system is behind."""
MOST_WORDS = 64

Span = tuple[float, float]


class Origins:
    """`log` keeps over a restart when commands fetched; `own` are folders of the house."""

    def __init__(self, clock: Clock, log: Path | None = None, own: Sequence[Path] = ()) -> None:
        self._clock = clock
        self._log = log
        self._own = tuple(_real(path) for path in own)
        self._spans: list[Span] = []
        self._read: int | None = None
        self._quoting = False
        self._written: Recent[Path, tuple[int, bool]] = Recent(KNOWN)

    def now(self) -> float:
        return self._clock.now().timestamp()

    def fetched_since(self, began: float) -> None:
        """A command that could bring something from outside has ended; it began then."""
        self._note((began - COARSE, min(self.now(), began + LONGEST) + COARSE))

    def _note(self, span: Span) -> None:
        self._spans = [*self._recent(), span][-MOST_SPANS:]
        if self._log is not None:
            self._keep(self._log, span)

    def fetches_from_now(self) -> None:
        """A command that goes on by itself may bring something for a while."""
        self._note((self.now() - COARSE, self.now() + LONGEST))

    def wrote(self, path: Path, *, foreign: bool) -> None:
        """One of our tools has just written it, with words that are known."""
        with suppress(OSError):
            self._written.put(path, (path.lstat().st_ctime_ns, foreign))
            self._quoting |= foreign

    def is_foreign(self, scope: Scope, real: Path) -> bool:
        """Whether what stands in the file may be somebody else's words."""
        workspace = _real(Path(scope.workspace))
        if not workspace.parts[1:]:
            return self.came_in(real)
        inside = real.is_relative_to(workspace)
        if not inside and not any(real.is_relative_to(folder) for folder in self._own):
            return True
        if inside and _is_put_aside(real.relative_to(workspace).parts[:-1]):
            return True
        return self.came_in(real) or _is_of_others(real, workspace)

    def came_in(self, real: Path) -> bool:
        """Whether it was brought from outside, wherever it lies; False where it is not known."""
        try:
            stat = real.lstat()
        except OSError:
            return False
        known = self._written.get(real)
        if known is not None and known[0] == stat.st_ctime_ns:
            return known[1]
        changed = stat.st_ctime
        return any(start <= changed <= end for start, end in self._recent())

    def names_foreign(self, words: Sequence[str], folder: Path) -> bool:
        """Whether a command names a file that came in, as one does that unpacks or shows it."""
        known = self._quoting or bool(self._recent())
        likely = [word for word in words if known or _is_put_aside(word.split("/"))]
        for word in likely[:MOST_WORDS]:
            path = _real(folder / word)
            if path.is_file() and (self.came_in(path) or _is_put_aside(word.split("/"))):
                return True
        return False

    def _recent(self) -> list[Span]:
        self._load()
        oldest = self.now() - OLDEST
        return [span for span in self._spans if span[1] > oldest]

    def _load(self) -> None:
        """What this process, an earlier one or another one has noted; read when it changed."""
        if self._log is None:
            return
        try:
            stamp = self._log.stat().st_mtime_ns
            if stamp != self._read:
                lines = self._log.read_text("ascii", "replace").splitlines()[-MOST_SPANS:]
                self._spans = [span for line in lines if (span := _span(line))]
                self._read = stamp
        except OSError:
            return

    def _keep(self, log: Path, span: Span) -> None:
        """Appended, so that nobody's note is lost; written anew when it has grown long."""
        line = f"{span[0]:.3f} {span[1]:.3f}\n"
        with suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            long = log.exists() and log.stat().st_size > 100 * MOST_SPANS
            text = "".join(f"{a:.3f} {b:.3f}\n" for a, b in self._spans) if long else line
            with log.open("w" if long else "a", encoding="ascii") as file:
                file.write(text)


def _span(line: str) -> Span | None:
    try:
        start, end = map(float, line.split())
    except ValueError:
        return None
    return start, end


def _real(path: Path) -> Path:
    try:
        return resolve(path)
    except (OSError, ValueError, ToolError):
        return path


def _is_of_others(real: Path, workspace: Path) -> bool:
    """Of neither us, nor root, nor whom the workspace belongs to."""
    try:
        return real.lstat().st_uid not in {os.geteuid(), 0, workspace.lstat().st_uid}
    except OSError:
        return False


def _is_put_aside(parts: Sequence[str]) -> bool:
    return any(part.lower() in OUTSIDE_NAMES for part in parts)
