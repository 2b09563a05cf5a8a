"""Read the text of a message: mentions by name, what it shows besides text, what others wrote."""

import re
from collections.abc import Sequence

from hermes.channels.discord.objects import Embed, Message, User

_USER = re.compile(r"<@!?(\d+)>")
_EMOJI = re.compile(r"<a?(:\w+:)\d+>")
_LEADING_SIGNS = " ,:\n"


def written_text(message: Message, bot: User) -> str:
    """The text with names instead of ids, without a mention of the bot at its start."""
    text = message.content
    own = re.match(rf"\s*<@!?{bot.id}>", text)
    if own is not None:
        text = text[own.end() :].lstrip(_LEADING_SIGNS)
    return readable(text, (*message.mentions, bot))


def readable(text: str, people: Sequence[User]) -> str:
    names = {one.id: one.name for one in people}

    def name(found: re.Match[str]) -> str:
        known = names.get(found[1])
        return f"@{known}" if known else found[0]

    return _EMOJI.sub(r"\1", _USER.sub(name, text))


def mentions_inline(message: Message, bot: User) -> bool:
    """Whether the text itself names the bot; a reply to it does not."""
    return any(found == bot.id for found in _USER.findall(message.content))


def described(message: Message) -> str:
    """Content that is neither text nor a file, in words."""
    stickers = " ".join(f"(sticker {one.name})" for one in message.sticker_items)
    return stickers or embed_text(message.embeds)


def embed_text(embeds: Sequence[Embed]) -> str:
    lines = [
        " ".join(part for part in (one.title, one.description, one.url) if part) for one in embeds
    ]
    return "\n".join(line for line in lines if line)


def forwarded_text(message: Message) -> str:
    """What the message forwards."""
    parts = [one.message for one in message.message_snapshots]
    return "\n".join(one.content or embed_text(one.embeds) for one in parts).strip()
