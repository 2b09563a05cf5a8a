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
from hermes.kit.files import read_regular_file
from hermes.kit.lru_map import LruMap
from hermes.schema.scope import Scope
from hermes.tools.provenance.command_paths import paths_of_word
from hermes.tools.provenance.command_paths import resolve_or_same as _real
from hermes.tools.provenance.instruction_files import instruction_files_for
from hermes.tools.provenance.log import (
    MAX_AGE,
    FetchTimes,
    FolderNames,
    ProvenanceLog,
    ProvenanceNote,
    decode_path,
    encode_path,
    new_subfolders,
    subfolders,
)
from hermes.tools.provenance.trust_store import (
    INSTRUCTION_FILES,
    MAX_INSTRUCTIONS,
    TrustStore,
    content_digest,
    is_nested_instruction_file,
)

UNTRUSTED_FOLDER_NAMES = frozenset(
    {"downloads", "attachments", ".cache", "node_modules", "site-packages"}
)
"""Folders in a workspace that hold what others wrote, by their names in small letters."""
UNVERIFIED_FOLDER_NAMES = UNTRUSTED_FOLDER_NAMES | {
    "bower_components",
    "dist-packages",
    "third_party",
    "vendor",
}
"""The same, with those that are part of many projects: it counts only for what is learned."""
CACHE_SIZE = 8_192
MAX_FOREGROUND = 600.0
"""Seconds of a command in which what changes counts as brought by it."""
MAX_BACKGROUND = 3_600.0
"""The same of one in the background: a server runs for days. For what tells how things are done
it counts until its end, whenever that is."""
CLOCK_GRANULARITY = 0.02
"""Seconds by which the clock of a file system is behind."""
WRITE_MARGIN = 5.0
"""Seconds in which something was written, and moved away by somebody before it was noted."""
MAX_WORDS = 10_000
"""Of a command; one with more of them may touch anything."""
MAX_FOLDERS = 64
"""In which it is looked for what a command may have brought that tells how things are done."""
MAX_ENTRIES = 5_000
"""Entries of a folder that are looked at, when a command names the folder."""


