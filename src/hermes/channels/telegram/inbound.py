"""Turn updates of the Bot API into inbound updates."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from hermes.channels.telegram.attached_files import FileReader, attached_files
from hermes.channels.telegram.objects import CallbackQuery, Chat, Message, MessageReaction, Update
from hermes.channels.telegram.objects import User as TelegramUser
from hermes.channels.telegram.text import Mentions, described, mentions_in, written_text
from hermes.channels.written_at import time_at
from hermes.ports.channel import (
    ChangedReaction,
    EditedMessage,
    Inbound,
    InboundDetails,
    NewMessage,
    PressedButton,
)
from hermes.schema.messages import SENT_FILES_HEADER, Media, Text, quoted_text
from hermes.schema.scope import Address

GENERAL_TOPIC = "1"
MAX_QUOTE = 4_000


class GroupFilter(Struct, frozen=True, kw_only=True):
    """Which messages of groups are ignored, and what counts as a mention besides the name."""

    patterns: tuple[re.Pattern[str], ...] = ()
    exclusive_mentions: bool = True
    allowed_topics: frozenset[str] = frozenset()
    ignored_topics: frozenset[str] = frozenset()

    def ignores(self, thread: str | None, mentions: Mentions) -> bool:
        topic = thread or GENERAL_TOPIC
        if self.allowed_topics and topic not in self.allowed_topics:
            return True
        if topic in self.ignored_topics:
            return True
        return self.exclusive_mentions and mentions.other_bots and not mentions.own

    def is_called(self, text: str) -> bool:
        return any(pattern.search(text) for pattern in self.patterns)


class InboundBuilder:
    """Builds updates for the channel `name`; `bot` is the account itself."""

    def __init__(
        self, *, name: str, bot: TelegramUser, files: FileReader, groups: GroupFilter
    ) -> None:
        self._name = name
        self._bot = bot
        self._files = files
        self._groups = groups

    async def build(self, updates: Sequence[Update]) -> list[Inbound]:
        """Return what one update means, or the updates of one album."""
        first = updates[0]
        key = f"{self._bot.id}:{first.update_id}"
        if first.message is not None:
            messages = [update.message for update in updates if update.message is not None]
            return await self._message(key, messages, NewMessage())
        if first.edited_message is not None:
            return await self._message(key, [first.edited_message], EditedMessage())
        if first.callback_query is not None:
            return [*self._press(key, first.callback_query)]
        if first.message_reaction is not None:
            return [*self._reactions(key, first.message_reaction)]
        return []

    async def _message(
        self, key: str, messages: Sequence[Message], update: NewMessage | EditedMessage
    ) -> list[Inbound]:
        message = messages[0]
        address = self._address(message.chat, message)
        sender, is_bot = _sender(message)
        if not sender or sender == str(self._bot.id):
            return []
        named = [mentions_in(message, self._bot) for message in messages]
        mentions = Mentions(
            any(found.own for found in named), any(found.other_bots for found in named)
        )
        direct = message.chat.type == "private"
        if not direct and self._groups.ignores(address.thread, mentions):
            return []
        replied = _replied_to(message)
        mentioned = (
            mentions.own
            or (replied is not None and replied.sender is not None
                and replied.sender.id == self._bot.id)
            or any(self._groups.is_called(message.content) for message in messages)
        )  # fmt: skip
        inbound = Inbound(
            key,
            address,
            sender,
            (),
            reply_to=str(replied.message_id) if replied is not None else None,
            message=str(message.message_id),
            about=_details(message, bot=is_bot, mentions=mentioned),
            update=update,
            written_at=time_at(message.date),
        )
        if any(any(attached_files(one)) for one in messages) and (
            refused := await self._files.received.refused(inbound)
        ):
            return [refused]
        parts = await self._parts(messages, replied)
        return [structs.replace(inbound, parts=tuple(parts))] if parts else []

    async def _parts(
        self, messages: Sequence[Message], replied: Message | None
    ) -> list[Text | Media]:
        """Return the sender's text, then files, then what others wrote, marked as quoted."""
        typed: list[str] = []
        files: list[Text | Media] = []
        others: list[Text | Media] = []
        for message in messages:
            text = written_text(message, self._bot) or described(message)
            origin = message.forward_origin
            if origin is not None and not _is_own_forward(message):
                typed.append(f"(forwarded from {origin.name or 'someone'})")
                others += [Text(quoted_text(origin.name, text))] if text else []
            elif text:
                typed.append(text)
            files += await self._files.parts(message)
        if replied is not None and (quote := self._quote(messages[0], replied)):
            others.append(Text(quote))
        if not typed and not files:
            return []
        # The first part is always the sender's text, never an attachment.
        if not typed and (others or _is_attachment(files[0])):
            typed.append("(no text)")
        return [*([Text("\n".join(typed))] if typed else []), *files, *others]

    def _quote(self, message: Message, replied: Message) -> str:
        """Return the quoted part of the replied message, or another sender's whole text."""
        own = replied.sender is not None and replied.sender.id == self._bot.id
        if message.quote is not None and message.quote.text:
            text = message.quote.text
        elif own or replied.sender == message.sender:
            return ""
        else:
            text = replied.content or described(replied)
        return quoted_text(replied.author, text[:MAX_QUOTE]) if text else ""

    def _press(self, key: str, query: CallbackQuery) -> Iterator[Inbound]:
        message = query.message
        if message is None:
            return
        yield Inbound(
            key,
            self._address(message.chat, message),
            str(query.sender.id),
            (),
            message=str(message.message_id),
            about=InboundDetails(
                chat_type=_chat_type(message.chat),
                chat_name=message.chat.name,
                user_name=query.sender.full_name,
                bot=query.sender.is_bot,
                mentions=True,
            ),
            update=PressedButton(query.data),
        )

    def _reactions(self, key: str, changed: MessageReaction) -> Iterator[Inbound]:
        user = changed.user
        if user is None:
            return
        old = {reaction.emoji for reaction in changed.old_reaction if reaction.emoji}
        new = {reaction.emoji for reaction in changed.new_reaction if reaction.emoji}
        changes = [(emoji, False) for emoji in sorted(new - old)]
        changes += [(emoji, True) for emoji in sorted(old - new)]
        for number, (emoji, removed) in enumerate(changes):
            yield Inbound(
                f"{key}:{number}",
                Address(self._name, str(changed.chat.id)),
                str(user.id),
                (),
                message=str(changed.message_id),
                about=InboundDetails(
                    chat_type=_chat_type(changed.chat),
                    chat_name=changed.chat.name,
                    user_name=user.full_name,
                    bot=user.is_bot,
                ),
                update=ChangedReaction(emoji, removed),
            )

    def _address(self, chat: Chat, message: Message) -> Address:
        return Address(self._name, str(chat.id), thread_of(chat, message))


