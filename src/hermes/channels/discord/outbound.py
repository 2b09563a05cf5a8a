"""Turn posts into calls of Discord's API."""

import base64
import hashlib
import re
import struct
from collections.abc import Mapping, Sequence

from hermes.channels.discord import AllowedMentions
from hermes.channels.discord.objects import MessageFlag
from hermes.channels.http_client import Upload
from hermes.ports.channel import Attachment, Choice, Markup, NotSent, Outbound

MAX_FILES = 10
MAX_FILE_BYTES = 24 * 1024 * 1024
"""Maximum bytes of all files of a message; Discord accepts requests of 25 MiB."""
MAX_TEXT = 2000
MAX_CUSTOM_ID = 100
MAX_BUTTONS_PER_ROW = 5
MAX_AS_BUTTONS = 10
"""More choices than this are shown as a menu."""
MAX_OPTIONS = 25
MAX_OPTION_LABEL = 100
MENU_ID = "menu"
VOICE_TYPES = frozenset({"audio/ogg", "audio/opus"})
_OPUS_RATE = 48_000
_FLAT_WAVEFORM = base64.b64encode(bytes([96] * 64)).decode()
_ROW, _BUTTON, _SELECT = 1, 2, 3
_PRIMARY, _SECONDARY, _DANGER = 1, 2, 4
_DENIALS = ("deny", "no", "stop", "cancel", "reject")
_SPECIAL = re.compile(
    # A backslash after an address would become a part of it.
    r"(https?://[^\s<]+<?)|[\\*_~`|\[\]<@]"
    r"|^[ \t]*(?:#{1,3}|-#|[->+])(?=[ \t>])|^[ \t]*\d+(?=\.[ \t])|^>",
    re.MULTILINE,
)

Fields = dict[str, object]


def message_fields(post: Outbound, mentions: AllowedMentions) -> Fields:
    """Return the text and buttons of a post; they are the same for new and edited messages."""
    return {
        "content": shown_text(post),
        "components": _components(post.choices),
        "allowed_mentions": _allowed(mentions),
    }


def new_message_fields(post: Outbound, mentions: AllowedMentions, reply_to: str | None) -> Fields:
    fields = message_fields(post, mentions)
    if post.key:
        fields |= {"nonce": nonce(post.key), "enforce_nonce": True}
    if reply_to is not None and reply_to.isdecimal():
        # If the message was deleted meanwhile, the post quotes nothing.
        fields["message_reference"] = {"message_id": reply_to, "fail_if_not_exists": False}
    return fields


def with_voice(fields: Fields, data: bytes) -> tuple[Fields, Upload]:
    """Return the fields of a voice message, which has no text, and its file."""
    name = "voice-message.ogg"
    entry = {
        "id": 0, "filename": name, "duration_secs": opus_seconds(data), "waveform": _FLAT_WAVEFORM,
    }  # fmt: skip
    kept = ("nonce", "enforce_nonce", "message_reference", "allowed_mentions")
    voice: Fields = {key: fields[key] for key in kept if key in fields}
    voice |= {"flags": int(MessageFlag.VOICE), "attachments": [entry]}
    return voice, Upload(_file_field(0), name, "audio/ogg", data)


def with_files(
    fields: Fields, files: Sequence[tuple[Attachment, bytes]]
) -> tuple[Fields, list[Upload]]:
    """Return the fields and files of a post. Raises `NotSent` if they are too large."""
    if len(files) > MAX_FILES:
        raise NotSent(f"A message can have at most {MAX_FILES} files.")
    if sum(len(data) for _, data in files) > MAX_FILE_BYTES:
        raise NotSent("The files of a message can have at most 24 MiB together.")
    captions = "\n".join(attachment.caption for attachment, _ in files if attachment.caption)
    names = [attachment.media.name or "file" for attachment, _ in files]
    entries = [{"id": number, "filename": name} for number, name in enumerate(names)]
    uploads = [
        Upload(_file_field(number), names[number], attachment.media.media_type, data)
        for number, (attachment, data) in enumerate(files)
    ]
    content = fields["content"] or _fitting(captions)
    return {**fields, "content": content, "attachments": entries}, uploads


def is_voice(attachment: Attachment) -> bool:
    return attachment.voice and attachment.media.media_type in VOICE_TYPES


def _file_field(number: int) -> str:
    return f"files[{number}]"


def _fitting(text: str) -> str:
    """Escape a caption, which has no markup; one that would be too long is not escaped."""
    escaped = escape(text)
    return escaped if len(escaped) <= MAX_TEXT else text[:MAX_TEXT]


def shown_text(post: Outbound) -> str:
    """Return the text for Discord; plain text is escaped if it still fits."""
    if post.markup is not Markup.PLAIN:
        return post.text
    escaped = escape(post.text)
    # Escaping makes the text longer; if it no longer fits, it is sent unescaped.
    return escaped if len(escaped) <= MAX_TEXT else post.text


def escape(text: str) -> str:
    """Escape Discord's markup characters, except within URLs."""

    def escaped(found: re.Match[str]) -> str:
        sign = found[0]
        if found[1]:
            return sign
        bare = sign.lstrip(" \t")
        indent = sign[: len(sign) - len(bare)]
        return f"{sign}\\" if bare.isdecimal() else f"{indent}\\{bare}"

    return _SPECIAL.sub(escaped, text)


def nonce(key: str) -> str:
    """Return at most 25 characters that are the same for each attempt to send a post."""
    digest = hashlib.sha256(key.encode()).digest()
    return base64.b32encode(digest)[:25].decode()


def message_id(message: str) -> str:
    if not message.isdecimal():
        raise NotSent(f"{message!r} is not the id of a message.")
    return message


def opus_seconds(data: bytes) -> float:
    """Return the length of an Ogg Opus file, from the sample number of its last page."""
    place = data.rfind(b"OggS")
    if place < 0 or len(data) < place + 14:
        return 1.0
    (samples,) = struct.unpack_from("<q", data, place + 6)
    return round(max(samples / _OPUS_RATE, 0.1), 2)


def _allowed(mentions: AllowedMentions) -> Mapping[str, object]:
    kinds = ("everyone", "roles", "users")
    return {
        "parse": [name for name in kinds if getattr(mentions, name)],
        "replied_user": mentions.replied_user,
    }


def _components(choices: Sequence[Choice]) -> list[Fields]:
    """Return rows of buttons, or one menu if there are many choices."""
    if any(len(choice.value) > MAX_CUSTOM_ID for choice in choices):
        raise NotSent("The value of a button is longer than Discord accepts.")
    if len(choices) > MAX_OPTIONS:
        raise NotSent(f"A message can have at most {MAX_OPTIONS} choices.")
    if len(choices) > MAX_AS_BUTTONS:
        options = [
            {"label": choice.label[:MAX_OPTION_LABEL], "value": choice.value} for choice in choices
        ]
        menu = {"type": _SELECT, "custom_id": MENU_ID, "options": options}
        return [{"type": _ROW, "components": [menu]}]
    rows = range(0, len(choices), MAX_BUTTONS_PER_ROW)
    return [
        {
            "type": _ROW,
            "components": [
                _button(choice) for choice in choices[start : start + MAX_BUTTONS_PER_ROW]
            ],
        }
        for start in rows
    ]


def _button(choice: Choice) -> Fields:
    label = choice.label[:80]
    word = label.lower()
    style = _DANGER if word.startswith(_DENIALS) else _SECONDARY
    if word.startswith(("allow", "yes", "approve")):
        style = _PRIMARY
    return {"type": _BUTTON, "style": style, "label": label, "custom_id": choice.value}
