"""Objects of the Bot API that the channel reads; fields it does not use are left out."""

from msgspec import Struct, field


class User(Struct, frozen=True, kw_only=True):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""
    can_read_all_group_messages: bool = False
    can_join_groups: bool = True

    @property
    def full_name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip() or self.username


class Chat(Struct, frozen=True, kw_only=True):
    id: int
    type: str = "private"
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""
    is_forum: bool = False

    @property
    def name(self) -> str:
        return self.title or f"{self.first_name} {self.last_name}".strip() or self.username


class MessageEntity(Struct, frozen=True, kw_only=True):
    """A marked part of a text; offset and length count UTF-16 units."""

    type: str
    offset: int
    length: int
    url: str = ""
    user: User | None = None


class PhotoSize(Struct, frozen=True, kw_only=True):
    file_id: str
    width: int = 0
    height: int = 0
    file_size: int = 0


class FileObject(Struct, frozen=True, kw_only=True):
    """A document, voice note, audio file, video, video note or animation."""

    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int = 0
    duration: int = 0


class Sticker(Struct, frozen=True, kw_only=True):
    emoji: str = ""


class Location(Struct, frozen=True, kw_only=True):
    latitude: float
    longitude: float


class Contact(Struct, frozen=True, kw_only=True):
    phone_number: str
    first_name: str
    last_name: str = ""


class PollOption(Struct, frozen=True, kw_only=True):
    text: str


class Poll(Struct, frozen=True, kw_only=True):
    question: str
    options: tuple[PollOption, ...] = ()


class Dice(Struct, frozen=True, kw_only=True):
    emoji: str
    value: int


class Topic(Struct, frozen=True, kw_only=True):
    name: str = ""


class MessageOrigin(Struct, frozen=True, kw_only=True):
    """Where a forwarded message came from."""

    type: str = ""
    sender_user: User | None = None
    sender_user_name: str = ""
    sender_chat: Chat | None = None
    chat: Chat | None = None

    @property
    def name(self) -> str:
        if self.sender_user is not None:
            return self.sender_user.full_name
        chat = self.sender_chat or self.chat
        return chat.name if chat is not None else self.sender_user_name


class TextQuote(Struct, frozen=True, kw_only=True):
    text: str = ""


class Message(Struct, frozen=True, kw_only=True):
    message_id: int
    chat: Chat
    date: int = 0
    sender: User | None = field(default=None, name="from")
    sender_chat: Chat | None = None
    message_thread_id: int = 0
    is_topic_message: bool = False
    reply_to_message: "Message | None" = None
    quote: TextQuote | None = None
    forward_origin: MessageOrigin | None = None
    media_group_id: str = ""
    text: str = ""
    entities: tuple[MessageEntity, ...] = ()
    caption: str = ""
    caption_entities: tuple[MessageEntity, ...] = ()
    photo: tuple[PhotoSize, ...] = ()
    document: FileObject | None = None
    voice: FileObject | None = None
    audio: FileObject | None = None
    video: FileObject | None = None
    video_note: FileObject | None = None
    animation: FileObject | None = None
    sticker: Sticker | None = None
    location: Location | None = None
    contact: Contact | None = None
    poll: Poll | None = None
    dice: Dice | None = None
    forum_topic_created: Topic | None = None
    migrate_to_chat_id: int = 0

    @property
    def content(self) -> str:
        return self.text or self.caption

    @property
    def content_entities(self) -> tuple[MessageEntity, ...]:
        return self.entities if self.text else self.caption_entities

    @property
    def author(self) -> str:
        if self.sender_chat is not None:
            return self.sender_chat.name
        return self.sender.full_name if self.sender is not None else ""


class CallbackQuery(Struct, frozen=True, kw_only=True):
    id: str
    sender: User = field(name="from")
    message: Message | None = None
    data: str = ""


class ReactionType(Struct, frozen=True, kw_only=True):
    type: str
    emoji: str = ""


class MessageReaction(Struct, frozen=True, kw_only=True):
    chat: Chat
    message_id: int
    user: User | None = None
    actor_chat: Chat | None = None
    old_reaction: tuple[ReactionType, ...] = ()
    new_reaction: tuple[ReactionType, ...] = ()


class UpdateNumber(Struct, frozen=True, kw_only=True):
    update_id: int


class Update(UpdateNumber, frozen=True, kw_only=True):
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: CallbackQuery | None = None
    message_reaction: MessageReaction | None = None


ALLOWED_UPDATES = ("message", "edited_message", "callback_query", "message_reaction")


class File(Struct, frozen=True, kw_only=True):
    file_id: str
    file_size: int = 0
    file_path: str = ""


class WebhookInfo(Struct, frozen=True, kw_only=True):
    url: str = ""
    pending_update_count: int = 0
    last_error_date: int = 0
    last_error_message: str = ""


class ResponseParameters(Struct, frozen=True, kw_only=True):
    migrate_to_chat_id: int = 0
    retry_after: float = 0.0
