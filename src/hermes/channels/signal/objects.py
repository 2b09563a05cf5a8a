"""Events of signal-cli, with the fields that the channel reads."""

from msgspec import Struct


class _Object(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that are missing or null have their defaults."""


class Attachment(_Object, frozen=True, kw_only=True):
    id: str | None = None
    content_type: str | None = None
    filename: str | None = None
    size: int | None = None


class Mention(_Object, frozen=True, kw_only=True):
    """A placeholder for a person in the text; positions are in UTF-16 units."""

    name: str | None = None
    number: str | None = None
    uuid: str | None = None
    start: int = 0
    length: int = 1


class Quote(_Object, frozen=True, kw_only=True):
    id: int = 0
    author_number: str | None = None
    author_uuid: str | None = None
    text: str | None = None


class Reaction(_Object, frozen=True, kw_only=True):
    emoji: str = ""
    target_author_number: str | None = None
    target_author_uuid: str | None = None
    target_sent_timestamp: int = 0
    is_remove: bool = False


class RemoteDelete(_Object, frozen=True, kw_only=True):
    timestamp: int = 0


class GroupInfo(_Object, frozen=True, kw_only=True):
    group_id: str = ""
    group_name: str | None = None
    type: str = "DELIVER"


class Sticker(_Object, frozen=True, kw_only=True):
    emoji: str | None = None


class DataMessage(_Object, frozen=True, kw_only=True):
    """A message, or a change to one."""

    timestamp: int = 0
    message: str | None = None
    attachments: tuple[Attachment, ...] | None = None
    mentions: tuple[Mention, ...] | None = None
    quote: Quote | None = None
    reaction: Reaction | None = None
    remote_delete: RemoteDelete | None = None
    group_info: GroupInfo | None = None
    sticker: Sticker | None = None


class SentMessage(DataMessage, frozen=True, kw_only=True):
    destination_number: str | None = None
    destination_uuid: str | None = None


class EditMessage(_Object, frozen=True, kw_only=True):
    target_sent_timestamp: int = 0
    data_message: DataMessage | None = None


class SyncMessage(_Object, frozen=True, kw_only=True):
    """Something that the account's owner did on another device."""

    sent_message: SentMessage | None = None


class TextAttachment(_Object, frozen=True, kw_only=True):
    text: str | None = None


class StoryMessage(_Object, frozen=True, kw_only=True):
    text_attachment: TextAttachment | None = None


class Envelope(_Object, frozen=True, kw_only=True):
    source_number: str | None = None
    source_uuid: str | None = None
    source_name: str | None = None
    timestamp: int = 0
    data_message: DataMessage | None = None
    edit_message: EditMessage | None = None
    sync_message: SyncMessage | None = None
    story_message: StoryMessage | None = None


class Event(_Object, frozen=True, kw_only=True):
    envelope: Envelope = Envelope()
    account: str = ""
