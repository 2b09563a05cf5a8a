"""What goes along with a question: pictures and documents, short texts as words, names of more."""

import logging
from base64 import b64encode
from collections.abc import Sequence

from msgspec import Struct

from hermes.kit.pictures import picture_kind
from hermes.ports.blobs import Blobs
from hermes.schema.errors import StoreError
from hermes.schema.messages import Media, Text, User

log = logging.getLogger(__name__)

Part = dict[str, str]
"""One part of an input item, in the words of the Responses API."""

ROOM = 6_000_000
"""Bytes of files in one request: in base64 they are a third longer, and 10,000,000 are let in."""
MOST_PICTURES = 50
PDF = b"%PDF-"
LONGEST_TEXT = 100_000
"""Bytes of a file that is passed on as words."""


class Packed(Struct, frozen=True):
    """`behind` are the names of what could not go along."""

    parts: Sequence[Part]
    behind: Sequence[str] = ()


class Packer:
    """Packs the messages of one request, which have one room together."""

    def __init__(self, blobs: Blobs, *, files: bool) -> None:
        """`files` says whether the far side reads documents."""
        self._blobs = blobs
        self._files = files
        self._room = ROOM
        self._pictures = MOST_PICTURES

    async def pack(self, message: User) -> Packed:
        parts: list[Part] = []
        behind: list[str] = []
        for part in message.parts:
            if isinstance(part, Text):
                parts += [_words(part.text)] if part.text else []
                continue
            packed = await self._file(part)
            behind += [] if packed is not None else [part.name or part.media_type]
            parts.append(packed or _words(left_behind(part)))
        return Packed(parts, behind)

    async def _file(self, media: Media) -> Part | None:
        try:
            data = await self._blobs.read(media.digest)
        except (StoreError, OSError) as error:
            log.warning("%s cannot be read and stays behind: %s", media.name or media.digest, error)
            return None
        if len(data) > self._room:
            return None
        if (kind := picture_kind(data)) is not None and self._pictures:
            self._pictures -= 1
            self._room -= len(data)
            return {"type": "input_image", "image_url": _data_url(kind, data)}
        if data.startswith(PDF) and self._files:
            self._room -= len(data)
            name = media.name or "document.pdf"
            url = _data_url("application/pdf", data)
            return {"type": "input_file", "filename": name, "file_data": url}
        if (text := _as_text(media, data)) is not None:
            self._room -= len(data)
            return _words(text)
        return None


def left_behind(media: Media) -> str:
    return f"[attached: {media.name or 'a file'} ({media.media_type}), which stayed behind]"


def _words(text: str) -> Part:
    return {"type": "input_text", "text": text}


def _as_text(media: Media, data: bytes) -> str | None:
    """A short file of text, in a frame that says where it begins and ends."""
    if len(data) > LONGEST_TEXT or b"\0" in data or data.startswith(PDF):
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    name = media.name or "a file"
    return f"[attached: {name} ({media.media_type})]\n{text}\n[end of {name}]"


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"
