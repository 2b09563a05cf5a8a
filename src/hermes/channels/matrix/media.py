"""Send and receive files, encrypted in encrypted rooms."""

from functools import partial
from typing import TypeAlias

import anyio.to_thread
from nio.crypto.attachments import decrypt_attachment, encrypt_attachment
from nio.exceptions import EncryptionError

from hermes.channels.matrix.client_api import ClientApi
from hermes.channels.matrix.objects import MessageContent
from hermes.channels.received_files import AttachedFile, ReceivedFiles, media_type_of
from hermes.ports.channel import Attachment, NotSent, Offline, UnknownOutcome
from hermes.schema.messages import Media, Text

VOICE_TYPES = frozenset({"audio/ogg", "audio/opus"})
OCTETS = "application/octet-stream"
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}

Content: TypeAlias = dict[str, object]


class MediaReader:
    """Reads the files of messages."""

    def __init__(self, api: ClientApi, received: ReceivedFiles, *, max_bytes: int) -> None:
        self._api = api
        self.received = received
        self._max_bytes = max_bytes

    async def parts(self, content: MessageContent) -> list[Text | Media]:
        """Return the file of a message, or a note if it cannot be fetched."""
        return await self.received.fetch(_attached_file(content), partial(self._read, content))

    async def _read(self, content: MessageContent) -> bytes:
        file = content.file
        address = file.url if file is not None else content.url
        data = await self._api.download(address, max_bytes=self._max_bytes)
        if file is None:
            return data
        digest = file.hashes.get("sha256", "")
        decrypt = partial(decrypt_attachment, data, file.key.k, digest, file.iv)
        try:
            return await anyio.to_thread.run_sync(decrypt)
        except EncryptionError as error:
            raise NotSent(f"The file cannot be decrypted: {error}") from error


async def file_content(
    api: ClientApi, attachment: Attachment, data: bytes, *, encrypted: bool
) -> Content:
    """Upload a file and return the content of its message. Raises the errors of `Channel.send`."""
    media = attachment.media
    name = media.name or "file"
    kind = _KINDS.get(media.media_type.partition("/")[0], "m.file")
    info: Content = {"mimetype": media.media_type, "size": len(data)}
    content: Content = {"msgtype": kind, "body": name, "filename": name, "info": info}
    try:
        if encrypted:
            ciphertext, keys = await anyio.to_thread.run_sync(encrypt_attachment, data)
            # The server learns neither its name nor its type.
            address = await api.upload(ciphertext, OCTETS, "")
            content["file"] = {**keys, "url": address, "v": "v2"}
        else:
            content["url"] = await api.upload(data, media.media_type, name)
    except UnknownOutcome as error:
        # An uploaded file is invisible until a message refers to it.
        raise Offline(str(error)) from error
    if attachment.caption:
        content["body"] = attachment.caption
    if attachment.voice and media.media_type in VOICE_TYPES:
        content["org.matrix.msc3245.voice"] = {}
        content["org.matrix.msc1767.audio"] = {}
    return content


def file_name(content: MessageContent) -> str:
    return content.filename or content.body or "file"


def _attached_file(content: MessageContent) -> AttachedFile:
    name = file_name(content)
    media_type = media_type_of(name, content.info.mimetype)
    is_audio, is_video = media_type.startswith("audio/"), media_type.startswith("video/")
    audio = "voice message" if content.voice is not None else "audio file"
    return AttachedFile(
        name=name,
        media_type=media_type,
        kind=audio if is_audio else "video" if is_video else "file",
        size=content.info.size,
        seconds=content.info.duration / 1000,
        recording="audio" if is_audio else "video" if is_video else "",
    )
