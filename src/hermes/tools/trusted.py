"""Whose word is followed: files that tell how things are done, as the owner once vouched for them.

Kept by path and content, so that whoever changes such a file has to be vouched for anew.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

GUIDES = (".hermes.md", "HERMES.md", "AGENTS.md", "CLAUDE.md", ".cursorrules")
"""Names of files that tell how things are done; the first with something in it is a folder's."""
LARGEST = 1_000_000
MOST = 10_000


class _Vouched(Struct, frozen=True):
    path: str
    digest: str


class Trusted:
    """`file` keeps it over a restart; without one it holds as long as this program runs."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._known: set[_Vouched] = set()
        self._decoder = msgspec.json.Decoder(_Vouched)

    def vouch(self, real: Path, data: bytes) -> None:
        """The owner said so, or had it written in a turn in which nobody else spoke."""
        one = _vouched(real, data)
        if self.knows(real, data):
            return
        self._known.add(one)
        if self._file is not None:
            with suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with self._file.open("ab") as file:
                    file.write(msgspec.json.encode(one) + b"\n")

    def knows(self, real: Path, data: bytes) -> bool:
        self._load()
        return _vouched(real, data) in self._known

    def _load(self) -> None:
        """What another process has noted counts as well."""
        if self._file is None:
            return
        try:
            stat = self._file.stat()
            stamp = stat.st_ino, stat.st_size, stat.st_mtime_ns
            if stamp == self._stamp:
                return
            lines = self._file.read_bytes().splitlines()[-MOST:]
        except OSError:
            return
        self._stamp = stamp
        for line in lines:
            with suppress(msgspec.MsgspecError):
                self._known.add(self._decoder.decode(line))


def is_guide_below(real: Path, workspace: Path) -> bool:
    """Whether it tells how things are done in a folder below the workspace."""
    inside = bool(workspace.parts[1:]) and real.is_relative_to(workspace)
    return inside and real.name in GUIDES and real.parent != workspace


def _vouched(real: Path, data: bytes) -> _Vouched:
    name = str(real).encode("utf-8", "surrogateescape").decode("latin-1")
    return _Vouched(name, hashlib.sha256(data).hexdigest())
