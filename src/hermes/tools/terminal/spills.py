"""Files for output that is too long for the model: named in the result, read with read_file."""

import os
from collections.abc import Callable
from pathlib import Path

from hermes.kit.ids import new_id

KEPT_FILES = 100
_BLOCK = 1_000_000


class Spills:
    """A folder that keeps the newest files only."""

    def __init__(self, folder: Path, kept: int = KEPT_FILES) -> None:
        self._folder = folder
        self._kept = kept

    def fresh(self) -> Path:
        """A name that is not in use; the file itself is made by whoever has too much to say."""
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / f"{new_id('out')}.txt"

    def drop(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def prune(self) -> None:
        for old in sorted(self._folder.glob("out_*"))[: -self._kept]:
            old.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def rewrite(path: Path, clean: Callable[[str], str]) -> None:
    """Pass a spilled file through `clean`, some lines at a time, in bounded memory."""
    cleaned = path.with_suffix(".clean")
    handle = os.open(cleaned, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with (
        path.open(encoding="utf-8", errors="replace", newline="") as source,
        os.fdopen(handle, "w", encoding="utf-8", newline="") as target,
    ):
        while lines := source.readlines(_BLOCK):
            target.write(clean("".join(lines)))
    cleaned.replace(path)
