"""Whose word is followed: files that tell how things are done, as the owner once vouched for them.

Kept by path and content, so that whoever changes such a file has to be vouched for anew.
"""

import hashlib
from contextlib import suppress
from pathlib import Path
from threading import RLock

import msgspec
from msgspec import Struct

from hermes.kit.files import append_line, open_locked

INSTRUCTION_FILES = (".hermes.md", "HERMES.md", "AGENTS.md", "CLAUDE.md", ".cursorrules")
"""Names of files that tell how things are done; the first with something in it is a folder's."""
MAX_INSTRUCTIONS = 4_000_000
"""Bytes of one, wherever it lies; a larger one says nothing, and nobody can vouch for it."""
MAX_ENTRIES = 10_000


class _TrustedFile(Struct, frozen=True):
    path: str
    digest: str


class TrustStore:
    """`file` keeps it over a restart; without one it holds as long as this program runs."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = RLock()
        self._stamp: tuple[int, int, int] | None = None
        self._known: set[_TrustedFile] = set()
        self._held: set[_TrustedFile] = set()
        self._decoder = msgspec.json.Decoder(_TrustedFile)

    def vouch(self, real: Path, data: bytes) -> None:
        """The owner said so, or had it written in a turn in which nobody else spoke.

        Where it cannot be written down it holds as long as this program runs.
        """
        try:
            self.keep(real, data)
        except OSError:
            self._held.add(_trusted_file(real, data))

    def keep(self, real: Path, data: bytes) -> None:
        """For good. Raises `OSError` when it cannot be written down, and then nothing holds."""
        one = _trusted_file(real, data)
        with self._lock:
            if self._file is None:
                self._held.add(one)
                return
            self._load(self._file)
            if one in self._known:
                return
            with open_locked(self._file) as file:
                append_line(file, msgspec.json.encode(one))
            self._known.add(one)

    def knows(self, real: Path, data: bytes) -> bool:
        one = _trusted_file(real, data)
        with self._lock:
            if self._file is not None:
                self._load(self._file)
            return one in self._known or one in self._held

    def _load(self, path: Path) -> None:
        """What another process has noted counts as well; what stands there no more does not."""
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
    """Whether it tells how things are done in a folder below the workspace."""
    inside = bool(workspace.parts[1:]) and real.is_relative_to(workspace)
    return inside and real.name in INSTRUCTION_FILES and real.parent != workspace


def _trusted_file(real: Path, data: bytes) -> _TrustedFile:
    name = str(real).encode("utf-8", "surrogateescape").decode("latin-1")
    return _TrustedFile(name, content_digest(data))


def content_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
