"""Where a file's words come from: the person's own work, or the world outside.

Files in the workspace are the daily work. Foreign are those that came in while a command could
reach the network, those that our tools wrote with strangers' words in them, those in folders
where things from outside are put, those of other users, and what lies outside of the workspace.

What tells how things are done speaks only if nobody but the owner could have written it: what was
silent once stays so, as content and in its place, until the owner vouches for what is there.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from hermes.kit.clock import Clock
from hermes.kit.files import read_ordinary
from hermes.schema.scope import Scope
from hermes.tools.guidance import guides_around
from hermes.tools.marks import (
    OLDEST,
    Folders,
    Marks,
    Note,
    Times,
    folders_in,
    made_since,
    packed,
    unpacked,
)
from hermes.tools.recent import Recent
from hermes.tools.touched import paths_of
from hermes.tools.touched import real as _real
from hermes.tools.trusted import GUIDES, LARGEST, Trusted, digest_of, is_guide_below

OUTSIDE_NAMES = frozenset({"downloads", "attachments", ".cache", "node_modules", "site-packages"})
"""Folders in a workspace that hold what others wrote, by their names in small letters."""
OTHERS_WORK = OUTSIDE_NAMES | {"bower_components", "dist-packages", "third_party", "vendor"}
"""The same, with those that are part of many projects: it counts only for what is learned."""
KNOWN = 8_192
LONGEST = 600.0
"""Seconds of a command in which what changes counts as brought by it."""
LONGEST_BEHIND = 3_600.0
"""The same of one in the background: a server runs for days. For what tells how things are done
it counts until its end, whenever that is."""
COARSE = 0.02
"""Seconds by which the clock of a file system is behind."""
A_MOMENT = 5.0
"""Seconds in which something was written, and moved away by somebody before it was noted."""
MOST_WORDS = 10_000
"""Of a command; one with more of them may touch anything."""
MOST_FOLDERS = 64
"""In which it is looked for what a command may have brought that tells how things are done."""
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
        self._begun: set[float] = set()

    def now(self) -> float:
        return self._clock.now().timestamp()

    def fetched_since(self, began: float) -> None:
        """A command that could bring something from outside has ended; it began then."""
        self.note_end(began, LONGEST, ())

    def fetching(
        self, folders: Sequence[Path], longest: float = LONGEST, began: float | None = None
    ) -> "Fetching":
        """A command begins that may bring something, most likely into one of the folders.

        It is said when it is over.
        """
        return Fetching(self, folders, longest, began)

    def others_at_work(self, folder: Path, began: float | None = None) -> "OthersAtWork":
        """Something begins there on which others than the owner have a say."""
        return OthersAtWork(self, folder, self.now() if began is None else began)

    def begins(self, at: float | None) -> float:
        """When; no two that are at work at the same time have the same, for it is their name."""
        began = self.now() if at is None else at
        while began in self._begun:
            began -= 1e-6
        self._begun.add(began)
        return began

    def ended(self, began: float) -> None:
        self._begun.discard(began)

    def note_others(self, folder: Path, began: float) -> None:
        """What the owner has there until then stays the owner's, whatever becomes of it."""
        self._note_new(Note(min(began, self.now()) - COARSE, others=packed(folder)))
        for path, data in guides_around(folder, LARGEST):
            if data.strip() and self.speaks(path, data, folder):
                self.trusted.vouch(_real(path), data)

    def note_begin(
        self, began: float, longest: float, folders: Sequence[Path], pid: int = 0
    ) -> None:
        """Written down at once: whoever is killed from now on cannot do it any more."""
        self._note(Note(began - COARSE, began + longest, tuple(map(packed, folders)), pid=pid))

    def note_end(self, began: float, longest: float, roots: tuple[str, ...]) -> None:
        """In place of what was written when it began; `roots` are folders that it made."""
        start, end = self._span(began, longest)
        if start < began:
            self.note_begin(began, longest, ())
        late = max(self.now() + COARSE, end)
        self._note(Note(start - COARSE, end + COARSE, roots=roots, late=late))

    def _span(self, began: float, longest: float) -> tuple[float, float]:
        """From when to when something was at work that ends now, also if the clock was set back."""
        now = self.now()
        return min(began, now), max(began, min(now, began + longest))

    def look_around(self, folders: Iterable[Path]) -> None:
        """Whatever is silent there now is known by its content from now on."""
        for folder in islice(dict.fromkeys(folders), MOST_FOLDERS):
            for path, data in guides_around(folder, LARGEST):
                self.speaks(path, data, folder)

    def refuse(self, real: Path, data: bytes) -> None:
        """It is not to be followed: neither there nor, with that content, anywhere else."""
        when = _changed(real, unknown=self.now())
        self._note_new(Note(when, file=packed(real), digest=digest_of(data)))

    def _note_new(self, note: Note) -> None:
        if not self._marks.knows(note):
            self._note(note)

    def _note(self, note: Note) -> None:
        self._marks.add(note, self._oldest)

    def wrote(self, path: Path, *, foreign: bool) -> None:
        """One of our tools has just written it, with words that are known."""
        try:
            stat = path.lstat()
        except OSError:
            if foreign:
                self.fetched_since(self.now() - A_MOMENT)
            return
        self._written.put(path, (stat.st_ctime_ns, foreign))
        if foreign:
            self._note(Note(file=packed(path), changed=stat.st_ctime_ns, inode=stat.st_ino))

    def is_foreign(self, scope: Scope, real: Path) -> bool:
        """Whether what stands in the file may be somebody else's words.

        What tells how things are done in a folder is, until the owner vouched for it.
        """
        workspace = _real(Path(scope.workspace))
        if is_guide_below(real, workspace):
            return not self.is_vouched_for(real)
        if self.is_marked(scope, real):
            return True
        told = real.parent == workspace and real.name in GUIDES and self._changed_by_others(real)
        return told and not self.is_vouched_for(real)

    def speaks(self, path: Path, data: bytes, workspace: Path) -> bool:
        """Whether a file of the project, found at that path, may tell how things are done.

        It may unless it came in, or was changed after others than the owner had a say there, or a
        link that leads there did and was, or it was silent before; and always as the owner once
        vouched for it.
        """
        real, around = _real(path), _real(workspace)
        if self.trusted.knows(real, data):
            if self._marks.is_silent(real):
                self._note(Note(file=packed(real)))
            return True
        if self._is_put_there(real, around, digest_of(data)):
            self.refuse(real, data)
            return False
        return not any(self._may_be_theirs(one, around) for one in _links(path, workspace))

    def _is_put_there(self, real: Path, around: Path, digest: str) -> bool:
        shared = os.path.commonpath((real, around))
        if _is_put_aside(real.relative_to(shared).parts[:-1]):
            return True
        if self._marks.refused(real, digest, _changed(real, unknown=float("inf"))):
            return True
        return self._may_be_theirs(real, around)

    def _may_be_theirs(self, path: Path, around: Path) -> bool:
        came_in = self.came_in(path, late=True)
        return came_in or _is_of_others(path, around) or self._changed_by_others(path)

    def may_speak(self, path: Path) -> bool:
        """As `speaks`, of a file as it is now, wherever it lies."""
        try:
            data = read_ordinary(path, LARGEST)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return self.speaks(path, data, path.parent)

    def _changed_by_others(self, path: Path) -> bool:
        try:
            return self._marks.by_others(path, path.lstat().st_ctime)
        except OSError:
            return True

    def is_vouched_for(self, real: Path) -> bool:
        try:
            return self.trusted.knows(real, read_ordinary(real, LARGEST))
        except OSError:
            return False

    def is_marked(self, scope: Scope, real: Path) -> bool:
        """Whether it is known to have come from others, whatever its name is.

        Of what was read and is gone by now nobody knows any more.
        """
        workspace = _real(Path(scope.workspace))
        if not workspace.parts[1:]:
            return self.came_in(real) or not os.path.lexists(real)
        inside = real.is_relative_to(workspace)
        if not inside and not self._is_own(real):
            return True
        if inside and _is_put_aside(real.relative_to(workspace).parts[:-1]):
            return True
        return self.came_in(real) or _is_of_others(real, workspace)

    def is_unverified(self, scope: Scope, real: Path) -> bool:
        """Whether somebody else may have written the file: it is used, but not learned from."""
        if self.is_foreign(scope, real):
            return True
        workspace = _real(Path(scope.workspace))
        inside = real.is_relative_to(workspace)
        return inside and holds_others_work(real.relative_to(workspace).parts[:-1])

    def is_others_folder(self, scope: Scope, real: Path) -> bool:
        """Whether what lies in a folder is others' work because of where the folder is."""
        workspace = _real(Path(scope.workspace))
        if real.is_relative_to(workspace):
            if holds_others_work(real.relative_to(workspace).parts):
                return True
        elif holds_others_work(real.parts) or not self._is_own(real):
            return True
        return self._in_root(real) or self._has_root(real)

    def _is_own(self, real: Path) -> bool:
        return any(real.is_relative_to(folder) for folder in self._own)

    def times(self) -> Times:
        """When something was brought, as far as is known now."""
        return self._marks.times()

    def is_others_file(self, entry: os.DirEntry[str], users: Collection[int], times: Times) -> bool:
        """Of a file found in a folder: whether another user has it, or it was brought."""
        try:
            stat = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        if stat.st_uid not in users:
            return True
        return times.may_hold(stat) and self._was_brought(Path(entry.path), stat, late=False)

    def has_fetched(self, folder: Path) -> bool:
        """Whether what others committed was fetched into the repository around a folder."""
        around = (one / ".git" for one in (folder, *folder.parents))
        place = next((one for one in around if one.exists()), None)
        return place is not None and self.came_in(place / "FETCH_HEAD")

    def came_in(self, real: Path, *, late: bool = False) -> bool:
        """Whether it was brought from outside, wherever it lies; what is not there was not.

        With `late` also by a command that has been at work for longer than most are.
        """
        try:
            stat = real.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return self._was_brought(real, stat, late=late)

    def _was_brought(self, real: Path, stat: os.stat_result, *, late: bool) -> bool:
        known = self._written.get(real)
        if known is not None and known[0] == stat.st_ctime_ns:
            return known[1]
        if self._marks.written(real, stat):
            return True
        return self._marks.covers(stat.st_ctime, self._oldest, late=late)

    def names_foreign(self, words: Sequence[str], folder: Path, *more: Path) -> bool:
        """Whether a command touches what came in, as one does that unpacks, copies or shows it.

        It stands in `folder`, and goes to `more` of them.
        """
        bases = (folder, *more)
        known = bool(self._marks)
        if known and any(self._in_root(_real(base)) for base in bases):
            return True
        likely = [word for word in words if known or _is_put_aside(word.split("/"))]
        if len(likely) > MOST_WORDS:
            return True
        for word in likely:
            aside = _is_put_aside(word.split("/"))
            if any(aside or self._is_touched(path) for path in paths_of(word, bases)):
                return True
        return False

    def _is_touched(self, path: Path) -> bool:
        if self._in_root(path):
            return True
        if not os.path.isdir(path):  # noqa: PTH112 - it may be closed to us, which is no error here
            return os.path.isfile(path) and self.came_in(path)  # noqa: PTH113 - as above
        if self._has_root(path):
            return True
        return any(self.came_in(one) for one in _files_below(path))

    def _in_root(self, path: Path) -> bool:
        """Whether it lies in a folder that was brought as a whole."""
        return any(path.is_relative_to(unpacked(one)) for one in self._marks.roots())

    def _has_root(self, path: Path) -> bool:
        """Whether a folder that was brought as a whole lies in it."""
        inner = (unpacked(one) for one in self._marks.roots())
        return any(one.is_relative_to(path) and os.path.isdir(one) for one in inner)  # noqa: PTH112 - it may be closed to us

    @property
    def _oldest(self) -> float:
        return self.now() - OLDEST


