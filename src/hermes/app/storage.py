"""The session store and blobs of a home, without the rest of the program."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import anyio

from hermes.config.home import Home
from hermes.kit.clock import Clock
from hermes.kit.files import MAX_IMAGE_BYTES, image_type
from hermes.kit.terminal_text import single_line
from hermes.ports.store import Blobs, SessionArchive
from hermes.schema.errors import UsageError
from hermes.schema.messages import Media
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
    found = (one.session for one in summaries if single_line(one.preview).startswith(beginning))
    return next(found, None)


def open_blobs(home: Home) -> FileBlobs:
    return FileBlobs(home.cache / "blobs")


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
