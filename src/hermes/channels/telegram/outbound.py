"""Turn posts into calls of the Bot API."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.channels.http_client import Upload
from hermes.channels.telegram.inbound import GENERAL_TOPIC
from hermes.ports.channel import Attachment, Choice, Markup, NotSent, Outbound
from hermes.schema.scope import Address

MAX_CALLBACK = 64
"""Maximum bytes of the value that a button reports."""
MAX_CAPTION = 1024
PHOTO_LIMIT = 10_000_000
LABELS_PER_ROW = 32
"""Maximum characters of all labels in one row of buttons."""
_PHOTO_TYPES = frozenset({"image/jpeg", "image/png", "image/webp"})
_VOICE_TYPES = frozenset({"audio/ogg", "audio/opus"})
_AUDIO_TYPES = frozenset({"audio/mpeg", "audio/mp4", "audio/m4a", "audio/x-m4a"})
# Telegram accepts only some emoji as reactions.
REACTIONS = {"✅": "👍", "❌": "👎"}


class SendCall(Struct, frozen=True):
    method: str
    fields: dict[str, object]
    uploads: tuple[Upload, ...] = ()


def chat_fields(to: Address) -> dict[str, object]:
    """The chat and its topic; posts to the general topic must not name it."""
    thread = to.thread if to.thread not in (None, "", GENERAL_TOPIC) else None
    return {"chat_id": chat_id(to.chat), "message_thread_id": _number(thread) if thread else None}


def text_call(to: Address, post: Outbound, *, previews: bool) -> SendCall:
    """A post without files."""
    fields = {
        **chat_fields(to),
        **text_fields(post, previews=previews),
        "reply_parameters": reply_fields(post.reply_to),
    }
    return SendCall("sendMessage", fields)


def text_fields(post: Outbound, *, previews: bool) -> dict[str, object]:
    return {
        "text": post.text,
        "parse_mode": "HTML" if post.markup is Markup.TELEGRAM else None,
        "link_preview_options": None if previews else {"is_disabled": True},
        "reply_markup": _keyboard(post.choices),
    }


def file_call(to: Address, post: Outbound, attachment: Attachment, data: bytes) -> SendCall:
    """A post with one file, in the form in which Telegram shows it best."""
    media = attachment.media
    method, field = _method(attachment, len(data))
    caption = (post.text or attachment.caption)[:MAX_CAPTION]
    fields: dict[str, object] = {
        **chat_fields(to),
        "caption": caption or None,
        "reply_parameters": reply_fields(post.reply_to),
        "reply_markup": _keyboard(post.choices),
    }
    upload = Upload(field, media.name or "file", media.media_type, data)
    return SendCall(method, fields, (upload,))


def reply_fields(message: str | None) -> Mapping[str, object] | None:
    """Return the fields of a reply; if the message is gone, the post quotes nothing."""
    if message is None or not message.isdecimal():
        return None
    return {"message_id": int(message), "allow_sending_without_reply": True}


def message_number(message: str) -> int:
    if not message.isdecimal():
        raise NotSent(f"{message!r} is not the id of a message.")
    return int(message)


def chat_id(chat: str) -> int | str:
    """Return the chat id: a number, or the public name of a group or channel."""
    return int(chat) if chat.removeprefix("-").isdecimal() else chat


def _number(text: str) -> int:
    if not text.isdecimal():
        raise NotSent(f"{text!r} is not the id of a topic.")
    return int(text)


def _method(attachment: Attachment, size: int) -> tuple[str, str]:
    kind = attachment.media.media_type
    if attachment.voice and kind in _VOICE_TYPES:
        return "sendVoice", "voice"
    if kind in _PHOTO_TYPES and size <= PHOTO_LIMIT:
        return "sendPhoto", "photo"
    if kind in _AUDIO_TYPES:
        return "sendAudio", "audio"
    if kind == "video/mp4":
        return "sendVideo", "video"
    return "sendDocument", "document"


def _keyboard(choices: Sequence[Choice]) -> Mapping[str, object] | None:
    """Arrange buttons in rows that fit on a phone."""
    if not choices:
        return None
    rows: list[list[Mapping[str, str]]] = []
    width = LABELS_PER_ROW + 1
    for choice in choices:
        if len(choice.value.encode()) > MAX_CALLBACK:
            raise NotSent("The value of a button is longer than Telegram accepts.")
        if width + len(choice.label) > LABELS_PER_ROW or len(rows[-1]) == 4:
            rows.append([])
            width = 0
        rows[-1].append({"text": choice.label, "callback_data": choice.value})
        width += len(choice.label)
    return {"inline_keyboard": rows}
