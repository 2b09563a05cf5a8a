"""Convert files that people drop on the page to parts of a message."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from anyio.to_thread import run_sync

from hermes.app.build import App
from hermes.kit.files import image_type
from hermes.schema.errors import UsageError
from hermes.schema.messages import Media, Text, sent_file_text
from hermes.web.texts import text

INLINE_LIMIT = 100_000
"""Text files up to this size are shown to the model in the message."""
NO_TEXT = "(no text)"
MAX_NAME = 100
"""Maximum bytes of a file name; its end is kept."""
_UNSAFE = re.compile(r"[^\w.\- ]+")


async def message_parts(app: App, words: str, files: Sequence[Media]) -> list[Text | Media]:
    """The parts of a message with files, after what was typed."""
    found: list[Text | Media] = []
    for media in files:
        found += await _file_parts(app, media)
    # The first part is always the person's text, never an attachment.
    is_attachment = bool(found) and isinstance(found[0], Text)
    typed = words if words.strip() else NO_TEXT if is_attachment else ""
    return [Text(typed), *found] if typed else found


async def _file_parts(app: App, media: Media) -> list[Text | Media]:
    """Return what the model gets for a stored file: the image, its text, or its path."""
    data = await app.blobs.read(media.digest)
    kind = image_type(data)
    if kind is not None:
        return [Media(media.digest, kind, media.name)]
    if len(data) <= INLINE_LIMIT and (words := _as_text(data)) is not None:
        return [Text(sent_file_text(media.name, words))]
    path = await _stored(app, media, data)
    return [media, Text(sent_file_text(media.name, "", path=str(path)))]


def _as_text(data: bytes) -> str | None:
    try:
        words = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in words else words


async def _stored(app: App, media: Media, data: bytes) -> Path:
    name = _UNSAFE.sub("_", PurePosixPath(media.name).name).strip(". ") or "file"
    short = name.encode()[-MAX_NAME:].decode(errors="ignore")
    folder = app.home.workspace / "uploads"
    return await run_sync(store_upload, folder, f"{media.digest[:12]}-{short}", data)


def store_upload(folder: Path, name: str, data: bytes) -> Path:
    """Write the file, following no links, because the agent can write to this folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        holder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise UsageError(text("no_uploads", folder=str(folder))) from error
    try:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=holder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=holder), "wb") as file:
            file.write(data)
    finally:
        os.close(holder)
    return folder / name
