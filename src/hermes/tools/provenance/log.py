"""Log when commands fetched content from outside, and into which folders.

A command is noted when it starts, so that nothing is lost in a crash, and again when it ends. Notes
are lines in a file that several processes append to.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import BinaryIO, TypeAlias

import msgspec
from msgspec import Struct, structs

from hermes.kit.files import append_line, open_locked, write_atomic
from hermes.kit.ids import pid_exists

MAX_AGE = 90 * 86_400.0
MAX_SPANS = 20_000
MAX_ROOTS = 2_000
MAX_WRITTEN = 20_000
MAX_ENTRIES = 5_000
"""Entries of a folder that are scanned for new ones."""
_SLACK = 2
"""The file is rewritten when it has this many times the needed lines."""
_CHECKED_BYTES = 128
"""Bytes before the last read position, to detect that the file was replaced."""

Span: TypeAlias = tuple[float, float]
FolderNames: TypeAlias = Mapping[str, frozenset[str]]
"""Subfolder names by folder."""


class ProvenanceNote(Struct, frozen=True, omit_defaults=True):
    """A command from `start` to `end`, or a `file` that we wrote untrusted content into.

    - `changed`, `inode`: identify that file, even in a renamed folder.
    - `inside`: folders in which a running command may create others; at its end `roots` names them.
    - `late`: when it ended, if later than `end`; `pid`: the program that will note the end. For
      instruction files the command counts until then.
    - `others`: a folder that others than the owner worked in since `start`; its instruction files
      may be theirs.
    - `digest`: content of an instruction file that was rejected. Neither that content elsewhere nor
      what is in that `file` is followed. A note with `file` only means that the owner trusts it.
    """

    start: float = 0.0
    end: float = 0.0
    inside: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    file: str = ""
    changed: int = 0
    inode: int = 0
    others: str = ""
    late: float = 0.0
    pid: int = 0
    digest: str = ""


class FetchTimes(Struct, frozen=True):
    """When commands fetched something, and when files with untrusted content were written."""

    spans: list[Span]
    changed: frozenset[int]

    def may_be_fetched(self, stat: os.stat_result) -> bool:
        """Whether a file with that status may have been fetched; if not, it certainly was not."""
        index = bisect_right(self.spans, (stat.st_ctime, float("inf"))) - 1
        within = index >= 0 and stat.st_ctime <= self.spans[index][1]
        return within or stat.st_ctime_ns in self.changed


class ProvenanceLog:
    """The notes in a file, or without one for as long as the program runs.

    If the file exists but cannot be read, everything counts as fetched. Notes that could not be
    written are kept in memory and written with the next one.
    """

    def __init__(self, log: Path | None, max_spans: int = MAX_SPANS) -> None:
        self._log = log
        self._max_spans = max_spans
        self._lock = RLock()
        self._unreadable = self._unsaved = False
        self._stamp: tuple[int, int, int] | None = None
        self._inode: int = 0
        self._offset = 0
        self._before = b""
        self._commands: dict[float, ProvenanceNote] = {}
        self._written: dict[tuple[int, int | str], ProvenanceNote] = {}
        self._untrusted_work: dict[str, ProvenanceNote] = {}
        self._rejected: dict[str, ProvenanceNote] = {}
        self._rejected_paths: dict[str, ProvenanceNote] = {}
        self._spans: tuple[list[Span], list[Span]] | None = None
        self._roots: list[str] | None = None
        self._lines = 0
        self._decoder = msgspec.json.Decoder(ProvenanceNote)

    def add(self, note: ProvenanceNote, oldest: float) -> None:
        """Add a note; nothing older than `oldest` needs to be kept."""
        with self._lock:
            self._load()
            self._take(note)
            if self._log is None:
                self._forget(oldest)
                return
            try:
                self._write(self._log, note, oldest)
            except OSError:
                self._unsaved = True

    def _write(self, log: Path, note: ProvenanceNote, oldest: float) -> None:
        with open_locked(log) as file:
            append_line(file, msgspec.json.encode(note))
            kinds = (
                self._commands,
                self._untrusted_work,
                self._written,
                self._rejected,
                self._rejected_paths,
            )
            needed = sum(map(len, kinds))
            if self._unsaved or self._lines > _SLACK * max(needed, 100):
                self._rewrite(log, oldest)

    def __bool__(self) -> bool:
        with self._lock:
            self._load()
            return self._unreadable or bool(self._commands or self._written)

    def times(self) -> "FetchTimes":
        """Return the current times, to check many files."""
        with self._lock:
            self._load()
            if self._unreadable:
                return FetchTimes([(float("-inf"), float("inf"))], frozenset())
            spans = _merge_spans((note.start, note.end) for note in self._commands.values())
            return FetchTimes(spans, frozenset(changed for changed, _ in self._written))

    def covers(self, when: float, oldest: float, *, late: bool = False) -> bool:
        """Whether something was fetched at that time; `late` counts commands of any duration."""
        with self._lock:
            self._load()
            known = self._commands.values()
            if self._spans is None:
                usual = _merge_spans((note.start, note.end) for note in known)
                self._spans = (
                    usual,
                    _merge_spans((note.start, max(note.end, note.late)) for note in known),
                )
            spans = self._spans[late]
            index = bisect_right(spans, (when, float("inf"))) - 1
            end = spans[index][1] if index >= 0 else oldest
            if self._unreadable or (when <= end and end > oldest):
                return True
            return late and any(
                note.pid and note.start <= when and pid_exists(note.pid) for note in known
            )

    def is_untrusted_write(self, path: Path, stat: os.stat_result) -> bool:
        """Whether it is a file we wrote untrusted content into, unchanged since."""
        with self._lock:
            self._load()
            keys = {(stat.st_ctime_ns, stat.st_ino), (stat.st_ctime_ns, encode_path(path))}
            return not keys.isdisjoint(self._written)

    def changed_by_untrusted(self, path: Path, when: float) -> bool:
        """Whether others worked in a folder around it before that time, however long ago.

        What they wrote may get there later in many ways: renamed, copied, or from another branch.
        """
        with self._lock:
            self._load()
            return self._unreadable or any(
                note.start <= when and path.is_relative_to(decode_path(note.others))
                for note in self._untrusted_work.values()
            )

    def is_redundant(self, note: ProvenanceNote) -> bool:
        """Whether a note about others' work or a rejected file adds nothing."""
        with self._lock:
            self._load()
            if note.others:
                known = self._untrusted_work.get(note.others)
                return known is not None and known.start <= note.start
            return note.digest in self._rejected and note.file in self._rejected_paths

    def was_rejected(self, path: Path, digest: str, when: float) -> bool:
        """Whether that content, or the file there, was rejected before that time."""
        with self._lock:
            self._load()
            found = self._rejected.get(digest), self._rejected_paths.get(encode_path(path))
            return any(note is not None and note.start <= when for note in found)

    def is_rejected_path(self, path: Path) -> bool:
        with self._lock:
            self._load()
            return encode_path(path) in self._rejected_paths

    def roots(self) -> list[str]:
        """Return the folders that were fetched as a whole."""
        with self._lock:
            self._load()
            if self._roots is None:
                found = (
                    root for note in self._commands.values() for root in _fetched_folders(note)
                )
                self._roots = list(dict.fromkeys(found))[-MAX_ROOTS:]
            return self._roots

    def _take(self, note: ProvenanceNote) -> None:
        if note.digest:
            _keep_earliest(self._rejected, note.digest, note)
            _keep_earliest(self._rejected_paths, note.file, note)
        elif note.file and not note.changed:
            self._rejected_paths.pop(note.file, None)
        elif note.file:
            self._written[note.changed, note.inode or note.file] = note
            while len(self._written) > MAX_WRITTEN:
                del self._written[next(iter(self._written))]
        elif note.others:
            _keep_earliest(self._untrusted_work, note.others, note)
        else:
            self._commands[note.start] = note
            while len(self._commands) > self._max_spans:
                del self._commands[next(iter(self._commands))]
            self._spans = self._roots = None

    def _load(self) -> None:
        """Read what any process has appended since."""
        if self._log is None:
            return
        self._unreadable = False
        try:
            if self._stamp != _file_stamp(os.stat(self._log)):  # noqa: PTH116 - called for every file
                with self._log.open("rb") as file:
                    self._stamp = _file_stamp(os.fstat(file.fileno()))
                    self._read_on(file, self._stamp[0])
        except FileNotFoundError:
            self._stamp = None
        except OSError:
            self._unreadable, self._stamp = True, None

    def _read_on(self, file: BinaryIO, inode: int) -> None:
        file.seek(max(0, self._offset - len(self._before)))
        if inode != self._inode or file.read(len(self._before)) != self._before:
            self._offset, self._lines, self._before = 0, 0, b""
            file.seek(0)
        data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._inode, self._offset = inode, self._offset + len(data)
        self._before = (self._before + data)[-_CHECKED_BYTES:]
        for line in data.splitlines():
            self._lines += 1
            if note := self._note(line):
                self._take(note)

    def _note(self, line: bytes) -> ProvenanceNote | None:
        try:
            return self._decoder.decode(line)
        except (msgspec.MsgspecError, ValueError):
            return _legacy_note(line)

    def _forget(self, oldest: float) -> None:
        self._commands = {
            start: note for start, note in self._commands.items() if note.end > oldest
        }

    def _needed(self) -> list[ProvenanceNote]:
        """Return the notes to keep: others' work and rejected files are kept forever."""
        rejected = [structs.replace(note, file="") for note in self._rejected.values()]
        return [
            *self._commands.values(),
            *self._untrusted_work.values(),
            *self._written.values(),
            *rejected,
            *self._rejected_paths.values(),
        ]

    def _rewrite(self, log: Path, oldest: float) -> None:
        """Replace the file, unless it cannot be read."""
        self._load()
        if self._unreadable:
            return
        self._forget(oldest)
        write_atomic(log, b"".join(msgspec.json.encode(note) + b"\n" for note in self._needed()))
        self._spans = self._roots = None
        self._unsaved = False


