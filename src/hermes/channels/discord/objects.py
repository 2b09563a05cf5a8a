"""The objects of Discord's HTTP API and gateway that the channel reads."""

from datetime import UTC, datetime, timedelta
from enum import IntEnum, IntFlag

from msgspec import Raw, Struct

EPOCH = datetime(2015, 1, 1, tzinfo=UTC)
NULL = Raw(b"null")


class ChannelType(IntEnum):
    TEXT = 0
    DM = 1
    VOICE = 2
    ANNOUNCEMENT = 5
    ANNOUNCEMENT_THREAD = 10
    PUBLIC_THREAD = 11
    PRIVATE_THREAD = 12
    STAGE = 13
    FORUM = 15
    MEDIA = 16


THREADS = frozenset(
    {ChannelType.ANNOUNCEMENT_THREAD, ChannelType.PUBLIC_THREAD, ChannelType.PRIVATE_THREAD}
)
FORUMS = frozenset({ChannelType.FORUM, ChannelType.MEDIA})
WRITTEN_MESSAGES = frozenset({0, 19})
"""Types of messages that people write: ordinary ones and replies."""


class MessageFlag(IntFlag):
    SUPPRESS_EMBEDS = 1 << 2
    EPHEMERAL = 1 << 6
    VOICE = 1 << 13


class ApplicationFlag(IntFlag):
    """Privileged intents that the owner has enabled; `LIMITED` applies to bots in few servers."""

    MEMBERS = 1 << 14
    MEMBERS_LIMITED = 1 << 15
    MESSAGE_CONTENT = 1 << 18
    MESSAGE_CONTENT_LIMITED = 1 << 19


class Intent(IntFlag):
    GUILDS = 1 << 0
    GUILD_MESSAGES = 1 << 9
    GUILD_REACTIONS = 1 << 10
    DIRECT_MESSAGES = 1 << 12
    DIRECT_REACTIONS = 1 << 13
    MESSAGE_CONTENT = 1 << 15


class InteractionType(IntEnum):
    COMMAND = 2
    COMPONENT = 3


class User(Struct, frozen=True, kw_only=True):
    id: str
    username: str = ""
    global_name: str | None = None
    bot: bool = False

    @property
    def name(self) -> str:
        return self.global_name or self.username


class Member(Struct, frozen=True, kw_only=True):
    user: User | None = None
    nick: str | None = None
    roles: tuple[str, ...] = ()


class Channel(Struct, frozen=True, kw_only=True):
    """A channel, thread or direct message.

    `owner_id` is who opened the thread; `member` is only set if the bot has joined it.
    """

    id: str
    type: int
    guild_id: str = ""
    name: str | None = None
    parent_id: str | None = None
    owner_id: str | None = None
    last_message_id: str | None = None
    member: Raw | None = None

    @property
    def is_thread(self) -> bool:
        return self.type in THREADS

    @property
    def is_forum(self) -> bool:
        return self.type in FORUMS


class AttachmentObject(Struct, frozen=True, kw_only=True):
    id: str
    filename: str
    url: str
    size: int = 0
    content_type: str = ""
    duration_secs: float = 0.0


class Embed(Struct, frozen=True, kw_only=True):
    title: str = ""
    description: str = ""
    url: str = ""


class Sticker(Struct, frozen=True, kw_only=True):
    name: str = ""


class MessageReference(Struct, frozen=True, kw_only=True):
    """What a message replies to (type 0) or forwards (type 1)."""

    type: int = 0
    message_id: str = ""


class Snapshot(Struct, frozen=True, kw_only=True):
    """The content of a forwarded message."""

    content: str = ""
    attachments: tuple[AttachmentObject, ...] = ()
    embeds: tuple[Embed, ...] = ()


class SnapshotHolder(Struct, frozen=True, kw_only=True):
    message: Snapshot = Snapshot()


class Message(Struct, frozen=True, kw_only=True):
    """A message; an update of one may lack the author and the content."""

    id: str
    channel_id: str
    guild_id: str = ""
    author: User | None = None
    member: Member | None = None
    content: str = ""
    type: int = 0
    edited_timestamp: str | None = None
    mentions: tuple[User, ...] = ()
    mention_roles: tuple[str, ...] = ()
    attachments: tuple[AttachmentObject, ...] = ()
    embeds: tuple[Embed, ...] = ()
    sticker_items: tuple[Sticker, ...] = ()
    message_reference: MessageReference | None = None
    referenced_message: "Message | None" = None
    message_snapshots: tuple[SnapshotHolder, ...] = ()
    webhook_id: str = ""
    flags: int = 0

    @property
    def author_name(self) -> str:
        nick = self.member.nick if self.member is not None else None
        return nick or (self.author.name if self.author is not None else "")

    @property
    def from_bot(self) -> bool:
        return bool(self.webhook_id) or (self.author is not None and self.author.bot)


class MessageDeleted(Struct, frozen=True, kw_only=True):
    id: str
    channel_id: str
    guild_id: str = ""


class Emoji(Struct, frozen=True, kw_only=True):
    name: str | None = None
    id: str | None = None


class ReactionEvent(Struct, frozen=True, kw_only=True):
    user_id: str
    channel_id: str
    message_id: str
    emoji: Emoji
    guild_id: str = ""
    member: Member | None = None


class CommandOption(Struct, frozen=True, kw_only=True):
    name: str
    value: str | int | float | bool | None = None


class InteractionData(Struct, frozen=True, kw_only=True):
    """A command with its options, or a component with its values."""

    name: str = ""
    options: tuple[CommandOption, ...] = ()
    custom_id: str = ""
    values: tuple[str, ...] = ()


class Interaction(Struct, frozen=True, kw_only=True):
    id: str
    type: int
    token: str
    channel_id: str = ""
    guild_id: str = ""
    channel: Channel | None = None
    member: Member | None = None
    user: User | None = None
    data: InteractionData = InteractionData()
    message: Message | None = None

    @property
    def person(self) -> User | None:
        return self.user or (self.member.user if self.member is not None else None)


class Guild(Struct, frozen=True, kw_only=True):
    """A server as the gateway describes it after connecting."""

    id: str
    name: str = ""
    channels: tuple[Channel, ...] = ()
    threads: tuple[Channel, ...] = ()


class Ready(Struct, frozen=True, kw_only=True):
    session_id: str
    resume_gateway_url: str
    user: User


class Frame(Struct, frozen=True, kw_only=True):
    """One message of the gateway."""

    op: int
    d: Raw = NULL
    s: int | None = None
    t: str | None = None


class Application(Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""
    flags: int = 0
    bot_public: bool = True

    @property
    def reads_messages(self) -> bool:
        wanted = ApplicationFlag.MESSAGE_CONTENT | ApplicationFlag.MESSAGE_CONTENT_LIMITED
        return bool(self.flags & wanted)


class SessionStartLimit(Struct, frozen=True, kw_only=True):
    remaining: int = 1
    reset_after: int = 0


class GatewayInfo(Struct, frozen=True, kw_only=True):
    url: str
    session_start_limit: SessionStartLimit = SessionStartLimit()


def created_at(snowflake: str) -> datetime:
    """When something with that id was created."""
    return EPOCH + timedelta(milliseconds=int(snowflake) >> 22)


def snowflake_at(moment: datetime) -> int:
    """Return the smallest possible id of an object created at that moment."""
    return max(0, int((moment - EPOCH) / timedelta(milliseconds=1))) << 22
