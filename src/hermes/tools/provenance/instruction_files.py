"""Find a project's instruction files, and remember which of them the owner trusts."""

import hashlib
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from threading import RLock

import msgspec
from msgspec import Struct

from hermes.kit.files import append_line, open_locked, read_regular_file

OWN_NAMES = (".hermes.md", "HERMES.md")
"""Searched in the workspace and its parents up to the root of the repository."""
COMMON_NAMES = ("AGENTS.md", "CLAUDE.md", ".cursorrules")
INSTRUCTION_FILES = (*OWN_NAMES, *COMMON_NAMES)
"""Names of instruction files; the first non-empty one in a folder is used."""
MAX_INSTRUCTIONS = 4_000_000
"""Bytes of one file; larger ones are ignored and cannot be trusted."""
MAX_ENTRIES = 10_000
"""Trusted files that are remembered."""
CURSOR_RULES = Path(".cursor") / "rules"
MAX_RULES = 100
"""Rules of one folder that are considered; only the first is followed."""


def candidate_paths(workspace: Path, root: Path | None, rules: int = 1) -> Iterator[Path]:
    """Yield possible paths of instruction files, best first; `root` is the repository's."""
    folders = [workspace]
    if root is not None:
        folders += [folder for folder in workspace.parents if folder.is_relative_to(root)]
    yield from (folder / name for folder in folders for name in OWN_NAMES)
    yield from (
        folder / name for name in COMMON_NAMES for folder in dict.fromkeys((workspace, folders[-1]))
    )
    folder = workspace / CURSOR_RULES
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".mdc"))  # noqa: PTH208 - creating paths is slow
    except OSError:
        return
    yield from (folder / name for name in names[:rules])


def repository_root(folder: Path) -> Path | None:
    """Find the repository; an empty `.git` does not count, anyone can create one in `/tmp`."""
    for path in (folder, *folder.parents):
        git = path / ".git"
        # Works even for folders we cannot read.
        if os.path.isfile(git) or os.path.exists(git / "HEAD"):  # noqa: PTH110, PTH113 - see above
            return path
    return None


def instruction_files_among(paths: Collection[Path], workspace: Path) -> frozenset[Path]:
    """Return the instruction files among the paths, by name or because a link points to them."""
    candidates = candidate_paths(workspace, repository_root(workspace), MAX_RULES)
    linked = {Path(os.path.realpath(path)) for path in candidates if os.path.lexists(path)}
    return frozenset(path for path in paths if is_instruction_file(path) or path in linked)


def is_instruction_file(path: Path) -> bool:
    is_rule = path.suffix == ".mdc" and path.parent.parts[-2:] == CURSOR_RULES.parts
    return is_rule or path.name in INSTRUCTION_FILES


def instruction_files_for(folder: Path, largest: int) -> Iterator[tuple[Path, bytes]]:
    """Yield all instruction files for work in a folder, with their content."""
    for path in candidate_paths(folder, repository_root(folder), MAX_RULES):
        if os.path.lexists(path):
            try:
                yield path, read_regular_file(Path(os.path.realpath(path)), largest)
            except OSError:
                continue


class _TrustedFile(Struct, frozen=True):
    path: str
    digest: str


class TrustStore:
    """`file` stores it across restarts; without one it lasts as long as the program runs."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = RLock()
        self._stamp: tuple[int, int, int] | None = None
        self._known: set[_TrustedFile] = set()
        self._unsaved: set[_TrustedFile] = set()
        self._decoder = msgspec.json.Decoder(_TrustedFile)

    def trust(self, real: Path, data: bytes) -> None:
        """Trust a file because the owner said so, or wrote it in a turn without untrusted content.

        If it cannot be stored, it lasts as long as this program runs.
        """
        try:
            self.trust_permanently(real, data)
        except OSError:
            self._unsaved.add(_trusted_file(real, data))

    def trust_permanently(self, real: Path, data: bytes) -> None:
        """Trust a file permanently. Raises `OSError`, without effect, if it cannot be stored."""
        entry = _trusted_file(real, data)
        with self._lock:
            if self._file is None:
                self._unsaved.add(entry)
                return
            self._load(self._file)
            if entry in self._known:
                return
            with open_locked(self._file) as file:
                append_line(file, msgspec.json.encode(entry))
            self._known.add(entry)

    def is_trusted(self, real: Path, data: bytes) -> bool:
        entry = _trusted_file(real, data)
        with self._lock:
            if self._file is not None:
                self._load(self._file)
            return entry in self._known or entry in self._unsaved

    def _load(self, path: Path) -> None:
        """Reload the file if another process changed it."""
        try:
            stat = path.stat()
            stamp = stat.st_ino, stat.st_size, stat.st_mtime_ns
            if stamp == self._stamp:
                return
            lines = path.read_bytes().splitlines()[-MAX_ENTRIES:]
        except OSError:
            self._stamp, self._known = None, set()
            return
        self._stamp, self._known = stamp, set()
        for line in lines:
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                self._known.add(self._decoder.decode(line))


def is_nested_instruction_file(real: Path, workspace: Path) -> bool:
    """Whether it is an instruction file in a folder below the workspace."""
    inside = bool(workspace.parts[1:]) and real.is_relative_to(workspace)
    return inside and real.name in INSTRUCTION_FILES and real.parent != workspace


def _trusted_file(real: Path, data: bytes) -> _TrustedFile:
    name = str(real).encode("utf-8", "surrogateescape").decode("latin-1")
    return _TrustedFile(name, content_digest(data))


def content_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
