"""Objects of Slack's API, with the fields that the channel reads."""

import msgspec
from msgspec import Raw, Struct


class Identity(Struct, frozen=True, kw_only=True):
    """The owner of a token (`auth.test`)."""

    team_id: str
    user_id: str
    team: str = ""
    user: str = ""
    bot_id: str = ""


class SocketAddress(Struct, frozen=True):
    """Where to connect (`apps.connections.open`); the address contains a one-time ticket."""

    url: str


class Frame(Struct, frozen=True, kw_only=True):
    """What arrives over the socket: `hello`, `disconnect`, or an envelope."""

    type: str
    envelope_id: str = ""
    payload: Raw = Raw(b"null")
    accepts_response_payload: bool = False
    reason: str = ""
    num_connections: int = 0


class File(Struct, frozen=True, kw_only=True):
    id: str = ""
    name: str | None = ""
    mimetype: str = ""
    size: int = 0
    mode: str = ""
    subtype: str = ""
    duration_ms: int = 0
    url_private: str = ""
    url_private_download: str = ""
    file_access: str = ""


class Edited(Struct, frozen=True):
    ts: str = ""


class LegacyAttachment(Struct, frozen=True, kw_only=True):
    """A legacy attachment: a forwarded message, or what another app shows."""

    text: str | None = ""
    fallback: str | None = ""
    pretext: str | None = ""
    title: str | None = ""
    is_share: bool = False
    is_msg_unfurl: bool = False


class Message(Struct, frozen=True, kw_only=True):
    """A message, in events and in histories."""

    ts: str = ""
    subtype: str = ""
    channel: str = ""
    channel_type: str = ""
    user: str | None = ""
    bot_id: str | None = ""
    username: str | None = ""
    text: str | None = ""
    thread_ts: str = ""
    parent_user_id: str = ""
    latest_reply: str = ""
    files: tuple[File, ...] = ()
    attachments: tuple[LegacyAttachment, ...] = ()
    edited: Edited | None = None
    hidden: bool = False
    deleted_ts: str = ""
    message: "Message | None" = None
    previous_message: "Message | None" = None

    @property
    def author(self) -> str:
        """The user, or the bot if it has no user."""
        return self.user or self.bot_id or ""

    @property
    def from_bot(self) -> bool:
        return bool(self.bot_id) or self.subtype == "bot_message"


class ReactionItem(Struct, frozen=True, kw_only=True):
    type: str = ""
    channel: str = ""
    ts: str = ""


class ReactionEvent(Struct, frozen=True, kw_only=True):
    user: str = ""
    reaction: str = ""
    item: ReactionItem = ReactionItem()
    event_ts: str = ""


class AssistantThread(Struct, frozen=True, kw_only=True):
    user_id: str = ""
    channel_id: str = ""
    thread_ts: str = ""


class AssistantThreadEvent(Struct, frozen=True):
    assistant_thread: AssistantThread = AssistantThread()


class EventHeader(Struct, frozen=True, kw_only=True):
    """The kind of an event and where it happened."""

    type: str
    channel: Raw = Raw(b'""')
    item: ReactionItem = ReactionItem()

    @property
    def chat(self) -> str:
        # Some events have an object here; those are ignored.
        text = bytes(self.channel)
        own: str = msgspec.json.decode(text) if text.startswith(b'"') else ""
        return own or self.item.channel


class Authorization(Struct, frozen=True, kw_only=True):
    team_id: str | None = ""


class EventPayload(Struct, frozen=True, kw_only=True):
    """The payload of an `events_api` envelope; `event_id` is the same when it is sent again."""

    event_id: str
    event: Raw
    team_id: str = ""
    authorizations: tuple[Authorization, ...] = ()

    @property
    def teams(self) -> tuple[str, ...]:
        return (
            *(authorization.team_id or "" for authorization in self.authorizations),
            self.team_id,
        )


class NamedId(Struct, frozen=True, kw_only=True):
    id: str = ""
    name: str = ""
    username: str = ""


class ActionOption(Struct, frozen=True):
    value: str = ""


class Action(Struct, frozen=True, kw_only=True):
    """A pressed button or a chosen entry of a menu."""

    type: str = ""
    action_id: str = ""
    action_ts: str = ""
    value: str | None = ""
    selected_option: ActionOption | None = None

    @property
    def chosen(self) -> str:
        return (self.selected_option.value if self.selected_option else self.value) or ""


class Container(Struct, frozen=True, kw_only=True):
    channel_id: str = ""
    message_ts: str = ""
    thread_ts: str = ""


class Interaction(Struct, frozen=True, kw_only=True):
    """The payload of an `interactive` envelope."""

    type: str = ""
    user: NamedId = NamedId()
    team: NamedId | None = None
    channel: NamedId | None = None
    container: Container = Container()
    message: Message | None = None
    actions: tuple[Action, ...] = ()


class SlashCommand(Struct, frozen=True, kw_only=True):
    """The payload of a `slash_commands` envelope."""

    command: str
    text: str = ""
    team_id: str = ""
    channel_id: str = ""
    channel_name: str = ""
    user_id: str = ""
    user_name: str = ""
    trigger_id: str = ""


class Chat(Struct, frozen=True, kw_only=True):
    """A channel, a group, or direct messages."""

    id: str
    name: str = ""
    is_im: bool = False


class ChatResponse(Struct, frozen=True):
    channel: Chat


class Cursor(Struct, frozen=True):
    next_cursor: str = ""


class ChatPage(Struct, frozen=True, kw_only=True):
    channels: tuple[Chat, ...] = ()
    response_metadata: Cursor = Cursor()


class MessagePage(Struct, frozen=True, kw_only=True):
    messages: tuple[Message, ...] = ()
    response_metadata: Cursor = Cursor()


class Sent(Struct, frozen=True, kw_only=True):
    """A message that Slack accepted."""

    channel: str
    ts: str


class Profile(Struct, frozen=True):
    display_name: str = ""
    real_name: str = ""


class Person(Struct, frozen=True, kw_only=True):
    id: str = ""
    name: str = ""
    is_bot: bool = False
    profile: Profile = Profile()

    @property
    def shown_name(self) -> str:
        return self.profile.display_name or self.profile.real_name or self.name


class PersonResponse(Struct, frozen=True):
    user: Person


class FileResponse(Struct, frozen=True):
    file: File


class UploadTarget(Struct, frozen=True):
    """Where the bytes of a file go (`files.getUploadURLExternal`)."""

    upload_url: str
    file_id: str


class EmptyResult(Struct, frozen=True):
    """A result that is not used."""
