"""Fetch the files of a message and describe them for the model."""

from functools import partial

from hermes.channels.discord.objects import AttachmentObject, Message, MessageFlag
from hermes.channels.discord.rest_api import RestApi
from hermes.channels.received_files import AttachedFile, ReceivedFiles, media_type_of
from hermes.schema.messages import Media, Text


class FileReader:
    """Reads the files of messages."""

    def __init__(self, api: RestApi, received: ReceivedFiles, *, max_bytes: int) -> None:
        self._api = api
        self.received = received
        self._max_bytes = max_bytes

    async def parts(self, message: Message) -> list[Text | Media]:
        """Return the files of a message, with a note for each one that cannot be fetched."""
        voice = bool(message.flags & MessageFlag.VOICE)
        forwarded = [
            file for snapshot in message.message_snapshots for file in snapshot.message.attachments
        ]
        # A forwarded recording is not the sender's own message.
        files = [
            *((file, voice) for file in message.attachments),
            *((file, False) for file in forwarded),
        ]
        return [part for file, recorded in files for part in await self._read(file, voice=recorded)]

    async def _read(self, file: AttachmentObject, *, voice: bool) -> list[Text | Media]:
        download = partial(self._api.download, file.url, max_bytes=self._max_bytes)
        return await self.received.fetch(_attached_file(file, voice=voice), download)


def has_files(message: Message) -> bool:
    """Whether files came with the message, or with what it forwards."""
    forwarded = (snapshot.message.attachments for snapshot in message.message_snapshots)
    return bool(message.attachments) or any(forwarded)


def _attached_file(file: AttachmentObject, *, voice: bool) -> AttachedFile:
    media_type = media_type_of(file.filename, file.content_type)
    is_audio, is_video = media_type.startswith("audio/"), media_type.startswith("video/")
    audio = "voice message" if voice else "audio file"
    return AttachedFile(
        name=file.filename,
        media_type=media_type,
        kind=audio if is_audio else "video" if is_video else "file",
        size=file.size,
        seconds=file.duration_secs or 0.0,
        recording="audio" if is_audio else "video" if is_video else "",
    )
