"""Turn Discord's events into inbound updates."""

import logging
from collections.abc import Sequence

from msgspec import Struct, structs

from hermes.channels.discord import DiscordOptions
from hermes.channels.discord.attached_files import FileReader, has_files
from hermes.channels.discord.chats import ChatDirectory
from hermes.channels.discord.message_text import (
    described,
    forwarded_text,
    mentions_inline,
    readable,
    written_text,
)
from hermes.channels.discord.objects import (
    WRITTEN_MESSAGES,
    Channel,
    ChannelType,
    Interaction,
    InteractionType,
    Member,
    Message,
    MessageDeleted,
    ReactionEvent,
    User,
    created_at,
)
from hermes.channels.discord.rest_api import RestApi
from hermes.channels.discord.threads import Threads
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    ChangedReaction,
    DeletedMessage,
    EditedMessage,
    Inbound,
    InboundDetails,
    NewMessage,
    NotSent,
    Offline,
    PressedButton,
    Throttled,
    UnknownOutcome,
)
from hermes.schema.messages import SENT_FILES_HEADER, Media, Text, quoted_text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

MAX_QUOTE = 4_000
MAX_EARLIER = 12_000
MAX_REMEMBERED = 5_000
MAX_MEMBERS = 1_000
ROLE_SECONDS = 60.0
"""Seconds for which fetched roles are cached; they may be revoked."""
_OPENS_THREADS = frozenset({ChannelType.TEXT, ChannelType.ANNOUNCEMENT})


class Origin(Struct, frozen=True, kw_only=True):
    """Where a message was written; `chat` is None for direct messages."""

    address: Address
    chat: Channel | None = None
    ids: frozenset[str] = frozenset()

    @property
    def is_direct(self) -> bool:
        return self.chat is None

    @property
    def is_thread(self) -> bool:
        return self.chat is not None and self.chat.is_thread

    def is_in(self, listed: Sequence[str]) -> bool:
        return not self.ids.isdisjoint(listed)


class _KnownRoles(Struct, frozen=True):
    ids: tuple[str, ...]
    until: float


