"""Where a file's words come from: the person's own work, or the world outside.

Files in the workspace are the daily work. Foreign are those that came in while a command could
reach the network, those that our tools wrote with strangers' words in them, those in folders
where things from outside are put, those of other users, and what lies outside of the workspace.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hermes.kit.clock import Clock
from hermes.kit.files import read_ordinary
from hermes.schema.scope import Scope
from hermes.tools.marks import (
    OLDEST,
    Folders,
    Marks,
    Note,
    folders_in,
    made_since,
    packed,
    unpacked,
)
from hermes.tools.recent import Recent
from hermes.tools.touched import paths_of
from hermes.tools.touched import real as _real
from hermes.tools.trusted import LARGEST, Trusted, is_guide_below

OUTSIDE_NAMES = frozenset({"downloads", "attachments", ".cache", "node_modules", "site-packages"})
"""Folders in a workspace that hold what others wrote, by their names in small letters."""
KNOWN = 8_192
LONGEST = 600.0
"""Seconds of a command in which what changes counts as brought by it."""
LONGEST_BEHIND = 3_600.0
"""The same of one in the background: a server runs for days."""
COARSE = 0.02
"""Seconds by which the clock of a file system is behind."""
MOST_WORDS = 1_000
MOST_ENTRIES = 5_000
"""Entries of a folder that are looked at, when a command names the folder."""


class Origins:
    """`log` keeps over a restart when commands fetched; `own` are folders of the house.

    `trusted` says which files that tell how things are done the owner vouched for.
    """

    def __init__(
        self,
        clock: Clock,
        log: Path | None = None,
        own: Sequence[Path] = (),
        trusted: Trusted | None = None,
    ) -> None:
        self._clock = clock
        self._own = tuple(_real(path) for path in own)
        self._marks = Marks(log)
        self.trusted = trusted or Trusted()
        self._written: Recent[Path, tuple[int, bool]] = Recent(KNOWN)

    def now(self) -> float:
        return self._clock.now().timestamp()

    def fetched_since(self, began: float) -> None:
        """A command that could bring something from outside has ended; it began then."""
        self.note_end(began, LONGEST, ())

    def fetching(self, folders: Sequence[Path], longest: float = LONGEST) -> "Fetching":
        """A command begins that may bring something, most likely into one of the folders."""
        return Fetching(self, folders, longest)

    def note_begin(self, began: float, longest: float, folders: Sequence[str]) -> None:
        """Written down at once: whoever is killed from now on cannot do it any more."""
        inside = tuple(packed(Path(one)) for one in folders)
        self._note(Note(began - COARSE, began + longest, inside))

    def note_end(self, began: float, longest: float, roots: tuple[str, ...]) -> None:
        """In place of what was written when it began; `roots` are folders that it made."""
        end = min(self.now(), began + longest) + COARSE
        self._note(Note(began - COARSE, end, roots=roots))

    def _note(self, note: Note) -> None:
        self._marks.add(note, self._oldest)

    def wrote(self, path: Path, *, foreign: bool) -> None:
        """One of our tools has just written it, with words that are known."""
        with suppress(OSError):
            changed = path.lstat().st_ctime_ns
            self._written.put(path, (changed, foreign))
            if foreign:
                self._note(Note(file=packed(path), changed=changed))

    def is_foreign(self, scope: Scope, real: Path) -> bool:
        """Whether what stands in the file may be somebody else's words.

        What tells how things are done in a folder is, until the owner vouched for it.
        """
        if is_guide_below(real, _real(Path(scope.workspace))):
            return not self.is_vouched_for(real)
        return self.is_marked(scope, real)

    def is_vouched_for(self, real: Path) -> bool:
        try:
            return self.trusted.knows(real, read_ordinary(real, LARGEST))
        except OSError:
            return False

    def is_marked(self, scope: Scope, real: Path) -> bool:
        """Whether it is known to have come from others, whatever its name is."""
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
        if self._marks.written(real) == stat.st_ctime_ns:
            return True
        return self._marks.covers(stat.st_ctime, self._oldest)

    def names_foreign(self, words: Sequence[str], folder: Path, *more: Path) -> bool:
        """Whether a command touches what came in, as one does that unpacks, copies or shows it.

        It stands in `folder`, and goes to `more` of them.
        """
        bases = (folder, *more)
        known = bool(self._marks)
        if known and any(self._in_root(_real(base)) for base in bases):
            return True
        likely = [word for word in words if known or _is_put_aside(word.split("/"))]
        for word in likely[:MOST_WORDS]:
            aside = _is_put_aside(word.split("/"))
            if any(aside or self._is_touched(path) for path in paths_of(word, bases)):
                return True
        return False

    def _is_touched(self, path: Path) -> bool:
        if self._in_root(path):
            return True
        if not path.is_dir():
            return path.is_file() and self.came_in(path)
        inner = (unpacked(one) for one in self._marks.roots())
        if any(one.is_relative_to(path) and one.is_dir() for one in inner):
            return True
        return any(self.came_in(one) for one in _files_below(path))

    def _in_root(self, path: Path) -> bool:
        """Whether it lies in a folder that was brought as a whole."""
        return any(path.is_relative_to(unpacked(one)) for one in self._marks.roots())

    @property
    def _oldest(self) -> float:
        return self.now() - OLDEST


class Fetching:
    """A command at work that may bring something; what it is noted with when it begins."""

    def __init__(self, origins: Origins, folders: Sequence[Path], longest: float) -> None:
        self._origins = origins
        self._longest = longest
        self._began = origins.now()
        self._before: Folders = folders_in(dict.fromkeys(folders))
        origins.note_begin(self._began, longest, list(self._before))

    def over(self) -> None:
        """It has ended: from now on nothing more counts as brought by it."""
        roots = made_since(self._before)
        self._origins.note_end(self._began, self._longest, roots)


def _files_below(folder: Path) -> Iterator[Path]:
    """Some thousand of them, the outer ones first; not what has a place of its own."""
    waiting, left = [folder], MOST_ENTRIES
    while waiting and left > 0:
        inner: list[Path] = []
        for place in waiting:
            with suppress(OSError), os.scandir(place) as entries:
                for one in entries:
                    left -= 1
                    if left < 0:
                        return
                    if not one.is_dir(follow_symlinks=False):
                        yield Path(one.path)
                    elif one.name != ".git" and not _is_put_aside([one.name]):
                        inner.append(Path(one.path))
        waiting = inner


def _is_of_others(real: Path, workspace: Path) -> bool:
    """Of neither us, nor root, nor whom the workspace belongs to."""
    try:
        return real.lstat().st_uid not in {os.geteuid(), 0, workspace.lstat().st_uid}
    except OSError:
        return False


def _is_put_aside(parts: Sequence[str]) -> bool:
    return any(part.lower() in OUTSIDE_NAMES for part in parts)
