"""Fetch the files of a message and describe them for the model."""

import logging
import mimetypes
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import anyio
from msgspec import Struct

from hermes.channels.telegram.bot_api import BotApi
from hermes.channels.telegram.objects import Message
from hermes.kit.clock import Clock
from hermes.kit.retry import Backoff
from hermes.ports.channel import NotSent, Offline, Throttled
from hermes.ports.store import Blobs
from hermes.schema.attachments import sent_file_text
from hermes.schema.messages import Media, Text

log = logging.getLogger(__name__)

ATTEMPTS = 3
INLINE_LIMIT = 100_000
"""Text files up to this size are shown to the model in the message."""
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/toml"})
_TEXT_NAMES = re.compile(r"\.(md|txt|csv|log|json|xml|ya?ml|toml|ini|cfg|ts|py|sh)", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w.\- ]+")


class AttachedFile(Struct, frozen=True, kw_only=True):
    """A file of a message that is not downloaded yet."""

    file_id: str
    kind: str
    name: str
    media_type: str
    size: int = 0
    duration: int = 0


def attached_files(message: Message) -> Iterator[AttachedFile]:
    if message.photo:
        # The sizes of one photo; the largest is the one people see.
        best = max(message.photo, key=lambda one: one.width * one.height)
        yield AttachedFile(
            file_id=best.file_id,
            kind="photo",
            name=f"photo-{message.message_id}.jpg",
            media_type="image/jpeg",
            size=best.file_size,
        )
    kinds = (
        ("voice note", message.voice, "voice.ogg", "audio/ogg"),
        ("audio file", message.audio, "audio.mp3", "audio/mpeg"),
        ("video", message.video, "video.mp4", "video/mp4"),
        ("video note", message.video_note, "video-note.mp4", "video/mp4"),
        ("animation", message.animation, "animation.mp4", "video/mp4"),
        # An animation is also sent as a document.
        ("file", None if message.animation else message.document, "file", ""),
    )
    for kind, file, name, media_type in kinds:
        if file is not None:
            given = file.file_name or name
            guessed = mimetypes.guess_type(given)[0] or "application/octet-stream"
            yield AttachedFile(
                file_id=file.file_id,
                kind=kind,
                name=given,
                media_type=file.mime_type or media_type or guessed,
                size=file.file_size,
                duration=file.duration,
            )


class FileReader:
    """Downloads files into the blob store; documents are also stored in `folder` for the tools."""

    def __init__(
        self, api: BotApi, blobs: Blobs, clock: Clock, *, folder: Path, most: int, local: bool
    ) -> None:
        self._api = api
        self._blobs = blobs
        self._clock = clock
        self._folder = folder
        self._most = most
        self._local = local
        self._backoff = Backoff(base=1.0, cap=10.0)

    async def parts(self, message: Message) -> list[Text | Media]:
        """The files of a message; one that cannot be had is said to be missing."""
        return [part for file in attached_files(message) for part in await self._read(file)]

    async def _read(self, file: AttachedFile) -> list[Text | Media]:
        if file.size > self._most:
            return [_missing(file, f"it is larger than {self._most // 1_000_000} MB")]
        try:
            data = await self._download(file)
        except NotSent as error:
            log.warning("a %s could not be downloaded: %s", file.kind, error)
            too_big = "too big" in str(error) or "too large" in str(error)
            return [_missing(file, "it is too large" if too_big else "the download failed")]
        media = await self._blobs.put(data, file.media_type, file.name)
        if file.kind == "photo" or file.media_type.startswith("image/"):
            return [media]
        if file.kind != "file":
            return [media, Text(_recording_note(file))]
        if (text := _readable_text(file, data)) is not None:
            return [Text(sent_file_text(file.name, text))]
        path = await self._stored(media, data)
        return [media, Text(sent_file_text(file.name, "", path=str(path)))]

    async def _download(self, file: AttachedFile) -> bytes:
        for attempt in range(1, ATTEMPTS):
            try:
                return await self._api.download(file.file_id, most=self._most, local=self._local)
            except Throttled as error:
                await self._clock.sleep(error.wait)
            except Offline:
                await self._clock.sleep(self._backoff.delay(attempt))
        return await self._api.download(file.file_id, most=self._most, local=self._local)

    async def _stored(self, media: Media, data: bytes) -> Path:
        name = _UNSAFE.sub("_", PurePosixPath(media.name).name).strip(". ") or "file"
        path = self._folder / f"{media.digest[:12]}-{name[-80:]}"
        folder = anyio.Path(self._folder)
        await folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        await anyio.Path(path).write_bytes(data)
        return path


def _readable_text(file: AttachedFile, data: bytes) -> str | None:
    kind = file.media_type.partition(";")[0]
    is_text = (
        kind.startswith("text/")
        or kind in _TEXT_TYPES
        or _TEXT_NAMES.fullmatch(PurePosixPath(file.name).suffix)
    )
    if not is_text or len(data) > INLINE_LIMIT:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _recording_note(file: AttachedFile) -> str:
    length = f" of {file.duration} seconds" if file.duration else ""
    what = f"{file.kind}{length}, {file.name}"
    if file.kind in {"voice note", "audio file"}:
        return (
            f"({what}. It was not transcribed, because no speech recognition is set up: say that "
            "you cannot hear it.)"
        )
    return f"({what}. You cannot watch it.)"


def _missing(file: AttachedFile, why: str) -> Text:
    return Text(f"({file.kind} {file.name} is not attached: {why}.)")
