"""Read the text of a message: names for mentions, other content in words, and what it forwards."""

import re
from collections.abc import Sequence

from hermes.channels.discord.objects import Embed, Message, User

_USER = re.compile(r"<@!?(\d+)>")
_EMOJI = re.compile(r"<a?(:\w+:)\d+>")
_LEADING_PUNCTUATION = " ,:\n"


def written_text(message: Message, bot: User) -> str:
    """Return the text with names instead of ids, without a mention of the bot at its start."""
    text = message.content
    own = re.match(rf"\s*<@!?{bot.id}>", text)
    if own is not None:
        text = text[own.end() :].lstrip(_LEADING_PUNCTUATION)
    return readable(text, (*message.mentions, bot))


def readable(text: str, people: Sequence[User]) -> str:
    names = {user.id: user.name for user in people}

    def name(found: re.Match[str]) -> str:
        known = names.get(found[1])
        return f"@{known}" if known else found[0]

    return _EMOJI.sub(r"\1", _USER.sub(name, text))


def mentions_inline(message: Message, bot: User) -> bool:
    """Whether the text itself mentions the bot; a reply to the bot does not count."""
    return any(found == bot.id for found in _USER.findall(message.content))


def described(message: Message) -> str:
    """Describe content that is neither text nor a file."""
    stickers = " ".join(f"(sticker {sticker.name})" for sticker in message.sticker_items)
    return stickers or embed_text(message.embeds)


def embed_text(embeds: Sequence[Embed]) -> str:
    lines = [
        " ".join(part for part in (embed.title, embed.description, embed.url) if part)
        for embed in embeds
    ]
    return "\n".join(line for line in lines if line)


def forwarded_text(message: Message) -> str:
    """Return the text that the message forwards."""
    parts = [snapshot.message for snapshot in message.message_snapshots]
    return "\n".join(part.content or embed_text(part.embeds) for part in parts).strip()