def _is_attachment(part: Text | Media) -> bool:
    return isinstance(part, Text) and part.text.startswith(SENT_FILES_HEADER)


def thread_of(chat: Chat, message: Message) -> str | None:
    """Return the topic of a message; without topics, a thread is only a chain of replies."""
    if message.is_topic_message and message.message_thread_id:
        return str(message.message_thread_id)
    return GENERAL_TOPIC if chat.is_forum and chat.type == "supergroup" else None


def _replied_to(message: Message) -> Message | None:
    """Messages in a topic formally reply to the message that opened the topic."""
    replied = message.reply_to_message
    return replied if replied is not None and replied.forum_topic_created is None else None


def _sender(message: Message) -> tuple[str, bool]:
    """The sender's id, and whether it is a bot. Anonymous administrators write as their group."""
    if message.sender_chat is not None:
        return str(message.sender_chat.id), False
    if message.sender is None:
        return "", False
    return str(message.sender.id), message.sender.is_bot


def _is_own_forward(message: Message) -> bool:
    origin = message.forward_origin
    return (
        origin is not None
        and origin.sender_user is not None
        and message.sender is not None
        and origin.sender_user.id == message.sender.id
    )


def _details(message: Message, *, bot: bool, mentions: bool) -> InboundDetails:
    opened = message.reply_to_message and message.reply_to_message.forum_topic_created
    return InboundDetails(
        chat_type=_chat_type(message.chat),
        chat_name=message.chat.name,
        chat_topic=opened.name if opened else "",
        user_name=message.author,
        bot=bot,
        mentions=mentions,
    )


def _chat_type(chat: Chat) -> str:
    return "dm" if chat.type == "private" else "group"
