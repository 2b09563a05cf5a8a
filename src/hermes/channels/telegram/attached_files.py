"""Fetch the files of a message and describe them for the model."""

from collections.abc import Iterator
from functools import partial

from hermes.channels.received_files import AttachedFile, ReceivedFiles, RecordingKind, media_type_of
from hermes.channels.telegram.bot_api import BotApi
from hermes.channels.telegram.objects import FileObject, Message
from hermes.schema.messages import Media, Text


class TelegramFile(AttachedFile, frozen=True, kw_only=True):
    file_id: str


def attached_files(message: Message) -> Iterator[TelegramFile]:
    if message.photo:
        # A photo comes in several sizes; the largest is the one people see.
        best = max(message.photo, key=lambda size: size.width * size.height)
        yield TelegramFile(
            file_id=best.file_id,
            kind="photo",
            name=f"photo-{message.message_id}.jpg",
            media_type="image/jpeg",
            size=best.file_size,
        )
    # A forwarded recording is not the sender's own message.
    voice = "voice note" if message.forward_origin is None else "forwarded voice note"
    kinds: tuple[tuple[str, FileObject | None, str, str, RecordingKind], ...] = (
        (voice, message.voice, "voice.ogg", "audio/ogg", "audio"),
        ("audio file", message.audio, "audio.mp3", "audio/mpeg", "audio"),
        ("video", message.video, "video.mp4", "video/mp4", "video"),
        ("video note", message.video_note, "video-note.mp4", "video/mp4", "video"),
        ("animation", message.animation, "animation.mp4", "video/mp4", "video"),
        # An animation is also sent as a document.
        ("file", None if message.animation else message.document, "file", "", ""),
    )
    for kind, file, name, media_type, recording in kinds:
        if file is not None:
            file_name = file.file_name or name
            yield TelegramFile(
                file_id=file.file_id,
                kind=kind,
                name=file_name,
                media_type=media_type_of(file_name, file.mime_type or media_type),
                size=file.file_size,
                seconds=file.duration,
                recording=recording,
            )


class FileReader:
    """Reads the files of messages; with `local`, the Bot API server stores them here."""

    def __init__(
        self, api: BotApi, received: ReceivedFiles, *, max_bytes: int, local: bool
    ) -> None:
        self._api = api
        self.received = received
        self._max_bytes = max_bytes
        self._local = local

    async def parts(self, message: Message) -> list[Text | Media]:
        """Return the files of a message, with a note for each one that cannot be fetched."""
        return [part for file in attached_files(message) for part in await self._read(file)]

    async def _read(self, file: TelegramFile) -> list[Text | Media]:
        download = partial(
            self._api.download, file.file_id, max_bytes=self._max_bytes, local=self._local
        )
        return await self.received.fetch(file, download)
