"""Store bytes by content address, as files in one folder."""

import hashlib
import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

import anyio
from msgspec import Struct

from hermes.kit.files import write_atomic
from hermes.schema.errors import NotFound, StoreCorrupt, StoreError
from hermes.schema.messages import Media

log = logging.getLogger(__name__)

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


class FileBlobs(Struct, frozen=True):
    """Implements `hermes.ports.store.Blobs`."""

    folder: Path

    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        digest = await anyio.to_thread.run_sync(self._put, data)
        return Media(digest, media_type, name)

    async def read(self, digest: str) -> bytes:
        return await anyio.to_thread.run_sync(self._read, digest)

    def _put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        try:
            if not _is_renewed(path, len(data)):
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_atomic(path, data, mode=0o600)
        except OSError as error:
            raise StoreError(
                f"A file of {len(data):,} bytes could not be saved: {error.strerror}.",
                hint=f"Check the free space and permissions of {self.folder}.",
            ) from error
        return digest

    def _read(self, digest: str) -> bytes:
        if not _DIGEST.fullmatch(digest):
            raise NotFound(f"{digest!r} is not the address of a stored file.")
        try:
            data = self._path(digest).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"There is no stored file {digest}.") from None
        except OSError as error:
            raise StoreError(
                f"The stored file {digest} cannot be read: {error.strerror}."
            ) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreCorrupt(
                f"The stored file {digest} is damaged.", hint="Restore it from a backup."
            )
        return data

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest


def forget_files(folder: Path, before: float, max_bytes: int) -> int:
    """Delete the oldest files of before that time until the rest fits; return how many."""
    found: list[tuple[float, int, Path]] = []
    for path in folder.rglob("*"):
        with suppress(OSError):
            status = path.lstat()
            if S_ISREG(status.st_mode):
                found.append((status.st_mtime, status.st_size, path))
    excess, deleted = sum(size for _, size, _ in found) - max_bytes, 0
    for stored_at, size, path in sorted(found):
        if excess <= 0 or stored_at >= before:
            break
        try:
            # It may have been received again since it was listed.
            if path.lstat().st_mtime == stored_at:
                path.unlink()
                excess, deleted = excess - size, deleted + 1
        except OSError as error:
            log.warning("the old file %s cannot be deleted: %s", path, error)
    return deleted


def _is_renewed(path: Path, size: int) -> bool:
    """If the file is complete, make it the newest, because the oldest ones are deleted first."""
    try:
        if path.stat().st_size != size:
            return False
        os.utime(path)
    except FileNotFoundError:
        return False
    return True
