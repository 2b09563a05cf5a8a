"""Read the text of a message: without quoted fallbacks, mentions of the agent and prefixes."""

import re
from collections.abc import Collection
from urllib.parse import unquote

from hermes.channels.matrix.objects import MessageContent

_LEADING_PUNCTUATION = " ,:;\n"
_PILL = re.compile(r'href="https://matrix\.to/#/([^"?]+)', re.IGNORECASE)
_COMMAND = re.compile(r"!([a-z][\w-]*)", re.IGNORECASE)


def is_mentioned(content: MessageContent, user: str, name: str, *, room_mentions: bool) -> bool:
    """Check `m.mentions` if the client sends it, otherwise look for the agent's link or name."""
    if content.mentions is not None:
        named = user in content.mentions.user_ids
        return named or (room_mentions and content.mentions.room)
    pills = {unquote(pill) for pill in _PILL.findall(content.formatted_body)}
    if user in pills or user in content.body:
        return True
    names = "|".join(re.escape(called) for called in _names(user, name))
    return re.search(rf"(?<!\w)@?(?:{names})(?!\w)", content.body, re.IGNORECASE) is not None


def written_text(content: MessageContent, user: str, name: str, commands: Collection[str]) -> str:
    """Return the person's text; `!help` stands for /help, because clients intercept slashes."""
    text = content.body
    if content.relates_to is not None and content.relates_to.in_reply_to is not None:
        text = without_fallback(text)
    names = "|".join(re.escape(called) for called in _names(user, name))
    own = re.match(
        rf"\s*(?:{re.escape(user)}|@?(?:{names}))(?=[{_LEADING_PUNCTUATION}]|$)",
        text,
        re.IGNORECASE,
    )
    if own is not None:
        text = text[own.end() :].lstrip(_LEADING_PUNCTUATION)
    command = _COMMAND.match(text)
    if command is not None and command[1].lower() in commands:
        text = f"/{text[1:]}"
    return text


def without_fallback(text: str) -> str:
    """Remove the quotation that some clients put before a reply."""
    if not text.startswith("> <@"):
        return text
    lines = text.split("\n")
    kept = next((n for n, line in enumerate(lines) if not line.startswith(">")), len(lines))
    return "\n".join(lines[kept:]).removeprefix("\n")


def _names(user: str, name: str) -> list[str]:
    """The agent's names, longest first."""
    local = user.removeprefix("@").partition(":")[0]
    return sorted({called for called in (local, name) if called}, key=len, reverse=True)