class FileProvenance:
    """`log` keeps over a restart when commands fetched; `own` are folders of the house.

    `trusted` says which files that tell how things are done the owner vouched for.
    """

    def __init__(
        self,
        clock: Clock,
        log: Path | None = None,
        own: Sequence[Path] = (),
        trusted: TrustStore | None = None,
    ) -> None:
        self._clock = clock
        self._own = tuple(_real(path) for path in own)
        self._marks = ProvenanceLog(log)
        self.trusted = trusted or TrustStore()
        self._written: LruMap[Path, tuple[int, bool]] = LruMap(CACHE_SIZE)
        self._begun: set[float] = set()

    def now(self) -> float:
        return self._clock.now().timestamp()

    def record_fetch_since(self, began: float) -> None:
        """A command that could bring something from outside has ended; it began then."""
        self.note_end(began, MAX_FOREGROUND, ())

    def fetching(
        self, folders: Sequence[Path], longest: float = MAX_FOREGROUND, began: float | None = None
    ) -> "FetchRecord":
        """A command begins that may bring something, most likely into one of the folders.

        It is said when it is over.
        """
        return FetchRecord(self, folders, longest, began)

    def record_untrusted_work(self, folder: Path, began: float | None = None) -> "UntrustedWork":
        """Something begins there on which others than the owner have a say."""
        return UntrustedWork(self, folder, self.now() if began is None else began)

    def begins(self, at: float | None) -> float:
        """When; no two that are at work at the same time have the same, for it is their name."""
        began = self.now() if at is None else at
        while began in self._begun:
            began -= 1e-6
        self._begun.add(began)
        return began

    def ended(self, began: float) -> None:
        self._begun.discard(began)

    def note_untrusted_work(self, folder: Path, began: float) -> None:
        """What the owner has there until then stays the owner's, whatever becomes of it."""
        self._note_new(
            ProvenanceNote(min(began, self.now()) - CLOCK_GRANULARITY, others=encode_path(folder))
        )
        for path, data in instruction_files_for(folder, MAX_INSTRUCTIONS):
            if data.strip() and self.speaks(path, data, folder):
                self.trusted.vouch(_real(path), data)

    def note_begin(
        self, began: float, longest: float, folders: Sequence[Path], pid: int = 0
    ) -> None:
        """Written down at once: whoever is killed from now on cannot do it any more."""
        self._note(
            ProvenanceNote(
                began - CLOCK_GRANULARITY,
                began + longest,
                tuple(map(encode_path, folders)),
                pid=pid,
            )
        )

    def note_end(self, began: float, longest: float, roots: tuple[str, ...]) -> None:
        """In place of what was written when it began; `roots` are folders that it made."""
        start, end = self._span(began, longest)
        if start < began:
            self.note_begin(began, longest, ())
        late = max(self.now() + CLOCK_GRANULARITY, end)
        self._note(
            ProvenanceNote(
                start - CLOCK_GRANULARITY, end + CLOCK_GRANULARITY, roots=roots, late=late
            )
        )

    def _span(self, began: float, longest: float) -> tuple[float, float]:
        """From when to when something was at work that ends now, also if the clock was set back."""
        now = self.now()
        return min(began, now), max(began, min(now, began + longest))

    def look_around(self, folders: Iterable[Path]) -> None:
        """Whatever is silent there now is known by its content from now on."""
        for folder in islice(dict.fromkeys(folders), MAX_FOLDERS):
            for path, data in instruction_files_for(folder, MAX_INSTRUCTIONS):
                self.speaks(path, data, folder)

    def refuse(self, real: Path, data: bytes) -> None:
        """It is not to be followed: neither there nor, with that content, anywhere else."""
        when = _changed_at(real, unknown=self.now())
        self._note_new(ProvenanceNote(when, file=encode_path(real), digest=content_digest(data)))

    def _note_new(self, note: ProvenanceNote) -> None:
        if not self._marks.knows(note):
            self._note(note)

    def _note(self, note: ProvenanceNote) -> None:
        self._marks.add(note, self._oldest)

    def record_write(self, path: Path, *, foreign: bool) -> None:
        """One of our tools has just written it, with words that are known."""
        try:
            stat = path.lstat()
        except OSError:
            if foreign:
                self.record_fetch_since(self.now() - WRITE_MARGIN)
            return
        self._written.put(path, (stat.st_ctime_ns, foreign))
        if foreign:
            self._note(
                ProvenanceNote(file=encode_path(path), changed=stat.st_ctime_ns, inode=stat.st_ino)
            )

    def is_foreign(self, scope: Scope, real: Path) -> bool:
        """Whether what stands in the file may be somebody else's words.

        What tells how things are done in a folder is, until the owner vouched for it.
        """
        workspace = _real(Path(scope.workspace))
        if is_nested_instruction_file(real, workspace):
            return not self.is_trusted_file(real)
        if self.is_known_untrusted(scope, real):
            return True
        told = (
            real.parent == workspace
            and real.name in INSTRUCTION_FILES
            and self._changed_by_untrusted(real)
        )
        return told and not self.is_trusted_file(real)

    def speaks(self, path: Path, data: bytes, workspace: Path) -> bool:
        """Whether a file of the project, found at that path, may tell how things are done.

        It may unless it came in, or was changed after others than the owner had a say there, or a
        link that leads there did and was, or it was silent before; and always as the owner once
        vouched for it.
        """
        real, around = _real(path), _real(workspace)
        if self.trusted.knows(real, data):
            if self._marks.is_silent(real):
                self._note(ProvenanceNote(file=encode_path(real)))
            return True
        if self._is_untrusted_file(real, around, content_digest(data)):
            self.refuse(real, data)
            return False
        return not any(
            self._may_be_untrusted(one, around) for one in _links_on_path(path, workspace)
        )

    def _is_untrusted_file(self, real: Path, around: Path, digest: str) -> bool:
        shared = os.path.commonpath((real, around))
        if _is_untrusted_folder(real.relative_to(shared).parts[:-1]):
            return True
        if self._marks.refused(real, digest, _changed_at(real, unknown=float("inf"))):
            return True
        return self._may_be_untrusted(real, around)

    def _may_be_untrusted(self, path: Path, around: Path) -> bool:
        was_fetched = self.was_fetched(path, late=True)
        return was_fetched or _has_other_owner(path, around) or self._changed_by_untrusted(path)

    def may_instruct(self, path: Path) -> bool:
        """As `speaks`, of a file as it is now, wherever it lies."""
        try:
            data = read_regular_file(path, MAX_INSTRUCTIONS)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return self.speaks(path, data, path.parent)

    def _changed_by_untrusted(self, path: Path) -> bool:
        try:
            return self._marks.changed_by_untrusted(path, path.lstat().st_ctime)
        except OSError:
            return True

    def is_trusted_file(self, real: Path) -> bool:
        try:
            return self.trusted.knows(real, read_regular_file(real, MAX_INSTRUCTIONS))
        except OSError:
            return False

    def is_known_untrusted(self, scope: Scope, real: Path) -> bool:
        """Whether it is known to have come from others, whatever its name is.

        Of what was read and is gone by now nobody knows any more.
        """
        workspace = _real(Path(scope.workspace))
        if not workspace.parts[1:]:
            return self.was_fetched(real) or not os.path.lexists(real)
        inside = real.is_relative_to(workspace)
        if not inside and not self._is_own(real):
            return True
        if inside and _is_untrusted_folder(real.relative_to(workspace).parts[:-1]):
            return True
        return self.was_fetched(real) or _has_other_owner(real, workspace)

    def is_unverified(self, scope: Scope, real: Path) -> bool:
        """Whether somebody else may have written the file: it is used, but not learned from."""
        if self.is_foreign(scope, real):
            return True
        workspace = _real(Path(scope.workspace))
        inside = real.is_relative_to(workspace)
        return inside and is_unverified_folder(real.relative_to(workspace).parts[:-1])

    def is_unverified_location(self, scope: Scope, real: Path) -> bool:
        """Whether what lies in a folder is others' work because of where the folder is."""
        workspace = _real(Path(scope.workspace))
        if real.is_relative_to(workspace):
            if is_unverified_folder(real.relative_to(workspace).parts):
                return True
        elif is_unverified_folder(real.parts) or not self._is_own(real):
            return True
        return self._is_in_fetched_folder(real) or self._contains_fetched_folder(real)

    def _is_own(self, real: Path) -> bool:
        return any(real.is_relative_to(folder) for folder in self._own)

    def times(self) -> FetchTimes:
        """When something was brought, as far as is known now."""
        return self._marks.times()

    def is_unverified_entry(
        self, entry: os.DirEntry[str], users: Collection[int], times: FetchTimes
    ) -> bool:
        """Of a file found in a folder: whether another user has it, or it was brought."""
        try:
            stat = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        if stat.st_uid not in users:
            return True
        return times.may_be_fetched(stat) and self._was_recorded_fetch(
            Path(entry.path), stat, late=False
        )

    def has_fetched_commits(self, folder: Path) -> bool:
        """Whether what others committed was fetched into the repository around a folder."""
        around = (one / ".git" for one in (folder, *folder.parents))
        place = next((one for one in around if one.exists()), None)
        return place is not None and self.was_fetched(place / "FETCH_HEAD")

    def was_fetched(self, real: Path, *, late: bool = False) -> bool:
        """Whether it was brought from outside, wherever it lies; what is not there was not.

        With `late` also by a command that has been at work for longer than most are.
        """
        try:
            stat = real.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return self._was_recorded_fetch(real, stat, late=late)

    def _was_recorded_fetch(self, real: Path, stat: os.stat_result, *, late: bool) -> bool:
        known = self._written.get(real)
        if known is not None and known[0] == stat.st_ctime_ns:
            return known[1]
        if self._marks.written(real, stat):
            return True
        return self._marks.covers(stat.st_ctime, self._oldest, late=late)

    def names_untrusted(self, words: Sequence[str], folder: Path, *more: Path) -> bool:
        """Whether a command touches what came in, as one does that unpacks, copies or shows it.

        It stands in `folder`, and goes to `more` of them.
        """
        bases = (folder, *more)
        known = bool(self._marks)
        if known and any(self._is_in_fetched_folder(_real(base)) for base in bases):
            return True
        likely = [word for word in words if known or _is_untrusted_folder(word.split("/"))]
        if len(likely) > MAX_WORDS:
            return True
        for word in likely:
            aside = _is_untrusted_folder(word.split("/"))
            if any(aside or self._is_touched(path) for path in paths_of_word(word, bases)):
                return True
        return False

    def _is_touched(self, path: Path) -> bool:
        if self._is_in_fetched_folder(path):
            return True
        if not os.path.isdir(path):  # noqa: PTH112 - it may be closed to us, which is no error here
            return os.path.isfile(path) and self.was_fetched(path)  # noqa: PTH113 - as above
        if self._contains_fetched_folder(path):
            return True
        return any(self.was_fetched(one) for one in _files_below(path))

    def _is_in_fetched_folder(self, path: Path) -> bool:
        """Whether it lies in a folder that was brought as a whole."""
        return any(path.is_relative_to(decode_path(one)) for one in self._marks.roots())

    def _contains_fetched_folder(self, path: Path) -> bool:
        """Whether a folder that was brought as a whole lies in it."""
        inner = (decode_path(one) for one in self._marks.roots())
        return any(one.is_relative_to(path) and os.path.isdir(one) for one in inner)  # noqa: PTH112 - it may be closed to us

    @property
    def _oldest(self) -> float:
        return self.now() - MAX_AGE