def subfolders(folders: Iterable[Path]) -> FolderNames:
    """Return the names of the subfolders of some folders, skipping unreadable ones."""
    found: dict[str, frozenset[str]] = {}
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            some = islice(entries, MAX_ENTRIES)
            names = [entry.name for entry in some if entry.is_dir(follow_symlinks=False)]
            found[str(folder)] = frozenset(names)
    return found


def new_subfolders(before: FolderNames) -> tuple[str, ...]:
    """Return the folders created since, encoded."""
    now = subfolders(map(Path, before))
    made = [Path(folder, name) for folder, names in now.items() for name in names - before[folder]]
    return tuple(sorted(map(encode_path, made)))


def encode_path(path: Path) -> str:
    """Encode a path as text, whatever its bytes."""
    return os.fsencode(path).decode("latin-1")


def decode_path(name: str) -> Path:
    return Path(os.fsdecode(name.encode("latin-1", "replace")))


def _fetched_folders(note: ProvenanceNote) -> Iterable[str]:
    """Yield the folders a command created; for one that never ended, guess them by their times."""
    yield from note.roots
    for folder in note.inside:
        with suppress(OSError), os.scandir(decode_path(folder)) as entries:
            for entry in islice(entries, MAX_ENTRIES):
                if entry.is_dir(follow_symlinks=False):
                    changed = entry.stat(follow_symlinks=False).st_ctime
                    if note.start <= changed <= note.end:
                        yield encode_path(Path(entry.path))


def _keep_earliest(notes: dict[str, ProvenanceNote], key: str, note: ProvenanceNote) -> None:
    """Keep the earliest note of each key; of too many keys the last added."""
    if key and (key not in notes or note.start < notes[key].start):
        notes[key] = note
    while len(notes) > MAX_WRITTEN:
        del notes[next(iter(notes))]


def _file_stamp(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _merge_spans(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _legacy_note(line: bytes) -> ProvenanceNote | None:
    """Decode a line of earlier versions."""
    try:
        start, end = map(float, line.split())
    except ValueError:
        return None
    return ProvenanceNote(start, end)
