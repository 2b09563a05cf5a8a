"""The parts of Matrix's events and answers that the channel reads."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct, field

from hermes.kit.json_errors import JSON_ERRORS

T = TypeVar("T")

NO_CONTENT = Raw(b"{}")
ABSENT = Raw(b"null")


class ThreadSummary(Struct, frozen=True, kw_only=True):
    current_user_participated: bool = False


class BundledRelations(Struct, frozen=True, kw_only=True):
    thread: ThreadSummary | None = field(default=None, name="m.thread")


class MemberContent(Struct, frozen=True, kw_only=True):
    membership: str = ""
    displayname: str | None = None
    is_direct: bool = False


class Unsigned(Struct, frozen=True, kw_only=True):
    """Data added by the server; `redacted_because` is set if the event was deleted."""

    relations: BundledRelations = field(default=BundledRelations(), name="m.relations")
    redacted_because: object = None
    prev_content: MemberContent | None = None
    transaction_id: str = ""


class Event(Struct, frozen=True, kw_only=True):
    """An event of a room, which has an `event_id`, or of a device."""

    kind: str = field(name="type")
    sender: str = ""
    event_id: str = ""
    origin_server_ts: int = 0
    state_key: str | None = None
    redacts: object = None
    content: Raw = NO_CONTENT
    unsigned: Raw = NO_CONTENT

    def read(self, content: type[T]) -> T:
        """Raises `MsgspecError` if the content is not of that kind."""
        return msgspec.json.decode(self.content, type=content)

    @property
    def notes(self) -> Unsigned:
        """The data added by the server, as far as it can be read."""
        try:
            return msgspec.json.decode(self.unsigned, type=Unsigned)
        except JSON_ERRORS:
            return Unsigned()


class InReplyTo(Struct, frozen=True, kw_only=True):
    event_id: str = ""


class Relation(Struct, frozen=True, kw_only=True):
    rel_type: str = ""
    event_id: str = ""
    key: str = ""
    in_reply_to: InReplyTo | None = field(default=None, name="m.in_reply_to")
    is_falling_back: bool = False

    @property
    def thread(self) -> str:
        return self.event_id if self.rel_type == "m.thread" else ""

    @property
    def replied(self) -> str:
        """The event that the person replies to; thread events also name one, for old clients."""
        if self.in_reply_to is None or (self.thread and self.is_falling_back):
            return ""
        return self.in_reply_to.event_id


class Related(Struct, frozen=True, kw_only=True):
    """The part of an event's content that is never encrypted."""

    relates_to: Relation | None = field(default=None, name="m.relates_to")


class Mentions(Struct, frozen=True, kw_only=True):
    user_ids: tuple[str, ...] = ()
    room: bool = False


class JsonWebKey(Struct, frozen=True, kw_only=True):
    k: str


class EncryptedFile(Struct, frozen=True, kw_only=True):
    url: str
    key: JsonWebKey
    iv: str
    hashes: Mapping[str, str]


class FileInfo(Struct, frozen=True, kw_only=True):
    mimetype: str = ""
    size: int = 0
    duration: int = 0


class MessageContent(Struct, frozen=True, kw_only=True):
    """The content of a message or sticker."""

    msgtype: str = ""
    body: str = ""
    formatted_body: str = ""
    filename: str = ""
    url: str = ""
    file: EncryptedFile | None = None
    info: FileInfo = FileInfo()
    voice: object = field(default=None, name="org.matrix.msc3245.voice")
    mentions: Mentions | None = field(default=None, name="m.mentions")
    relates_to: Relation | None = field(default=None, name="m.relates_to")
    new_content: Raw = field(default=ABSENT, name="m.new_content")


class EncryptedContent(Struct, frozen=True, kw_only=True):
    algorithm: str = ""
    ciphertext: Raw = Raw(b'""')
    session_id: str = ""
    sender_key: str = ""
    device_id: str = ""
    relates_to: Raw = field(default=ABSENT, name="m.relates_to")


class Redaction(Struct, frozen=True, kw_only=True):
    redacts: str = ""


class Timeline(Struct, frozen=True, kw_only=True):
    events: tuple[Event, ...] = ()
    limited: bool = False
    prev_batch: str = ""


class Events(Struct, frozen=True, kw_only=True):
    events: tuple[Event, ...] = ()


class JoinedRoom(Struct, frozen=True, kw_only=True):
    timeline: Timeline = Timeline()
    state: Events = Events()


class InvitedRoom(Struct, frozen=True, kw_only=True):
    invite_state: Events = Events()


class LeftRoom(Struct, frozen=True, kw_only=True):
    timeline: Timeline = Timeline()


class SyncRooms(Struct, frozen=True, kw_only=True):
    join: dict[str, JoinedRoom] = {}
    invite: dict[str, InvitedRoom] = {}
    leave: dict[str, LeftRoom] = {}


class DeviceLists(Struct, frozen=True, kw_only=True):
    changed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class SyncAnswer(Struct, frozen=True, kw_only=True):
    next_batch: str
    rooms: SyncRooms = SyncRooms()
    to_device: Events = Events()
    account_data: Events = Events()
    device_lists: DeviceLists = DeviceLists()
    device_one_time_keys_count: dict[str, int] = {}


class EventPage(Struct, frozen=True, kw_only=True):
    chunk: tuple[Event, ...] = ()
    end: str = ""


class Login(Struct, frozen=True, kw_only=True):
    """Our user id and token at the server."""

    user_id: str
    device_id: str
    access_token: str = ""
