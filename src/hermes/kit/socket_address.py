"""Addresses of Unix sockets, however long the path of their folder is."""

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

MAX_ADDRESS_BYTES = 107 if sys.platform == "linux" else 103
"""Maximum length of a socket address, in bytes."""


@contextmanager
def short_address(folder: Path, name: str) -> Generator[str]:
    """Yield an address that is short enough, through the open folder if necessary.

    Only Linux can do that; elsewhere a long address raises `OSError`.
    """
    address = f"{folder}/{name}"
    if len(os.fsencode(address)) <= MAX_ADDRESS_BYTES:
        yield address
        return
    if sys.platform != "linux":
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), address)
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)
