"""Read the text of a message: names instead of ids, links with their addresses, mentions."""

import re
from collections.abc import Mapping
from html import unescape

from hermes.channels.slack.objects import Message

_MARK = re.compile(r"<([^<>\s|][^<>|]*)(?:\|([^<>]*))?>")
_USER = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_LEADING_PUNCTUATION = " ,:\n"
_COMMAND = re.compile(r"!([a-z][\w-]*)(?=\s|$)", re.IGNORECASE)


def mentioned_users(text: str) -> list[str]:
    return [*dict.fromkeys(_USER.findall(text))]


def without_leading_mention(text: str, bot: str) -> str:
    own = re.match(rf"\s*<@{re.escape(bot)}(?:\|[^<>]*)?>", text)
    return text[own.end() :].lstrip(_LEADING_PUNCTUATION) if own else text


def readable(text: str, names: Mapping[str, str]) -> str:
    """The text as people see it; Slack writes `&`, `<` and `>` as entities."""

    def shown(found: re.Match[str]) -> str:
        target, label = found[1], found[2] or ""
        if target.startswith("@"):
            return f"@{names.get(target[1:]) or label or target[1:]}"
        if target.startswith("#"):
            return f"#{label or target[1:]}"
        if target.startswith("!"):
            word = target[1:].partition("^")[0]
            return label or f"@{word}"
        address = target.removeprefix("mailto:")
        if not label or label in {target, address, address.partition("://")[2]}:
            return address
        return f"[{label}]({target})"

    # Decode only the three entities that Slack writes; people may type others.
    plain = _MARK.sub(shown, text)
    return re.sub(r"&(?:amp|lt|gt);", lambda found: unescape(found[0]), plain)


def with_command(text: str, commands: frozenset[str]) -> str:
    """Slack sends no slash commands from threads, so there `!stop` means `/stop`."""
    found = _COMMAND.match(text)
    if found is None or found[1].lower() not in commands:
        return text
    return f"/{text[1:]}"


def forwarded_text(message: Message) -> str:
    """Return what the message forwards, or what another app shows in it."""
    parts = [
        "\n".join(
            part
            for part in (
                attachment.pretext,
                attachment.title,
                attachment.text or attachment.fallback,
            )
            if part
        )
        for attachment in message.attachments
        # The preview of a link to a message is not written by the sender.
        if attachment.is_share or message.from_bot
    ]
    return "\n".join(part for part in parts if part).strip()
