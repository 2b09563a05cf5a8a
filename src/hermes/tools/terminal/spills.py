"""Files for output that is too long for the model: named in the result, read with read_file.

While a command runs, its output goes to a file without a name: whatever ends us, nothing
that was not masked stays on the disk. Masked, it is written under a name.
"""

import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes.kit.ids import new_id
from hermes.schema.scope import OWNER
from hermes.tools.newest import beyond
from hermes.tools.places import own_part
from hermes.tools.terminal.plain import Cleaner

log = logging.getLogger(__name__)

KEPT_FILES = 100
KEPT_BYTES = 512 * 1024 * 1024
"""Of all files together."""
LARGEST = 64 * 1024 * 1024
"""Bytes of one file: masked output may be longer than the output itself."""
_BLOCK = 65_536


class Spills:
    """A folder that keeps the newest files only, the owner's and those of all others."""

    def __init__(self, folder: Path, kept: int = KEPT_FILES) -> None:
        self._folder = folder
        self._kept = kept

    @contextmanager
    def opened(self, principal: str = OWNER) -> Generator["Spill | None"]:
        """A file for one command's output; none when the disk will not take it."""
        try:
            folder = own_part(self._folder, principal)
            spill = Spill(_nameless(folder), folder)
        except OSError as error:
            log.warning("long output is not kept in %s: %s", self._folder, error)
            yield None
            return
        try:
            yield spill
        finally:
            os.close(spill.handle)

    def prune(self) -> None:
        for whose in ("out_*", "of-*/out_*"):
            for old in beyond(self._folder.glob(whose), self._kept, KEPT_BYTES):
                old.unlink(missing_ok=True)


def _nameless(folder: Path) -> int:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / new_id("raw")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    path.unlink()
    return handle


class Spill:
    """`handle` is open on what came out of the command."""

    def __init__(self, handle: int, folder: Path) -> None:
        self.handle = handle
        self._folder = folder

    @property
    def path(self) -> str:
        """By this name our own process, and no other, can write to it."""
        return f"/dev/fd/{self.handle}"

    def keep(self, clean: Callable[[str], str]) -> Path:
        """Write all of it under a name, cleaned a piece at a time, in bounded memory."""
        return self._write(self._cleaned(Cleaner(clean)))

    def keep_text(self, text: str) -> Path:
        """Write this instead, which was cleaned before."""
        return self._write([text])

    def _cleaned(self, cleaner: Cleaner) -> Iterator[str]:
        os.lseek(self.handle, 0, os.SEEK_SET)
        raw = os.fdopen(os.dup(self.handle), encoding="utf-8", errors="replace", newline="")
        with raw:
            while text := raw.read(_BLOCK):
                yield cleaner.add(text)
        yield cleaner.finish()

    def _write(self, pieces: Iterable[str]) -> Path:
        path = self._folder / f"{new_id('out')}.txt"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                room = LARGEST
                for piece in pieces:
                    data = piece.encode("utf-8", "replace")
                    file.write(data[:room])
                    room -= len(data)
                    if room < 0:
                        file.write(b"\n[the rest was not kept]\n")
                        break
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path
