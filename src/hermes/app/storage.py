"""Open the store and the blobs of a home, without the rest of the program."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from hermes.config.home import Home
from hermes.kit.clock import Clock
from hermes.kit.files import MAX_IMAGE_BYTES, image_type
from hermes.kit.terminal_text import single_line
from hermes.ports.board import Board
from hermes.ports.maintenance import ReportProgress
from hermes.ports.ownership import WORKER_TTL
from hermes.ports.store import Blobs, SessionArchive, Store
from hermes.schema.errors import StoreError, UsageError
from hermes.schema.messages import Media
from hermes.schema.sessions import Session, SessionFilter
from hermes.store.blobs import FileBlobs, forget_files
from hermes.store.database_file import move_database
from hermes.store.sqlite import open_store

_MAX_LISTED = 1000
_LONG_IMPORT = 10_000
"""Imports of at least this many rows log their progress."""
log = logging.getLogger(__name__)


@asynccontextmanager
async def open_archive(
    home: Home, clock: Clock, worker_ttl: timedelta = WORKER_TTL
) -> AsyncGenerator[Store]:
    """Creates a missing database; check `home.has_sessions` first if that is unwanted."""
    if home.legacy_database.exists() or not home.database.exists():
        await run_sync(move_database, home.legacy_database, home.database)
    async with open_store(home.database, clock, worker_ttl) as store:
        yield store


async def import_public_sessions(store: Store, home: Home, report: ReportProgress) -> None:
    """Import new sessions from the public system's database, if there is one.

    A failure is logged: our own sessions do not depend on it.
    """
    path = home.legacy_database
    if not path.is_file():
        return
    try:
        added = await store.maintenance.import_legacy(path, report)
    except StoreError as error:
        log.warning("the sessions of the public system were not imported: %s", error)
        return
    if added.sessions or added.messages:
        log.info(
            "imported %d sessions and %d messages from %s", added.sessions, added.messages, path
        )


class LoggedProgress:
    """Logs a long import in steps of a tenth."""

    def __init__(self) -> None:
        self._tenths = 0

    def __call__(self, done: int, total: int) -> None:
        tenths = done * 10 // max(total, 1)
        if tenths > self._tenths and total > _LONG_IMPORT:
            log.info("importing sessions of the public system: %d%%", tenths * 10)
        self._tenths = tenths


async def find_by_preview(archive: SessionArchive, name: str) -> Session | None:
    """Find a session without a title by its quoted, possibly truncated preview.

    If several match, the most recently used one is returned.
    """
    beginning = name.strip("“”\"' ").rstrip("…")
    summaries = await archive.list(SessionFilter(), _MAX_LISTED) if beginning else ()
    found = (
        summary.session
        for summary in summaries
        if single_line(summary.preview).startswith(beginning)
    )
    return next(found, None)


async def open_board(path: Path) -> Board:
    from hermes.store.board import SqliteBoard  # noqa: PLC0415 - few commands need it

    return await SqliteBoard.open(path)


def open_blobs(home: Home) -> Blobs:
    return FileBlobs(home.cache / "blobs")


async def forget_stored_files(home: Home, before: datetime, max_bytes: int) -> int:
    """Delete the oldest files of chats and clients until the rest fits; return how many."""
    folder = home.cache / "blobs"
    return await anyio.to_thread.run_sync(forget_files, folder, before.timestamp(), max_bytes)


async def load_images(blobs: Blobs, names: Sequence[str]) -> list[Media]:
    """Raises `UsageError` for a missing file or an unsupported format."""
    return [await _load_image(blobs, await anyio.Path(name).expanduser()) for name in names]


async def _load_image(blobs: Blobs, path: anyio.Path) -> Media:
    try:
        async with await path.open("rb") as file:
            data = await file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"Cannot read {path}: {error.strerror}.",
            hint="Check the name and the permissions.",
        ) from error
    kind = image_type(data)
    if kind is None:
        raise UsageError(f"{path} is not an image.", hint="PNG, JPEG, GIF and WebP are supported.")
    if len(data) > MAX_IMAGE_BYTES:
        raise UsageError(
            f"{path} is larger than {MAX_IMAGE_BYTES:,} bytes.", hint="Make it smaller first."
        )
    return await blobs.put(data, kind, path.name)