class FetchRecord:
    """A command at work that may bring something; what it is noted with when it begins."""

    def __init__(
        self, origins: FileProvenance, folders: Sequence[Path], longest: float, began: float | None
    ) -> None:
        self._origins = origins
        self._longest = longest
        self._began = origins.begins(began)
        self._before: FolderNames = subfolders(dict.fromkeys(folders))
        origins.note_begin(self._began, longest, [*map(Path, self._before)], os.getpid())

    def over(self) -> None:
        """It has ended: from now on nothing more counts as brought by it."""
        roots = new_subfolders(self._before)
        self._origins.note_end(self._began, self._longest, roots)
        self._origins.ended(self._began)
        self._origins.look_around([*map(Path, self._before), *map(decode_path, roots)])


class UntrustedWork:
    """On which others have a say; noted when it begins, for what it does lasts.

    At its end what it left is looked at, and the clock may have been set back.
    """

    def __init__(self, origins: FileProvenance, folder: Path, began: float) -> None:
        self._folder = _real(folder)
        self.over = partial(origins.note_untrusted_work, self._folder, began)
        self.over()


def _files_below(folder: Path) -> Iterator[Path]:
    """Some thousand of them, the outer ones first; not what has a place of its own."""
    waiting, left = [folder], MAX_ENTRIES
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
                    elif one.name != ".git" and not _is_untrusted_folder([one.name]):
                        inner.append(Path(one.path))
        waiting = inner


def own_users(workspace: Path) -> frozenset[int]:
    """Us, root, and whom the workspace belongs to. Raises `OSError`."""
    return frozenset({os.geteuid(), 0, workspace.lstat().st_uid})


def _has_other_owner(real: Path, workspace: Path) -> bool:
    """Also if it is gone since it was read."""
    try:
        return real.lstat().st_uid not in own_users(workspace)
    except OSError:
        return True


def _changed_at(path: Path, *, unknown: float) -> float:
    try:
        return path.lstat().st_ctime
    except OSError:
        return unknown


def _links_on_path(path: Path, workspace: Path) -> Iterator[Path]:
    """On the way from the workspace to a file; none has another one above it any more."""
    for one in (path, *(folder for folder in path.parents if folder.is_relative_to(workspace))):
        if one.is_symlink() and one != workspace:
            yield _real(one.parent) / one.name


def is_unverified_folder(parts: Sequence[str]) -> bool:
    """Whether a path leads through a folder that is there for what others wrote."""
    return any(part.lower() in UNVERIFIED_FOLDER_NAMES for part in parts)


def _is_untrusted_folder(parts: Sequence[str]) -> bool:
    return any(part.lower() in UNTRUSTED_FOLDER_NAMES for part in parts)
