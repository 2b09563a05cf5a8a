"""Turn posts into the fields of Mattermost's API."""

import hashlib
import re
from collections.abc import Sequence

from hermes.channels.mattermost import MAX_TEXT
from hermes.kit.literal_markdown import literal_markdown
from hermes.ports.channel import Markup, Outbound

_MENTION_OF_ALL = re.compile(r"(?<![\w@])@(?=(?:all|channel|here)(?![\w-]))", re.IGNORECASE)
_FULLWIDTH_AT = "\uff20"


def shown_text(post: Outbound) -> str:
    """Return the text for Mattermost: without channel-wide mentions, and plain text escaped."""
    captions = [attachment.caption for attachment in post.attachments if attachment.caption]
    text = post.text or "\n".join(captions)[:MAX_TEXT]
    # The API has no field for this; a lookalike sign keeps the length and notifies no one.
    text = _MENTION_OF_ALL.sub(_FULLWIDTH_AT, text)
    if post.markup is not Markup.PLAIN:
        return text
    escaped = literal_markdown(text)
    # Escaping makes the text longer; if it no longer fits, it is sent unescaped.
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
