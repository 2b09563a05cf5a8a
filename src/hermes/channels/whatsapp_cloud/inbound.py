"""Turn the messages of a webhook call into updates."""

from collections.abc import Mapping
from functools import partial

from msgspec import structs

from hermes.channels.received_files import (
    AttachedFile,
    ReceivedFiles,
    RecordingKind,
    media_type_of,
)
from hermes.channels.whatsapp_cloud import MEDIA
from hermes.channels.whatsapp_cloud.graph_api import GraphApi
from hermes.channels.whatsapp_cloud.objects import Location, MediaObject, Message
from hermes.channels.written_at import time_at
from hermes.ports.channel import (
    ChangedReaction,
    Inbound,
    InboundDetails,
    NewMessage,
    PressedButton,
    Update,
)
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address

_KINDS: Mapping[str, tuple[str, RecordingKind]] = {
    "image": ("picture", ""),
    "sticker": ("sticker", ""),
    "audio": ("audio file", "audio"),
    "video": ("video", "video"),
    "document": ("file", ""),
}
_EXTENSIONS = {"image": "jpg", "sticker": "webp", "audio": "ogg", "video": "mp4", "document": "bin"}


class InboundBuilder:
    """Builds the updates of one account; files are fetched on the way."""

    def __init__(self, *, name: str, api: GraphApi, files: ReceivedFiles) -> None:
        self._name = name
        self._api = api
        self._files = files

    async def build(self, message: Message, user_name: str) -> Inbound | None:
        """Return the update for a message; None if nothing in it can be read."""
        update, subject = _update(message)
        inbound = Inbound(
            key=message.id,
            address=Address(self._name, message.from_),
            sender=message.from_,
            parts=(),
            reply_to=message.context.id or None if message.context else None,
            message=subject,
            about=InboundDetails(user_name=user_name, mentions=True),
            update=update,
            written_at=time_at(message.timestamp),
        )
        if not isinstance(update, NewMessage):
            return inbound
        has_file = any(getattr(message, kind) is not None for kind in _KINDS)
        if has_file and (refused := await self._files.refused(inbound)):
            return refused
        parts = await self._parts(message)
        return structs.replace(inbound, parts=tuple(parts)) if parts else None

    async def _parts(self, message: Message) -> list[Text | Media]:
        if message.text is not None:
            return [Text(message.text.body)] if message.text.body else []
        if message.button is not None:
            return [Text(message.button.text)]
        if message.location is not None:
            return [Text(_location(message.location))]
        for kind in _KINDS:
            media = getattr(message, kind)
            if isinstance(media, MediaObject):
                return await self._file(kind, media)
        return [Text(f"(A message of the type {message.type}, which cannot be read here.)")]

    async def _file(self, kind: str, media: MediaObject) -> list[Text | Media]:
        called, recording = ("voice note", "audio") if media.voice else _KINDS[kind]
        name = media.filename or f"{kind}.{_EXTENSIONS[kind]}"
        file = AttachedFile(
            name=name,
            media_type=media_type_of(name, media.mime_type),
            kind=called,
            recording=recording,
        )
        limit = MEDIA.limit_for(file.media_type)
        fetched = await self._files.fetch(
            file, partial(self._api.download, media.id, max_bytes=limit)
        )
        return [Text(media.caption), *fetched] if media.caption else fetched


def _update(message: Message) -> tuple[Update, str]:
    """Return the kind of update, and the id of the message that it is about."""
    if message.reaction is not None:
        emoji = message.reaction.emoji
        return ChangedReaction(emoji, removed=not emoji), message.reaction.message_id
    if message.interactive is not None:
        chosen = message.interactive.button_reply or message.interactive.list_reply
        post = message.context.id if message.context is not None else ""
        if chosen is not None and post:
            return PressedButton(chosen.id), post
    return NewMessage(), message.id


def _location(place: Location) -> str:
    named = ", ".join(part for part in (place.name, place.address) if part)
    point = f"{place.latitude}, {place.longitude}"
    return f"(Location: {named} ({point}))" if named else f"(Location: {point})"
