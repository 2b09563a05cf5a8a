"""Decide whether a file is the owner's work or untrusted content.

Files in the workspace are trusted except for files that arrived while a command could
reach the network, files our tools wrote with untrusted content, files in download and dependency
folders, files of other users, and files outside the workspace.

An instruction file is followed only if no one but the owner could have written it. A rejected one
stays rejected, by content and by path, until the owner trusts it.
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
from hermes.tools.files.safe_open import resolve_or_same as _real
from hermes.tools.provenance.command_paths import word_paths
from hermes.tools.provenance.instruction_files import (
    INSTRUCTION_FILES,
    MAX_INSTRUCTIONS,
    TrustStore,
    content_digest,
    instruction_files_for,
    is_nested_instruction_file,
)
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

UNTRUSTED_FOLDER_NAMES = frozenset(
    {"downloads", "attachments", ".cache", "node_modules", "site-packages"}
)
"""Lower-case names of workspace folders that contain others' work."""
UNVERIFIED_FOLDER_NAMES = UNTRUSTED_FOLDER_NAMES | {
    "bower_components",
    "dist-packages",
    "third_party",
    "vendor",
}
"""Including the names of vendored code, which can be used but not learned from."""
CACHE_SIZE = 8_192
MAX_FOREGROUND = 600.0
"""Longest time for which changes count as made by a foreground command."""
MAX_BACKGROUND = 3_600.0
"""The same for a background process, since a server may run for days. For instruction files it
counts until its end.
"""
CLOCK_GRANULARITY = 0.02
"""Seconds by which file times may lag behind the clock."""
WRITE_MARGIN = 5.0
"""Seconds in which a file may be written and moved away before it is noted."""
MAX_WORDS = 10_000
"""Words of a command; one with more may touch anything."""
MAX_FOLDERS = 64
"""Folders in which instruction files are checked after a command."""
MAX_ENTRIES = 5_000
"""Entries of a folder that are checked if a command names it."""


