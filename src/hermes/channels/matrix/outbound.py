"""Turn posts into the contents of Matrix's events."""

import hashlib
import re
from collections.abc import Collection
from html import escape
from typing import TypeAlias

from hermes.channels.matrix.choices import choice_content, legend, legend_html
from hermes.kit.ids import new_id
from hermes.ports.channel import Markup, NotSent, Outbound

Content: TypeAlias = dict[str, object]

HTML = "org.matrix.custom.html"
_USER = re.compile(r"@[\w.=/+-]+:[\w.-]+(?::\d+)?")


def text_content(post: Outbound, people: Collection[str]) -> Content:
    """Return the content of a message; `people` are the ones it may notify."""
    is_html = post.markup is Markup.HTML
    text = (post.plain if is_html else post.text) or post.plain or post.text
    lines = legend(post)
    shown = "\n\n".join(filter(None, [text, "\n".join(lines)]))
    content: Content = {"msgtype": "m.text", "body": shown, **choice_content(post)}
    if is_html and post.text and post.text != escape(text, quote=False):
        html = post.text + (legend_html(lines) if lines else "")
        content |= {"format": HTML, "formatted_body": html}
    named = dict.fromkeys(user for user in _USER.findall(text) if user in people)
    # Without this field, clients would search the text for names.
    content["m.mentions"] = {"user_ids": list(named)} if named else {}
    return content


def with_relation(content: Content, thread: str | None, reply_to: str | None) -> Content:
    """Add the relation that places the content in a thread or makes it a reply."""
    if thread:
        replied = reply_to if reply_to and reply_to != thread else None
        relation: Content = {
            "rel_type": "m.thread",
            "event_id": thread,
            "is_falling_back": replied is None,
            "m.in_reply_to": {"event_id": replied or thread},
        }
        return {**content, "m.relates_to": relation}
    if reply_to and reply_to.startswith("$"):
        return {**content, "m.relates_to": {"m.in_reply_to": {"event_id": reply_to}}}
    return content


def edit_content(content: Content, message: str) -> Content:
    """Return the content of an event that replaces another one's content."""
    return {
        **content,
        "body": f"* {content['body']}",
        "m.new_content": content,
        "m.relates_to": {"rel_type": "m.replace", "event_id": message},
    }


def reaction_content(message: str, sign: str) -> Content:
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": message, "key": sign}}


def transaction(key: str) -> str:
    """Return a request id that is the same for each attempt to send a post."""
    if not key:
        return new_id("txn")
    return f"hermes-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def event_id(message: str) -> str:
    if not message.startswith("$"):
        raise NotSent(f"{message!r} is not the id of an event.")
    return message
