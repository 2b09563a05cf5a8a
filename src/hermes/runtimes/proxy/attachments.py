"""What goes along with a question: pictures and documents, short texts as words, names of more."""

import logging
from base64 import b64encode
from collections.abc import Sequence
from pathlib import PurePath

from msgspec import Struct

from hermes.kit.file_types import document_type, image_type
from hermes.ports.blobs import Blobs
from hermes.schema.errors import StoreError
from hermes.schema.messages import Media, Text, User

log = logging.getLogger(__name__)

InputPart = dict[str, str]
"""One part of an input item, in the words of the Responses API."""

TEXT_PART = "input_text"
MAX_FILE_BYTES = 6_000_000
"""Bytes of files in one request: in base64 they are a third longer, and 10,000,000 are let in."""
MAX_FILES = 50
"""Pictures and documents that the far side takes at once."""
MAX_INLINE_TEXT = 100_000
"""Bytes of a file that is passed on as words."""
MAX_DOCUMENT_TEXT = 1_000_000
"""Characters that the far side reads of one document."""


class EncodedMessage(Struct, frozen=True):
    """`behind` are the names of what could not go along."""

    parts: Sequence[InputPart]
    behind: Sequence[str] = ()


class MessageEncoder:
    """Packs the messages of one request, which have one room together."""

    def __init__(self, blobs: Blobs, *, files: bool) -> None:
        """`files` says whether the far side reads documents."""
        self._blobs = blobs
        self._files = files
        self._room = MAX_FILE_BYTES
        self._places = MAX_FILES

    async def pack(self, message: User) -> EncodedMessage:
        parts: list[InputPart] = []
        behind: list[str] = []
        for part in message.parts:
            if isinstance(part, Text):
                parts += [_text_part(part.text)] if part.text else []
                continue
            packed = await self._file(part)
            behind += [] if packed is not None else [part.name or part.media_type]
            parts.append(packed or _text_part(omitted_note(part)))
        return EncodedMessage(parts, behind)

    async def _file(self, media: Media) -> InputPart | None:
        try:
            data = await self._blobs.read(media.digest)
        except (StoreError, OSError) as error:
            log.warning("%s cannot be read and stays behind: %s", media.name or media.digest, error)
            return None
        if len(data) > self._room or (part := self._packed(media, data)) is None:
            return None
        if part["type"] != TEXT_PART:
            if not self._places:
                return None
            self._places -= 1
        self._room -= len(data)
        return part

    def _packed(self, media: Media, data: bytes) -> InputPart | None:
        """As what the far side takes it, if it does."""
        if (kind := image_type(data)) is not None:
            return {"type": "input_image", "image_url": _data_url(kind, data)}
        made = document_type(PurePath(media.name), data)
        text = None if made else _as_text(data)
        if text is not None and len(data) <= MAX_INLINE_TEXT:
            return _text_part(_framed_text(media, text))
        if self._files and (made or (text is not None and len(text) <= MAX_DOCUMENT_TEXT)):
            name = media.name or f"document.{made or 'txt'}"
            url = _data_url(media.media_type or "text/plain", data)
            return {"type": "input_file", "filename": name, "file_data": url}
        return None


def omitted_note(media: Media) -> str:
    return f"[attached: {media.name or 'a file'} ({media.media_type}), which stayed behind]"


def _text_part(text: str) -> InputPart:
    return {"type": TEXT_PART, "text": text}


def _as_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _framed_text(media: Media, text: str) -> str:
    """In a frame that says where it begins and ends."""
    name = media.name or "a file"
    return f"[attached: {name} ({media.media_type})]\n{text}\n[end of {name}]"


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"
