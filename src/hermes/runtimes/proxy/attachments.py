"""Encode messages with attachments: images, documents, short texts, and the names of others."""

import logging
from base64 import b64encode
from collections.abc import Sequence
from pathlib import PurePath

from msgspec import Struct

from hermes.kit.files import document_type, image_type
from hermes.ports.store import Blobs
from hermes.schema.errors import StoreError
from hermes.schema.messages import Media, Text, User

log = logging.getLogger(__name__)

InputPart = dict[str, str]
"""A part of an input item of the Responses API."""

TEXT_PART = "input_text"
MAX_FILE_BYTES = 6_000_000
"""Bytes of files per request: base64 adds a third, and the limit is 10,000,000."""
MAX_FILES = 50
"""Images and documents that the remote gateway accepts in one request."""
MAX_INLINE_TEXT = 100_000
"""Bytes of a file to send as text."""
MAX_DOCUMENT_TEXT = 1_000_000
"""Characters that the remote gateway reads of one document."""


class EncodedMessage(Struct, frozen=True):
    """`omitted` are the names of files that could not be sent."""

    parts: Sequence[InputPart]
    omitted: Sequence[str] = ()


class MessageEncoder:
    """Encodes the messages of one request, which share a size limit."""

    def __init__(self, blobs: Blobs, *, files: bool) -> None:
        """`files` says whether the remote gateway reads documents."""
        self._blobs = blobs
        self._files = files
        self._bytes_left = MAX_FILE_BYTES
        self._files_left = MAX_FILES

    async def encode(self, message: User) -> EncodedMessage:
        parts: list[InputPart] = []
        omitted: list[str] = []
        for part in message.parts:
            if isinstance(part, Text):
                parts += [_text_part(part.text)] if part.text else []
                continue
            encoded = await self._file(part)
            if encoded is None:
                omitted.append(part.name or part.media_type)
            parts.append(encoded or _text_part(part_text(part)))
        return EncodedMessage(parts, omitted)

    async def _file(self, media: Media) -> InputPart | None:
        try:
            data = await self._blobs.read(media.digest)
        except (StoreError, OSError) as error:
            log.warning("cannot read attachment %s: %s", media.name or media.digest, error)
            return None
        if len(data) > self._bytes_left or (part := self._encode(media, data)) is None:
            return None
        if part["type"] != TEXT_PART:
            if not self._files_left:
                return None
            self._files_left -= 1
        self._bytes_left -= len(data)
        return part

    def _encode(self, media: Media, data: bytes) -> InputPart | None:
        """Encode a file in a form the remote gateway accepts, if there is one."""
        if (kind := image_type(data)) is not None:
            return {"type": "input_image", "image_url": _data_url(kind, data)}
        extension = document_type(PurePath(media.name), data)
        text = None if extension else _as_text(data)
        if text is not None and len(data) <= MAX_INLINE_TEXT:
            name = media.name or "a file"
            head = f"[attached: {name} ({media.media_type})]"
            return _text_part(f"{head}\n{text}\n[end of {name}]")
        if self._files and (extension or (text is not None and len(text) <= MAX_DOCUMENT_TEXT)):
            name = media.name or f"document.{extension or 'txt'}"
            url = _data_url(media.media_type or "text/plain", data)
            return {"type": "input_file", "filename": name, "file_data": url}
        return None


def part_text(part: Text | Media) -> str:
    """Return the text, or a note in place of a file that is not sent."""
    if isinstance(part, Text):
        return part.text
    return f"[attached: {part.name or 'a file'} ({part.media_type}), which was not sent]"


def _text_part(text: str) -> InputPart:
    return {"type": TEXT_PART, "text": text}


def _as_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"
