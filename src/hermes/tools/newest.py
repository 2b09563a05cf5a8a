"""Which files of a folder are too many: bounded in number and in bytes, the newest stay."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def beyond(files: Iterable[Path], most: int, most_bytes: int) -> Iterator[Path]:
    """All but the newest `most` files, and of those all that are too large together.

    The newest file always stays: somebody was just told its name.
    """
    dated: list[tuple[int, str, int, Path]] = []
    for file in files:
        with suppress(OSError):
            status = file.stat()
            dated.append((status.st_mtime_ns, file.name, status.st_size, file))
    size = 0
    for place, (_, _, length, file) in enumerate(sorted(dated, reverse=True)):
        size += length
        if place and (place >= most or size > most_bytes):
            yield file
