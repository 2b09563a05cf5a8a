"""Open the session store and blobs of a home without the rest of the program."""

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
    """Creates a missing database; check `home.state_db.exists()` first if that is unwanted."""
    return open_store(home.state_db, clock)


async def find_by_preview(archive: SessionArchive, name: str) -> Session | None:
    """Find a session without a title by its quoted, possibly truncated preview.

    If several match, the most recently used one is returned.
    """
    beginning = name.strip("“”\"' ").rstrip("…")
    summaries = await archive.list(SessionFilter(), _MAX_LISTED) if beginning else ()
    return next(
        (
            summary.session
            for summary in summaries
            if single_line(summary.preview).startswith(beginning)
        ),
        None,
    )


def open_blobs(home: Home) -> FileBlobs:
    return FileBlobs(home.cache / "blobs")
