"""Objects of QQ's bot API, with the fields that the channel reads."""

from enum import StrEnum

from msgspec import Raw, Struct

DISPATCH, HEARTBEAT, IDENTIFY, RESUME = 0, 1, 2, 6
RECONNECT, INVALID_SESSION, HELLO, HEARTBEAT_ACK = 7, 9, 10, 11


class ChatKind(StrEnum):
    """Kinds of chats; each has its own path in the API and its own limits."""

    USER = "user"
    GROUP = "group"
    CHANNEL = "channel"
    """A text channel of a guild."""
    DIRECT = "direct"
    """A direct message of a guild's member; its chat is the id of a guild of its own."""

    @property
    def in_guild(self) -> bool:
        return self in {ChatKind.CHANNEL, ChatKind.DIRECT}


class Frame(Struct, frozen=True, kw_only=True):
    """What the websocket sends."""

    op: int
    s: int | None = None
    t: str | None = None
    d: Raw = Raw(b"null")


class Hello(Struct, frozen=True, kw_only=True):
    heartbeat_interval: int = 45_000
    """Milliseconds."""


class User(Struct, frozen=True, kw_only=True):
    id: str = ""
    username: str = ""


class Ready(Struct, frozen=True, kw_only=True):
    session_id: str
    user: User = User()


class Author(Struct, frozen=True, kw_only=True):
    """Which ids are set depends on the kind of chat."""

    id: str = ""
    user_openid: str = ""
    member_openid: str = ""
    username: str = ""
    bot: bool = False


class ReceivedFile(Struct, frozen=True, kw_only=True):
    url: str = ""
    filename: str = ""
    content_type: str = ""
    size: int = 0
    voice_wav_url: str = ""
    asr_refer_text: str = ""
    """The result of QQ's speech recognition."""


class Message(Struct, frozen=True, kw_only=True):
    id: str
    content: str = ""
    author: Author = Author()
    group_openid: str = ""
    channel_id: str = ""
    guild_id: str = ""
    timestamp: str = ""
    attachments: tuple[ReceivedFile, ...] | None = None


class Deletion(Struct, frozen=True, kw_only=True):
    message: Message


class Resolved(Struct, frozen=True, kw_only=True):
    button_data: str = ""
    user_id: str = ""
    message_id: str = ""


class InteractionData(Struct, frozen=True, kw_only=True):
    resolved: Resolved = Resolved()


class Interaction(Struct, frozen=True, kw_only=True):
    """Someone pressed a button."""

    id: str
    chat_type: int = 0
    user_openid: str = ""
    group_openid: str = ""
    group_member_openid: str = ""
    channel_id: str = ""
    guild_id: str = ""
    data: InteractionData = InteractionData()


class AccessToken(Struct, frozen=True, kw_only=True):
    """The seconds are sometimes a text."""

    access_token: str = ""
    expires_in: int | str = 0
    message: str = ""


class Gateway(Struct, frozen=True, kw_only=True):
    url: str


class SentMessage(Struct, frozen=True, kw_only=True):
    id: str = ""


class UploadedFile(Struct, frozen=True, kw_only=True):
    file_info: str = ""