class InboundBuilder:
    """Builds updates for the channel `name`; `bot` is the account itself."""

    def __init__(
        self,
        *,
        name: str,
        bot: User,
        api: RestApi,
        chats: ChatDirectory,
        threads: Threads,
        files: FileReader,
        options: DiscordOptions,
        clock: Clock,
    ) -> None:
        self._name = name
        self._bot = bot
        self._api = api
        self._chats = chats
        self._threads = threads
        self._files = files
        self._options = options
        self._clock = clock
        self._written: LruMap[str, Inbound] = LruMap(MAX_REMEMBERED)
        """Recent messages without their content: a deletion does not name the author."""
        self._roles: LruMap[tuple[str, str], _KnownRoles] = LruMap(MAX_MEMBERS)
        """By server and person."""

    async def message(self, message: Message, update: NewMessage | EditedMessage) -> Inbound | None:
        """Return the update, or None if the message is not for the bot."""
        author = message.author
        if author is None or author.id == self._bot.id or message.type not in WRITTEN_MESSAGES:
            return None
        origin = await self._origin(message.channel_id, message.guild_id)
        if origin is None or self._ignores(message, origin):
            return None
        mentioned = self._is_mentioned(message, origin)
        address = self._address(message, origin, mentioned=mentioned)
        new = isinstance(update, NewMessage)
        is_for_agent = mentioned or origin.is_direct or self._needs_no_mention(origin)
        replied = message.message_reference if message.type == 19 else None
        key = f"{self._bot.id}:{message.id}"
        inbound = Inbound(
            key if new else f"{key}:edit:{message.edited_timestamp}",
            address,
            author.id,
            (),
            reply_to=replied.message_id if replied else None,
            message=message.id,
            about=await self._about(message, origin, mentioned=mentioned),
            update=update,
            written_at=created_at(message.id),
        )
        if (
            is_for_agent
            and has_files(message)
            and (refused := await self._files.received.refused(inbound))
        ):
            return refused
        parts = await self._parts(
            message, origin, is_for_agent=is_for_agent, mentioned=mentioned and new
        )
        if not parts:
            return None
        self._written.put(message.id, inbound)
        return structs.replace(inbound, parts=tuple(parts))

    def deletion(self, deleted: MessageDeleted) -> Inbound | None:
        """Return the update, or None if the author of the message is unknown."""
        if (written := self._written.get(deleted.id)) is None:
            return None
        key = f"{self._bot.id}:{deleted.id}:delete"
        return structs.replace(written, key=key, update=DeletedMessage())

    async def reaction(self, event: ReactionEvent, key: str, *, removed: bool) -> Inbound | None:
        if event.user_id == self._bot.id or not event.emoji.name:
            return None
        origin = await self._origin(event.channel_id, event.guild_id)
        if origin is None or origin.is_in(self._options.ignored_channels):
            return None
        user = event.member.user if event.member is not None else None
        address = origin.address
        if (
            not origin.is_direct
            and not origin.is_thread
            and self._threads.begins_with(event.message_id)
        ):
            address = structs.replace(address, thread=event.message_id)
        return Inbound(
            f"{self._bot.id}:{key}",
            address,
            event.user_id,
            (),
            message=event.message_id,
            about=InboundDetails(
                chat_type="dm" if origin.is_direct else "group",
                chat_name=_chat_name(origin),
                guild=event.guild_id,
                user_name=user.name if user is not None else "",
                bot=user is not None and user.bot,
                roles=event.member.roles if event.member is not None else (),
            ),
            update=ChangedReaction(event.emoji.name, removed),
        )

    async def interaction(self, event: Interaction) -> Inbound | None:
        """Return the update for a listed command, a pressed button or a chosen entry."""
        person = event.person
        if person is None or not event.channel_id:
            return None
        if event.channel is not None:
            self._chats.add(structs.replace(event.channel, guild_id=event.guild_id))
        origin = await self._origin(event.channel_id, event.guild_id)
        if origin is None:
            return None
        about = InboundDetails(
            chat_type="dm" if origin.is_direct else "group",
            chat_name=_chat_name(origin),
            guild=event.guild_id,
            user_name=person.name,
            bot=person.bot,
            mentions=True,
            roles=await self._roles_of(person.id, event.guild_id, event.member),
        )
        key = f"{self._bot.id}:interaction:{event.id}"
        data = event.data
        if event.type == InteractionType.COMMAND:
            if origin.is_in(self._options.ignored_channels):
                return None
            words = [str(option.value) for option in data.options if option.value is not None]
            text = Text(" ".join([f"/{data.name}", *words]))
            return Inbound(key, origin.address, person.id, (text,), about=about)
        if event.type == InteractionType.COMPONENT and event.message is not None:
            value = data.values[0] if data.values else data.custom_id
            return Inbound(
                key,
                origin.address,
                person.id,
                (),
                message=event.message.id,
                about=about,
                update=PressedButton(value),
            )
        return None

    async def _origin(self, channel: str, guild: str) -> Origin | None:
        if not guild:
            self._chats.add(Channel(id=channel, type=ChannelType.DM))
            return Origin(address=Address(self._name, channel))
        chat = await self._chats.find(channel)
        if chat is None:
            return None
        if not chat.is_thread or not chat.parent_id:
            return Origin(address=Address(self._name, channel), chat=chat, ids=frozenset({channel}))
        return Origin(
            address=Address(self._name, chat.parent_id, channel),
            chat=chat,
            ids=frozenset({channel, chat.parent_id, f"{chat.parent_id}:{channel}"}),
        )

    def _ignores(self, message: Message, origin: Origin) -> bool:
        if origin.is_direct:
            return False
        if origin.is_in(self._options.ignored_channels):
            return True
        others = [user for user in message.mentions if user.id != self._bot.id]
        if not others or self._names_bot(message):
            return False
        if all(user.bot for user in others):
            return True
        return self._options.ignore_no_mention and not self._is_free(origin)

    def _is_free(self, origin: Origin) -> bool:
        return origin.is_in(self._options.free_response_channels)

    def _needs_no_mention(self, origin: Origin) -> bool:
        return not self._options.require_mention or self._is_free(origin)

    def _names_bot(self, message: Message) -> bool:
        """Whether the message mentions the bot, or replies to one of its posts."""
        if any(user.id == self._bot.id for user in message.mentions):
            return True
        replied = message.referenced_message
        author = replied.author if replied is not None else None
        return mentions_inline(message, self._bot) or (
            author is not None and author.id == self._bot.id
        )

    def _is_mentioned(self, message: Message, origin: Origin) -> bool:
        if message.from_bot and self._options.bots_require_inline_mention:
            return mentions_inline(message, self._bot)
        if self._names_bot(message):
            return True
        # Further bots in a thread would answer each other forever.
        return (
            origin.chat is not None
            and origin.is_thread
            and not message.from_bot
            and not self._options.thread_require_mention
            and self._threads.takes_part(origin.chat, self._bot.id)
        )

    def _address(self, message: Message, origin: Origin, *, mentioned: bool) -> Address:
        """Return the address of the conversation; a mention in a channel opens a thread."""
        if origin.chat is None or origin.is_thread:
            return origin.address
        options = self._options
        opens = (
            options.auto_thread
            and mentioned
            and origin.chat.type in _OPENS_THREADS
            and message.message_reference is None
            and not origin.is_in(options.no_thread_channels)
            and not self._is_free(origin)
        )
        if opens:
            self._threads.expect(message.id, written_text(message, self._bot))
        if opens or self._threads.begins_with(message.id):
            return structs.replace(origin.address, thread=message.id)
        return origin.address

    async def _about(self, message: Message, origin: Origin, *, mentioned: bool) -> InboundDetails:
        author = message.author
        return InboundDetails(
            chat_type="dm" if origin.is_direct else "group",
            chat_name=_chat_name(origin),
            chat_topic=(origin.chat.name or "") if origin.chat and origin.is_thread else "",
            guild=message.guild_id,
            user_name=message.author_name,
            bot=message.from_bot,
            mentions=mentioned,
            roles=await self._roles_of(
                author.id if author else "", message.guild_id, message.member
            ),
        )

    async def _roles_of(self, user: str, guild: str, member: Member | None) -> tuple[str, ...]:
        """Return the roles in the server; for direct messages, in the server of the settings."""
        if member is not None:
            return member.roles
        guild = guild or self._options.dm_role_auth_guild
        if not self._options.allowed_roles or not guild or not user:
            return ()
        now = self._clock.monotonic()
        known = self._roles.get((guild, user))
        if known is not None and now < known.until:
            return known.ids
        try:
            roles = (await self._api.member(guild, user)).roles
        except (Offline, Throttled):
            # Without roles, the message would be rejected for good.
            raise
        except NotSent as error:
            log.info("%s is not known in server %s: %s", user, guild, error)
            roles = ()
        self._roles.put((guild, user), _KnownRoles(roles, now + ROLE_SECONDS))
        return roles

    async def _parts(
        self, message: Message, origin: Origin, *, is_for_agent: bool, mentioned: bool
    ) -> list[Text | Media]:
        """Return the sender's text, then files, then what others wrote, marked as quoted."""
        typed = written_text(message, self._bot) or described(message)
        # Files of conversations between other people are not downloaded.
        files = await self._files.parts(message) if is_for_agent else []
        others: list[Text | Media] = []
        if forwarded := forwarded_text(message):
            typed = typed or "(forwarded message)"
            others.append(Text(quoted_text("", forwarded[:MAX_QUOTE])))
        if quote := self._quote(message):
            others.append(Text(quote))
        if mentioned and (earlier := await self._earlier(message, origin)):
            others.append(Text(earlier))
        if not typed and not files:
            if not self._names_bot(message):
                return []
            typed = "(no text)"  # a bare mention counts as a question
        # The first part is always the sender's text, never an attachment.
        if not typed and (others or _is_attachment(files[0])):
            typed = "(no text)"
        return [*([Text(typed)] if typed else []), *files, *others]

    def _quote(self, message: Message) -> str:
        """Return the message of someone else that this one replies to, marked as quoted."""
        replied = message.referenced_message
        if replied is None or replied.author is None:
            return ""
        if replied.author.id in {self._bot.id, message.author and message.author.id}:
            return ""
        text = readable(replied.content, replied.mentions) or described(replied)
        return quoted_text(replied.author_name, text[:MAX_QUOTE]) if text else ""

    async def _earlier(self, message: Message, origin: Origin) -> str:
        """Return the messages since the bot's last post, which it did not receive."""
        options = self._options
        sees_all = (
            origin.chat is None
            or self._needs_no_mention(origin)
            or (origin.is_thread and self._threads.takes_part(origin.chat, self._bot.id))
        )
        if sees_all or not options.history_backfill or options.history_backfill_limit <= 0:
            return ""
        try:
            found = await self._api.messages(
                message.channel_id, before=message.id, limit=options.history_backfill_limit
            )
        except (NotSent, UnknownOutcome) as error:
            log.info("earlier messages cannot be read: %s", error)
            return ""
        lines: list[str] = []
        for earlier in reversed(found):
            if earlier.author is not None and earlier.author.id == self._bot.id:
                break
            if earlier.type in WRITTEN_MESSAGES and (earlier.content or earlier.embeds):
                text = readable(earlier.content, earlier.mentions) or described(earlier)
                lines.append(f"{earlier.author_name}: {text}")
        text = "\n".join(reversed(lines))[-MAX_EARLIER:]
        return quoted_text(f"earlier messages in #{_chat_name(origin)}", text) if text else ""


def _is_attachment(part: Text | Media) -> bool:
    return isinstance(part, Text) and part.text.startswith(SENT_FILES_HEADER)


def _chat_name(origin: Origin) -> str:
    return (origin.chat.name or "") if origin.chat is not None else ""
