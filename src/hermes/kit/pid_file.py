"""A file with the id of this process, for scripts that have to find it."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from hermes.kit.files import write_atomic


@contextmanager
def pid_file(path: str) -> Generator[None]:
    """Write the file for the block, and remove it afterwards; nothing without a path."""
    if not path:
        yield
        return
    write_atomic(Path(path), f"{os.getpid()}\n".encode(), mode=0o600)
    try:
        yield
    finally:
        Path(path).unlink(missing_ok=True)
