"""Turn posts into the fields of Mattermost's API."""

import hashlib
import re
from collections.abc import Sequence

from hermes.channels.mattermost import MAX_TEXT
from hermes.ports.channel import Markup, Outbound

_SPECIAL = re.compile(
    # A backslash after an address would become a part of it.
    r"(https?://\S+)|[\\*_~`|\[\]]|^[ \t]*(?:#{1,6}|[-+>])(?=[ \t])|^[ \t]*\d+(?=[.)][ \t])|^>",
    re.MULTILINE,
)


def shown_text(post: Outbound) -> str:
    """The text as Mattermost takes it: without markup of its own, signs are escaped."""
    captions = [one.caption for one in post.attachments if one.caption]
    text = post.text or "\n".join(captions)[:MAX_TEXT]
    if post.markup is not Markup.PLAIN:
        return text
    escaped = _SPECIAL.sub(_escaped, text)
    # Escaping makes it longer; a text that does not fit any more is sent as it is.
    return escaped if len(escaped) <= MAX_TEXT else text


def post_fields(
    post: Outbound, *, channel: str, root: str, files: Sequence[str], bot: str
) -> dict[str, object]:
    fields: dict[str, object] = {"channel_id": channel, "message": shown_text(post)}
    if root:
        fields["root_id"] = root
    if files:
        fields["file_ids"] = [*files]
    if post.key:
        # For 30 seconds, a server answers a repetition with the first post.
        digest = hashlib.sha256(f"{bot}:{post.key}".encode()).hexdigest()
        fields["pending_post_id"] = f"{bot}:{digest[:32]}"
    return fields


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    if found[1]:
        return sign
    bare = sign.lstrip(" \t")
    indent = sign[: len(sign) - len(bare)]
    return f"{sign}\\" if bare.isdecimal() else f"{indent}\\{bare}"
