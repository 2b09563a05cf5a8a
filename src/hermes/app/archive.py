"""The sessions of a home and the files they name, opened without the rest of the program."""

from contextlib import AbstractAsyncContextManager

from hermes.config.home import Home
from hermes.kit.clock import Clock
from hermes.kit.terminal_text import single_line
from hermes.ports.store import SessionArchive
from hermes.schema.sessions import Session, SessionFilter
from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import SqliteStore, open_store

_MAX_LISTED = 1000


def open_archive(home: Home, clock: Clock) -> AbstractAsyncContextManager[SqliteStore]:
    """Creates the database when it is missing; ask `home.state_db.exists()` before a mere look."""
    return open_store(home.state_db, clock)


async def find_by_preview(archive: SessionArchive, name: str) -> Session | None:
    """One without a title is listed by how it began, in quotes, and cut off where there is no room.

    Of several that began so, it is the one that was used last.
    """
    begun = name.strip("“”\"' ").rstrip("…")
    digests = await archive.list(SessionFilter(), _MAX_LISTED) if begun else ()
    return next(
        (one.session for one in digests if single_line(one.preview).startswith(begun)), None
    )


def open_blobs(home: Home) -> FileBlobs:
    return FileBlobs(home.cache / "blobs")