class FileProvenance:
    """Judges files by the notes in `log`, by path and by owner.

    `own` are folders of Hermes; `trusted` are the instruction files the owner trusts.
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
        self._log = ProvenanceLog(log)
        self.trusted = trusted or TrustStore()
        self._written: LruMap[Path, tuple[int, bool]] = LruMap(CACHE_SIZE)
        self._running: set[float] = set()

    def now(self) -> float:
        return self._clock.now().timestamp()

    def record_fetch_since(self, began: float) -> None:
        """Note that a command that may have fetched something has ended."""
        self.note_end(began, MAX_FOREGROUND, ())

    def start_fetch(
        self, folders: Sequence[Path], longest: float = MAX_FOREGROUND, began: float | None = None
    ) -> "FetchRecord":
        """Start recording a command that may fetch something, most likely into these folders.

        Call `end` on the result when it ends.
        """
        return FetchRecord(self, folders, longest, began)

    def record_untrusted_work(self, folder: Path, began: float | None = None) -> "UntrustedWork":
        """Note the start of work in a folder that others than the owner influence."""
        return UntrustedWork(self, folder, self.now() if began is None else began)

    def unique_start(self, at: float | None) -> float:
        """Return a unique start time, which identifies the command while it runs."""
        began = self.now() if at is None else at
        while began in self._running:
            began -= 1e-6
        self._running.add(began)
        return began

    def release_start(self, began: float) -> None:
        self._running.discard(began)

    def note_untrusted_work(self, folder: Path, began: float) -> None:
        """Note others' work; first trust what the owner has there, so that it stays trusted."""
        self._note_new(
            ProvenanceNote(min(began, self.now()) - CLOCK_GRANULARITY, others=encode_path(folder))
        )
        for path, data in instruction_files_for(folder, MAX_INSTRUCTIONS):
            if data.strip() and self.may_be_followed(path, data, folder):
                self.trusted.trust(_real(path), data)

    def note_begin(
        self, began: float, longest: float, folders: Sequence[Path], pid: int = 0
    ) -> None:
        """Note the start immediately, so that it survives a crash."""
        self._note(
            ProvenanceNote(
                began - CLOCK_GRANULARITY,
                began + longest,
                tuple(map(encode_path, folders)),
                pid=pid,
            )
        )

    def note_end(self, began: float, longest: float, roots: tuple[str, ...]) -> None:
        """Replace the note of the start; `roots` are folders the command created."""
        # The clock may have been set back meanwhile.
        now = self.now()
        start, end = min(began, now), max(began, min(now, began + longest))
        if start < began:
            self.note_begin(began, longest, ())
        late = max(now + CLOCK_GRANULARITY, end)
        self._note(
            ProvenanceNote(
                start - CLOCK_GRANULARITY, end + CLOCK_GRANULARITY, roots=roots, late=late
            )
        )

    def check_instructions(self, folders: Iterable[Path]) -> None:
        """Check instruction files in these folders, so that rejected ones are known by content."""
        for folder in islice(dict.fromkeys(folders), MAX_FOLDERS):
            for path, data in instruction_files_for(folder, MAX_INSTRUCTIONS):
                self.may_be_followed(path, data, folder)

    def reject_instructions(self, real: Path, data: bytes) -> None:
        """Reject an instruction file, at this path and with this content anywhere."""
        when = _changed_at(real, unknown=self.now())
        self._note_new(ProvenanceNote(when, file=encode_path(real), digest=content_digest(data)))

    def _note_new(self, note: ProvenanceNote) -> None:
        if not self._log.is_redundant(note):
            self._note(note)

    def _note(self, note: ProvenanceNote) -> None:
        self._log.add(note, self._oldest)

    def record_write(self, path: Path, *, foreign: bool) -> None:
        """Note a file that one of our tools has just written."""
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
        """Whether the file may contain untrusted content.

        Instruction files in subfolders do until the owner trusts them.
        """
        workspace = _real(Path(scope.workspace))
        if is_nested_instruction_file(real, workspace):
            return not self.is_trusted_file(real)
        if self.is_known_untrusted(scope, real):
            return True
        changed = (
            real.parent == workspace
            and real.name in INSTRUCTION_FILES
            and self._changed_by_untrusted(real)
        )
        return changed and not self.is_trusted_file(real)

    def may_be_followed(self, path: Path, data: bytes, workspace: Path) -> bool:
        """Whether an instruction file of the project, found at that path, may be followed.

        Yes if the owner trusts its content. No if it was fetched, rejected before, or changed after
        others worked there, or if a link on the path was.
        """
        real, around = _real(path), _real(workspace)
        if self.trusted.is_trusted(real, data):
            if self._log.is_rejected_path(real):
                self._note(ProvenanceNote(file=encode_path(real)))
            return True
        if self._is_untrusted_file(real, around, content_digest(data)):
            self.reject_instructions(real, data)
            return False
        return not any(
            self._may_be_untrusted(link, around) for link in _links_on_path(path, workspace)
        )

    def _is_untrusted_file(self, real: Path, around: Path, digest: str) -> bool:
        shared = os.path.commonpath((real, around))
        if _is_untrusted_folder(real.relative_to(shared).parts[:-1]):
            return True
        if self._log.was_rejected(real, digest, _changed_at(real, unknown=float("inf"))):
            return True
        return self._may_be_untrusted(real, around)

    def _may_be_untrusted(self, path: Path, around: Path) -> bool:
        was_fetched = self.was_fetched(path, late=True)
        return was_fetched or _has_other_owner(path, around) or self._changed_by_untrusted(path)

    def may_instruct(self, path: Path) -> bool:
        """Like `may_be_followed`, for the current content of a file."""
        try:
            data = read_regular_file(path, MAX_INSTRUCTIONS)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return self.may_be_followed(path, data, path.parent)

    def _changed_by_untrusted(self, path: Path) -> bool:
        try:
            return self._log.changed_by_untrusted(path, path.lstat().st_ctime)
        except OSError:
            return True

    def is_trusted_file(self, real: Path) -> bool:
        try:
            return self.trusted.is_trusted(real, read_regular_file(real, MAX_INSTRUCTIONS))
        except OSError:
            return False

    def is_known_untrusted(self, scope: Scope, real: Path) -> bool:
        """Whether it is known to come from others, whatever its name.

        A file that was read but no longer exists counts as unknown, hence untrusted.
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
        """Whether others may have written the file: it can be used, but not learned from."""
        if self.is_foreign(scope, real):
            return True
        workspace = _real(Path(scope.workspace))
        inside = real.is_relative_to(workspace)
        return inside and is_unverified_folder(real.relative_to(workspace).parts[:-1])

    def is_unverified_location(self, scope: Scope, real: Path) -> bool:
        """Whether the content of a folder is others' work because of its location."""
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
        return self._log.times()

    def is_unverified_entry(
        self, entry: os.DirEntry[str], users: Collection[int], times: FetchTimes
    ) -> bool:
        """Whether a directory entry belongs to another user or was fetched."""
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
        """Whether commits of others were fetched into the repository around a folder."""
        around = (path / ".git" for path in (folder, *folder.parents))
        git_folder = next((path for path in around if path.exists()), None)
        return git_folder is not None and self.was_fetched(git_folder / "FETCH_HEAD")

    def was_fetched(self, real: Path, *, late: bool = False) -> bool:
        """Whether a file was fetched, wherever it is; a missing file was not.

        `late` includes commands that ran longer than usual.
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
        if self._log.is_untrusted_write(real, stat):
            return True
        return self._log.covers(stat.st_ctime, self._oldest, late=late)

    def names_untrusted(self, words: Sequence[str], folder: Path, *more: Path) -> bool:
        """Whether a command touches fetched content, for example unpacks, copies or shows it.

        It runs in `folder` and changes to `more`.
        """
        bases = (folder, *more)
        known = bool(self._log)
        if known and any(self._is_in_fetched_folder(_real(base)) for base in bases):
            return True
        likely = [word for word in words if known or _is_untrusted_folder(word.split("/"))]
        if len(likely) > MAX_WORDS:
            return True
        for word in likely:
            by_name = _is_untrusted_folder(word.split("/"))
            if any(by_name or self._is_touched(path) for path in word_paths(word, bases)):
                return True
        return False

    def _is_touched(self, path: Path) -> bool:
        if self._is_in_fetched_folder(path):
            return True
        if not os.path.isdir(path):  # noqa: PTH112 - unreadable folders are no error
            return os.path.isfile(path) and self.was_fetched(path)  # noqa: PTH113 - as above
        if self._contains_fetched_folder(path):
            return True
        return any(self.was_fetched(one) for one in _files_below(path))

    def _is_in_fetched_folder(self, path: Path) -> bool:
        """Whether it is in a folder that was fetched as a whole."""
        return any(path.is_relative_to(decode_path(root)) for root in self._log.roots())

    def _contains_fetched_folder(self, path: Path) -> bool:
        """Whether it contains a folder that was fetched as a whole."""
        inner = (decode_path(root) for root in self._log.roots())
        return any(one.is_relative_to(path) and os.path.isdir(one) for one in inner)  # noqa: PTH112 - as above

    @property
    def _oldest(self) -> float:
        return self.now() - MAX_AGE


class FetchRecord:
    """A running command that may fetch something; noted from its start."""

    def __init__(
        self, origins: FileProvenance, folders: Sequence[Path], longest: float, began: float | None
    ) -> None:
        self._provenance = origins
        self._longest = longest
        self._began = origins.unique_start(began)
        self._before: FolderNames = subfolders(dict.fromkeys(folders))
        origins.note_begin(self._began, longest, [*map(Path, self._before)], os.getpid())

    def end(self) -> None:
        """Note the end: later changes do not count as fetched by it."""
        roots = new_subfolders(self._before)
        self._provenance.note_end(self._began, self._longest, roots)
        self._provenance.release_start(self._began)
        self._provenance.check_instructions([*map(Path, self._before), *map(decode_path, roots)])


class UntrustedWork:
    """Work that others influence; noted from its start, as its effects last.

    At the end it is noted again, since files may be new and the clock may have been set back.
    """

    def __init__(self, origins: FileProvenance, folder: Path, began: float) -> None:
        self._folder = _real(folder)
        self.end = partial(origins.note_untrusted_work, self._folder, began)
        self.end()


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield files below a folder, outermost first, up to a limit and without untrusted folders."""
    folders, remaining = [folder], MAX_ENTRIES
    while folders and remaining > 0:
        inner: list[Path] = []
        for current in folders:
            with suppress(OSError), os.scandir(current) as entries:
                for entry in entries:
                    remaining -= 1
                    if remaining < 0:
                        return
                    if not entry.is_dir(follow_symlinks=False):
                        yield Path(entry.path)
                    elif entry.name != ".git" and not _is_untrusted_folder([entry.name]):
                        inner.append(Path(entry.path))
        folders = inner


def own_users(workspace: Path) -> frozenset[int]:
    """Return our user, root, and the owner of the workspace. Raises `OSError`."""
    return frozenset({os.geteuid(), 0, workspace.lstat().st_uid})


def _has_other_owner(real: Path, workspace: Path) -> bool:
    """True if the file no longer exists."""
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
    """Yield the links between the workspace and a file, with their parents resolved."""
    for link in (path, *(folder for folder in path.parents if folder.is_relative_to(workspace))):
        if link.is_symlink() and link != workspace:
            yield _real(link.parent) / link.name


def is_unverified_folder(parts: Sequence[str]) -> bool:
    """Whether a path leads through a folder for others' work."""
    return any(part.lower() in UNVERIFIED_FOLDER_NAMES for part in parts)


def _is_untrusted_folder(parts: Sequence[str]) -> bool:
    return any(part.lower() in UNTRUSTED_FOLDER_NAMES for part in parts)
