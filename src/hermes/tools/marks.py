"""What is kept on disk of what came from outside: when commands brought it, and where to.

A command is noted when it begins, so that nothing is lost with a program that is killed, and
again when it ends. Notes are lines in a file that several processes add to.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from hermes.kit.files import write_atomic

OLDEST = 90 * 86_400.0
MOST_SPANS = 20_000
MOST_ROOTS = 2_000
MOST_WRITTEN = 8_192
MOST_ENTRIES = 5_000
"""Entries of a folder that are looked at for what is new in it."""
_SLACK = 2
"""How many times the lines that are needed may stand in the file."""

Span: TypeAlias = tuple[float, float]
Folders: TypeAlias = Mapping[str, frozenset[str]]
"""Names of the folders in a folder."""


class Note(Struct, frozen=True, omit_defaults=True):
    """A command from `start` to `end`, or a `file` of ours with strangers' words in it.

    While it runs it may make folders `inside` of some; at its end it says which: `roots`.
    With `others` it is a command in that folder on which others than the owner had a say: what
    tells there how things are done may be theirs.
    """

    start: float = 0.0
    end: float = 0.0
    inside: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    file: str = ""
    changed: int = 0
    others: str = ""


class Marks:
    """`log` is the file; without one it holds as long as this program runs."""

    def __init__(self, log: Path | None, most: int = MOST_SPANS) -> None:
        self._log = log
        self._most = most
        self._inode, self._offset = 0, 0
        self._commands: dict[float, Note] = {}
        self._written: dict[str, int] = {}
        self._others: dict[tuple[str, float], Note] = {}
        self._spans: list[Span] | None = None
        self._roots: list[str] | None = None
        self._lines = 0
        self._decoder = msgspec.json.Decoder(Note)

    def add(self, note: Note, oldest: float) -> None:
        """Nothing older than `oldest` needs to be kept any longer."""
        self._load()
        self._take(note)
        if self._log is None:
            self._forget(oldest)
            return
        with suppress(OSError):
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("ab") as file:
                file.write(msgspec.json.encode(note) + b"\n")
            needed = len(self._commands) + len(self._written) + len(self._others)
            if self._lines > _SLACK * max(needed, 100):
                self._rewrite(self._log, oldest)

    def __bool__(self) -> bool:
        self._load()
        return bool(self._commands or self._written)

    def covers(self, when: float, oldest: float) -> bool:
        """Whether something was being brought at that time."""
        self._load()
        if self._spans is None:
            self._spans = _merged((one.start, one.end) for one in self._commands.values())
        place = bisect_right(self._spans, (when, float("inf"))) - 1
        return place >= 0 and when <= self._spans[place][1] and self._spans[place][1] > oldest

    def written(self, path: Path) -> int | None:
        """Of a file with strangers' words: when it was changed last, as the system counts."""
        self._load()
        return self._written.get(packed(path))

    def by_others(self, path: Path, when: float) -> bool:
        """Whether others had a say in the folder around it at that time."""
        self._load()
        return any(
            note.start <= when <= note.end and path.is_relative_to(unpacked(note.others))
            for note in self._others.values()
        )

    def roots(self) -> list[str]:
        """Folders that were brought as a whole."""
        self._load()
        if self._roots is None:
            found = dict.fromkeys(one for note in self._commands.values() for one in _roots(note))
            self._roots = list(found)[-MOST_ROOTS:]
        return self._roots

    def _take(self, note: Note) -> None:
        if note.file:
            self._written.pop(note.file, None)
            self._written[note.file] = note.changed
            while len(self._written) > MOST_WRITTEN:
                del self._written[next(iter(self._written))]
        elif note.others:
            self._others[note.others, note.start] = note
            while len(self._others) > self._most:
                del self._others[next(iter(self._others))]
        else:
            self._commands[note.start] = note
            while len(self._commands) > self._most:
                del self._commands[next(iter(self._commands))]
            self._spans = self._roots = None

    def _load(self) -> None:
        """What this process, an earlier one or another one has added since."""
        if self._log is None:
            return
        with suppress(OSError), self._log.open("rb") as file:
            stat = os.fstat(file.fileno())
            if (stat.st_ino, stat.st_size) == (self._inode, self._offset):
                return
            if stat.st_ino != self._inode or stat.st_size < self._offset:
                self._offset = self._lines = 0
            file.seek(self._offset)
            data = file.read()
            whole = data.rfind(b"\n") + 1
            self._inode, self._offset = stat.st_ino, self._offset + whole
            for line in data[:whole].splitlines():
                self._lines += 1
                if note := self._note(line):
                    self._take(note)

    def _note(self, line: bytes) -> Note | None:
        try:
            return self._decoder.decode(line)
        except (msgspec.MsgspecError, ValueError):
            return _plain_span(line)

    def _forget(self, oldest: float) -> None:
        self._commands = {start: one for start, one in self._commands.items() if one.end > oldest}
        self._others = {key: one for key, one in self._others.items() if one.end > oldest}

    def _rewrite(self, log: Path, oldest: float) -> None:
        self._load()
        self._forget(oldest)
        files = (Note(file=name, changed=when) for name, when in self._written.items())
        notes = [*self._commands.values(), *self._others.values(), *files]
        write_atomic(log, b"".join(msgspec.json.encode(one) + b"\n" for one in notes))
        self._spans = self._roots = None


def folders_in(folders: Iterable[Path]) -> Folders:
    """What folders there are in some; one that cannot be looked at is left out."""
    found: dict[str, frozenset[str]] = {}
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            some = islice(entries, MOST_ENTRIES)
            names = [one.name for one in some if one.is_dir(follow_symlinks=False)]
            found[str(folder)] = frozenset(names)
    return found


def made_since(before: Folders) -> tuple[str, ...]:
    """Folders that were not there before, as they are kept."""
    now = folders_in(map(Path, before))
    made = [Path(place, name) for place, names in now.items() for name in names - before[place]]
    return tuple(sorted(map(packed, made)))


def packed(path: Path) -> str:
    """A name may be no text; what is kept must be."""
    return os.fsencode(path).decode("latin-1")


def unpacked(name: str) -> Path:
    return Path(os.fsdecode(name.encode("latin-1", "replace")))


def _roots(note: Note) -> Iterable[str]:
    """Of a command that never ended: what seems to be new in the folders it worked in."""
    yield from note.roots
    for place in note.inside:
        with suppress(OSError), os.scandir(unpacked(place)) as entries:
            for one in islice(entries, MOST_ENTRIES):
                if one.is_dir(follow_symlinks=False):
                    changed = one.stat(follow_symlinks=False).st_ctime
                    if note.start <= changed <= note.end:
                        yield packed(Path(one.path))


def _merged(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _plain_span(line: bytes) -> Note | None:
    """As earlier versions wrote it."""
    try:
        start, end = map(float, line.split())
    except ValueError:
        return None
    return Note(start, end)
