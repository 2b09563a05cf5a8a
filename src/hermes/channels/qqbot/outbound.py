"""Turn posts into the fields of QQ's API."""

import re
from collections.abc import Sequence

from msgspec import Struct

from hermes.channels.qqbot.objects import ChatKind
from hermes.kit.literal_markdown import literal_markdown
from hermes.ports.channel import Attachment, Choice, Markup, Outbound

TEXT, MARKDOWN, MEDIA = 0, 2, 7
IMAGE, VIDEO, VOICE, FILE = 1, 2, 3, 4
IN_ROW = 5
_IMAGES = frozenset({"image/png", "image/jpeg"})
_VOICES = frozenset({"audio/silk", "audio/amr", "audio/x-silk"})
_TAG = re.compile(r"<(?=qqbot-|@|#|emoji:)|@(?=everyone)", re.IGNORECASE)
_LINK = re.compile(r"https?://([^\s/?#)\]>]+)", re.IGNORECASE)
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Permissions(Struct):
    """What the bot may send, as far as known.

    QQ grants Markdown and buttons on request, and links by domain.
    """

    markdown: bool = True
    buttons: bool = True
    links: bool = True


def file_type_of(attachment: Attachment) -> int:
    kind = attachment.media.media_type
    if kind in _IMAGES:
        return IMAGE
    if kind == "video/mp4":
        return VIDEO
    return VOICE if kind in _VOICES else FILE


def message_fields(post: Outbound, kind: ChatKind, permissions: Permissions) -> dict[str, object]:
    """The fields of a message with text and buttons."""
    formatted = permissions.markdown and post.markup is not Markup.PLAIN
    # Buttons are only shown below Markdown.
    buttons = bool(post.choices) and permissions.markdown and permissions.buttons
    text = post.text
    if post.choices and not buttons:
        text = "\n\n".join(filter(None, [text, _numbered(post.choices)]))
    if formatted or buttons:
        content = text if formatted else literal_markdown(text)
        fields: dict[str, object] = {"markdown": {"content": _harmless(content, permissions)}}
        if buttons:
            fields["keyboard"] = {"content": {"rows": _rows(post.choices)}}
        return fields if kind.in_guild else {"msg_type": MARKDOWN, **fields}
    return text_fields(text, kind, permissions)


def text_fields(text: str, kind: ChatKind, permissions: Permissions) -> dict[str, object]:
    if kind.in_guild:
        # There, only `content` has these characters escaped.
        return {"content": _harmless(text, permissions, tags=False).translate(_ESCAPES)}
    return {"msg_type": TEXT, "content": _harmless(text, permissions)}


def media_fields(caption: str, file_info: str, permissions: Permissions) -> dict[str, object]:
    """A message with a file; QQ wants a caption, which may be blank."""
    content = _harmless(caption, permissions) or " "
    return {"msg_type": MEDIA, "content": content, "media": {"file_info": file_info}}


def _harmless(text: str, permissions: Permissions, *, tags: bool = True) -> str:
    """Remove tags that would mention people, and links if they are refused."""
    if not permissions.links:
        text = _LINK.sub(lambda found: found[1].replace(".", "[.]"), text)
    return _TAG.sub(lambda found: f"{found[0]}\u200b", text) if tags else _everyone(text)


def _everyone(text: str) -> str:
    return re.sub(r"@(?=everyone)", "@\u200b", text)


def _numbered(choices: Sequence[Choice]) -> str:
    return "\n".join(f"{number}. {choice.label}" for number, choice in enumerate(choices, 1))


def _rows(choices: Sequence[Choice]) -> list[dict[str, object]]:
    buttons = [_button(str(number), choice) for number, choice in enumerate(choices, 1)]
    return [{"buttons": buttons[i : i + IN_ROW]} for i in range(0, len(buttons), IN_ROW)]


def _button(number: str, choice: Choice) -> dict[str, object]:
    return {
        "id": number,
        "render_data": {"label": choice.label, "visited_label": choice.label, "style": 1},
        "action": {
            "type": 1,  # a callback
            "permission": {"type": 2},  # everyone; the gateway decides whose press counts
            "data": choice.value,
            "unsupport_tips": choice.label,
        },
    }
