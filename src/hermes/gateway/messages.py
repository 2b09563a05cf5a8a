"""What lies in the inbox and the outbox of a chat, and how it gets its name there."""

from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from hermes.commands.surface import BusyMode
from hermes.ports.store import AmendItem, EnqueueItem, QueueItem
from hermes.schema.messages import Trust, User
from hermes.schema.scope import OWNER, Address, Requester, Role, platform_of
from hermes.session.keys import ChatId

INBOX = "inbox"
COMMANDS = "commands"
CHAT_KEY_PREFIX = "agent:"
"""How the topics of chat sessions begin; other rows of the inbox are somebody else's."""


class Admitted(Struct, frozen=True, kw_only=True):
    """Somebody may speak: in which session, as whom, and with which commands (None: all).

    `place` is what the key was made of, where that is known. Without `stops_others` only what
    they have asked themselves is theirs to stop.
    """

    key: str
    place: ChatId | None = None
    principal: str = OWNER
    trust: Trust = Trust.OWNER
    role: Role = Role.OWNER
    commands: frozenset[str] | None = None
    stops_others: bool = True


class Rejected(Struct, frozen=True):
    """Somebody may not speak; without a reply they hear nothing."""

    reply: str = ""


class InboxMessage(Struct, frozen=True, kw_only=True, tag="letter"):
    """One message to a chat session. `manner` is what its sender asked for, if anything."""

    user: User
    address: Address
    asker: Requester = Requester()
    principal: str = OWNER
    role: Role = Role.OWNER
    manner: BusyMode | None = None
    answer_at: tuple[Address, ...] = ()
    reply_to: str | None = None
    """The post that it is a reply to, as the platform names it."""

    @property
    def answers(self) -> tuple[Address, ...]:
        """Where the answer goes: back, unless somewhere else was asked for."""
        return self.answer_at or (self.address,)

    @property
    def message(self) -> str | None:
        """The platform's name for what was written, to answer to."""
        return self.asker.message or None


class OutboxMessage(Struct, frozen=True, kw_only=True, tag="reply"):
    """One text for a person, and how far it got.

    `sent` posts are out; of the attempts so far `known` have a known outcome, `free` were made
    while nobody could be reached, and `unsure` may have arrived; `doubt` says that the next post
    is one of those. `bubble` is a post that turns into the first part of this, unless the two have
    come `apart`. What was `brought` from elsewhere is told to the session at the address once it
    has arrived. `question` is the id of what it asks.
    """

    address: Address
    text: str
    at: datetime
    run: str = ""
    reply_to: str | None = None
    bubble: str | None = None
    apart: bool = False
    recovered: bool = False
    sent: int = 0
    known: int = 0
    free: int = 0
    unsure: int = 0
    doubt: bool = False
    brought: bool = False
    question: str = ""


def platform_address(address: Address) -> Address:
    """The address as the channel itself knows it."""
    return Address(platform_of(address.channel), address.chat, address.thread)


def outbox_name(channel: str) -> str:
    return f"outbox:{channel}"


def topic_of(address: Address) -> str:
    return msgspec.json.encode((address.channel, address.chat, address.thread)).decode()


def address_of_topic(topic: str) -> Address:
    channel, chat, thread = msgspec.json.decode(topic, type=tuple[str, str, str | None])
    return Address(channel, chat, thread)


def inbox_item(key: str, session_key: str, letter: InboxMessage, lane: str = INBOX) -> QueueItem:
    return QueueItem(key=key, lane=lane, topic=session_key, body=Raw(msgspec.json.encode(letter)))


def read_inbox_message(parcel: QueueItem) -> InboxMessage:
    """Raises `msgspec.DecodeError` when it is none."""
    return msgspec.json.decode(parcel.body, type=InboxMessage)


def outbox_post(key: str, reply: OutboxMessage) -> EnqueueItem:
    lane, topic = outbox_name(reply.address.channel), topic_of(reply.address)
    body = Raw(msgspec.json.encode(reply))
    return EnqueueItem(QueueItem(key=key, lane=lane, topic=topic, body=body))


def read_outbox_message(parcel: QueueItem) -> OutboxMessage:
    """Raises `msgspec.DecodeError` when it is none."""
    return msgspec.json.decode(parcel.body, type=OutboxMessage)


def outbox_amendment(key: str, reply: OutboxMessage) -> AmendItem:
    return AmendItem(key, Raw(msgspec.json.encode(reply)))
