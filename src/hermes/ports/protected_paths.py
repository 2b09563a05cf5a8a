"""Paths that tools may not open, and the folders of single principals inside them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.schema.scope import principal_digest


class ProtectedPaths(Struct, frozen=True):
    """Files and folders that tools may not open; any path part may contain `*`.

    `opened` returns the real paths inside them that a principal may open nevertheless.
    """

    paths: Sequence[Path] = ()
    opened: Callable[[str], Sequence[Path]] = lambda principal: ()


def principal_folder(folder: Path, principal: str) -> Path:
    """Return the principal's subfolder; the owner uses the folder itself."""
    digest = principal_digest(principal)
    return folder / f"of-{digest}" if digest else folder
