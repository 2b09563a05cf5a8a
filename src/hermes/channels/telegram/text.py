"""Read the text of a message: its entities, mentions of the bot, and quotes of others."""

import re
from collections.abc import Sequence

from msgspec import Struct

from hermes.channels.telegram.objects import Message, MessageEntity, User

_BOT_NAME = re.compile(r"@\w+bot", re.IGNORECASE)
"""Names of bots always end with `bot`."""


class Mentions(Struct, frozen=True):
    """Whether a message names the bot, and whether it names other bots."""

    own: bool = False
    other_bots: bool = False


def entity_text(text: str, entity: MessageEntity) -> str:
    units = text.encode("utf-16-le")
    part = units[2 * entity.offset : 2 * (entity.offset + entity.length)]
    return part.decode("utf-16-le", "replace")


def mentions_in(message: Message, bot: User) -> Mentions:
    """Look for `@name`, mentions without a name, and `/command@name`."""
    own = other = False
    name = f"@{bot.username}".lower()
    for entity in message.content_entities:
        match entity.type:
            case "mention":
                mention = entity_text(message.content, entity)
                own |= mention.lower() == name
                other |= mention.lower() != name and _BOT_NAME.fullmatch(mention) is not None
            case "text_mention":
                same = entity.user is not None and entity.user.id == bot.id
                own |= same
                other |= not same and entity.user is not None and entity.user.is_bot
            case "bot_command":
                _, at, named = entity_text(message.content, entity).partition("@")
                own |= f"@{named}".lower() == name
                other |= bool(at) and f"@{named}".lower() != name
            case _:
                continue
    return Mentions(own, other)


def written_text(message: Message, bot: User) -> str:
    """The text with the addresses of its links, without a mention of the bot at its start."""
    text = with_links(message.content, message.content_entities)
    bare = text.lstrip()
    name = f"@{bot.username}"
    if message.chat.type == "private" or not bare.lower().startswith(name.lower()):
        return text
    rest = bare[len(name) :]
    return rest.lstrip(" ,:\n") if not rest[:1].isalnum() and rest[:1] != "_" else text


def with_links(text: str, entities: Sequence[MessageEntity]) -> str:
    """Write links whose address is hidden as Markdown, so that the model sees the address."""
    units = text.encode("utf-16-le")
    links = [entity for entity in entities if entity.type == "text_link" and entity.url]
    for entity in sorted(links, key=lambda entity: entity.offset, reverse=True):
        start, end = 2 * entity.offset, 2 * (entity.offset + entity.length)
        label = units[start:end].decode("utf-16-le", "replace")
        link = f"[{label}]({entity.url})".encode("utf-16-le")
        units = units[:start] + link + units[end:]
    return units.decode("utf-16-le", "replace")


def described(message: Message) -> str:
    """Describe content that is neither text nor a file."""
    if message.sticker is not None:
        return f"(sticker {message.sticker.emoji})".replace(" )", ")")
    if message.location is not None:
        place = message.location
        return f"(location: {place.latitude}, {place.longitude})"
    if message.contact is not None:
        person = message.contact
        return (
            f"(contact: {person.first_name} {person.last_name}".rstrip()
            + f", {person.phone_number})"
        )
    if message.poll is not None:
        options = "; ".join(option.text for option in message.poll.options)
        return f"(poll: {message.poll.question} {options})"
    if message.dice is not None:
        return f"({message.dice.emoji} {message.dice.value})"
    return ""