class Fetching:
    """A command at work that may bring something; what it is noted with when it begins."""

    def __init__(
        self, origins: Origins, folders: Sequence[Path], longest: float, began: float | None
    ) -> None:
        self._origins = origins
        self._longest = longest
        self._began = origins.begins(began)
        self._before: Folders = folders_in(dict.fromkeys(folders))
        origins.note_begin(self._began, longest, [*map(Path, self._before)], os.getpid())

    def over(self) -> None:
        """It has ended: from now on nothing more counts as brought by it."""
        roots = made_since(self._before)
        self._origins.note_end(self._began, self._longest, roots)
        self._origins.ended(self._began)
        self._origins.look_around([*map(Path, self._before), *map(unpacked, roots)])


class OthersAtWork:
    """On which others have a say; noted when it begins, for what it does lasts.

    At its end what it left is looked at, and the clock may have been set back.
    """

    def __init__(self, origins: Origins, folder: Path, began: float) -> None:
        self._folder = _real(folder)
        self.over = partial(origins.note_others, self._folder, began)
        self.over()


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


def own_users(workspace: Path) -> frozenset[int]:
    """Us, root, and whom the workspace belongs to. Raises `OSError`."""
    return frozenset({os.geteuid(), 0, workspace.lstat().st_uid})


def _is_of_others(real: Path, workspace: Path) -> bool:
    """Also if it is gone since it was read."""
    try:
        return real.lstat().st_uid not in own_users(workspace)
    except OSError:
        return True


def _changed(path: Path, *, unknown: float) -> float:
    try:
        return path.lstat().st_ctime
    except OSError:
        return unknown


def _links(path: Path, workspace: Path) -> Iterator[Path]:
    """On the way from the workspace to a file; none has another one above it any more."""
    for one in (path, *(folder for folder in path.parents if folder.is_relative_to(workspace))):
        if one.is_symlink() and one != workspace:
            yield _real(one.parent) / one.name


def holds_others_work(parts: Sequence[str]) -> bool:
    """Whether a path leads through a folder that is there for what others wrote."""
    return any(part.lower() in OTHERS_WORK for part in parts)


def _is_put_aside(parts: Sequence[str]) -> bool:
    return any(part.lower() in OUTSIDE_NAMES for part in parts)
