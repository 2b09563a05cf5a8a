"""Turn posts into messages of the Cloud API."""

from collections.abc import Mapping

from msgspec import structs

from hermes.channels.received_files import is_text_file
from hermes.channels.whatsapp_cloud import MANIFEST, MAX_REPLY_BUTTONS
from hermes.kit.text import one_line
from hermes.ports.channel import Attachment, Outbound
from hermes.schema.messages import Media, Text

MAX_BUTTON_TEXT = 1024
MAX_CAPTION = 1024
PLAIN_TEXT = "text/plain"
VOICE = "audio/ogg"
_OFFICE = "application/vnd.openxmlformats-officedocument"
_KINDS: Mapping[str, str] = {
    "audio/aac": "audio",
    "audio/amr": "audio",
    "audio/mp4": "audio",
    "audio/mpeg": "audio",
    "audio/ogg": "audio",
    "audio/opus": "audio",
    "image/jpeg": "image",
    "image/png": "image",
    "video/3gpp": "video",
    "video/mp4": "video",
    "application/pdf": "document",
    "application/msword": "document",
    "application/vnd.ms-excel": "document",
    "application/vnd.ms-powerpoint": "document",
    f"{_OFFICE}.presentationml.presentation": "document",
    f"{_OFFICE}.spreadsheetml.sheet": "document",
    f"{_OFFICE}.wordprocessingml.document": "document",
    PLAIN_TEXT: "document",
}
"""The types of files that the Cloud API accepts, and the kinds of messages that show them."""
_OTHER_NAMES = {"audio/3gpp": "video/3gpp"}
"""Types that Python guesses from file names."""
LIST_BUTTON = "Choose"

Fields = dict[str, object]


def spaced_prefix(prefix: str) -> str:
    """Return the prefix followed by a space, because variables cannot end with one."""
    return f"{prefix} " if prefix and not prefix[-1].isspace() else prefix


def with_prefix(post: Outbound, prefix: str) -> Outbound:
    """The post with the prefix before its text, or before the caption of its file."""
    if not prefix:
        return post
    blocks = list(post.blocks)
    for index, block in enumerate(blocks):
        if isinstance(block, Text):
            blocks[index] = Text(f"{prefix}{block.text}")
            break
        if isinstance(block, Attachment) and block.caption:
            blocks[index] = structs.replace(block, caption=f"{prefix}{block.caption}")
            break
    return structs.replace(post, blocks=tuple(blocks))


def message_fields(to: str, post: Outbound) -> Fields:
    """Return the fields of a text, with buttons or a list if there are choices."""
    fields: Fields = {"recipient_type": "individual", "to": to}
    if post.reply_to:
        fields["context"] = {"message_id": post.reply_to}
    if post.choices:
        return {**fields, "type": "interactive", "interactive": _interactive(post)}
    return {**fields, "type": "text", "text": {"body": post.text, "preview_url": True}}


def _interactive(post: Outbound) -> Fields:
    """Return at most three buttons, or a list, which also allows a longer text."""
    text = {"text": post.text}
    if len(post.choices) <= MAX_REPLY_BUTTONS and len(post.text) <= MAX_BUTTON_TEXT:
        buttons = [
            {"type": "reply", "reply": {"id": choice.value, "title": choice.label}}
            for choice in post.choices
        ]
        return {"type": "button", "body": text, "action": {"buttons": buttons}}
    rows = [{"id": choice.value, "title": choice.label} for choice in post.choices]
    action = {"button": LIST_BUTTON, "sections": [{"rows": rows}]}
    return {"type": "list", "body": text, "action": action}


def upload_type(media: Media) -> str:
    """The type under which a file is uploaded; empty if WhatsApp does not take it."""
    bare = media.media_type.partition(";")[0].strip().lower()
    bare = _OTHER_NAMES.get(bare, bare)
    if bare in _KINDS:
        return bare
    is_text = is_text_file(media.name, bare) or bare.endswith(("+json", "+xml"))
    return PLAIN_TEXT if is_text else ""


def refused_file_fields(to: str, post: Outbound, attachment: Attachment) -> Fields:
    """A text instead of a file that WhatsApp does not take."""
    caption = f" {attachment.caption}" if attachment.caption else ""
    name = one_line(attachment.media.name, 100) or "A file"
    text = f"{name} was not sent: WhatsApp does not accept this type of file.{caption}"
    shortened = Text(text[: MANIFEST.caps.max_text])
    return message_fields(to, Outbound((shortened,), reply_to=post.reply_to))


def file_fields(
    to: str, post: Outbound, attachment: Attachment, media: str, media_type: str
) -> Fields:
    """A file that was uploaded as `media_type`."""
    kind = _KINDS[media_type]
    file: Fields = {"id": media}
    if attachment.caption and kind != "audio":
        file["caption"] = attachment.caption[:MAX_CAPTION]
    if kind == "document":
        file["filename"] = attachment.media.name
    if media_type == VOICE and attachment.voice:
        file["voice"] = True
    fields: Fields = {"recipient_type": "individual", "to": to, "type": kind, kind: file}
    if post.reply_to:
        fields["context"] = {"message_id": post.reply_to}
    return fields
