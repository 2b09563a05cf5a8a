"""What goes along with a question: pictures and documents, short texts as words, names of more."""

import logging
from base64 import b64encode
from collections.abc import Sequence
from pathlib import PurePath

from msgspec import Struct

from hermes.kit.document_kinds import document_kind
from hermes.kit.pictures import picture_kind
from hermes.ports.blobs import Blobs
from hermes.schema.errors import StoreError
from hermes.schema.messages import Media, Text, User

log = logging.getLogger(__name__)

Part = dict[str, str]
"""One part of an input item, in the words of the Responses API."""

WORDS = "input_text"
ROOM = 6_000_000
"""Bytes of files in one request: in base64 they are a third longer, and 10,000,000 are let in."""
MOST_FILES = 50
"""Pictures and documents that the far side takes at once."""
LONGEST_TEXT = 100_000
"""Bytes of a file that is passed on as words."""
MOST_TEXT = 1_000_000
"""Characters that the far side reads of one document."""


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
        self._places = MOST_FILES

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
        if len(data) > self._room or (part := self._packed(media, data)) is None:
            return None
        if part["type"] != WORDS:
            if not self._places:
                return None
            self._places -= 1
        self._room -= len(data)
        return part

    def _packed(self, media: Media, data: bytes) -> Part | None:
        """As what the far side takes it, if it does."""
        if (kind := picture_kind(data)) is not None:
            return {"type": "input_image", "image_url": _data_url(kind, data)}
        made = document_kind(PurePath(media.name), data)
        text = None if made else _as_text(data)
        if text is not None and len(data) <= LONGEST_TEXT:
            return _words(_framed(media, text))
        if self._files and (made or (text is not None and len(text) <= MOST_TEXT)):
            name = media.name or f"document.{made or 'txt'}"
            url = _data_url(media.media_type or "text/plain", data)
            return {"type": "input_file", "filename": name, "file_data": url}
        return None


def left_behind(media: Media) -> str:
    return f"[attached: {media.name or 'a file'} ({media.media_type}), which stayed behind]"


def _words(text: str) -> Part:
    return {"type": WORDS, "text": text}


def _as_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _framed(media: Media, text: str) -> str:
    """In a frame that says where it begins and ends."""
    name = media.name or "a file"
    return f"[attached: {name} ({media.media_type})]\n{text}\n[end of {name}]"


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"
