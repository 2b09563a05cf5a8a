"""Inbox and outbox messages of a chat, and how they are encoded as queue items."""

from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import Raw, Struct

from hermes.ports.bus import Bus
from hermes.ports.channel import Attachment, Choices, Recording
from hermes.ports.store import AmendItem, EnqueueItem, QueueItem
from hermes.schema.messages import Trust, User
from hermes.schema.scope import OWNER, Address, Requester, Role, own_channel
from hermes.schema.terminal import BusyMode
from hermes.session.keys import ChatId

INBOX = "inbox"
OUTBOX = "outbox"
"""Prefix of the queues of outgoing messages, one per channel."""
COMMANDS = "commands"
CHAT_KEY_PREFIX = "agent:"
"""Prefix of chat session topics; other inbox rows belong to other surfaces."""


class Admitted(Struct, frozen=True, kw_only=True):
    """An admitted sender: session key, principal, role and permitted commands (None: all).

    `chat` is the chat the key was built from, if known. Without `may_stop_others` the sender may
    only stop their own requests. `ids` are all ids that the platform gives for the sender.
    """

    key: str
    chat: ChatId | None = None
    principal: str = OWNER
    trust: Trust = Trust.OWNER
    role: Role = Role.OWNER
    commands: frozenset[str] | None = None
    may_stop_others: bool = True
    ids: tuple[str, ...] = ()


class Rejected(Struct, frozen=True):
    """A sender that is not admitted; without a reply the message is ignored silently."""

    reply: str = ""


class InboxKind(StrEnum):
    """What an inbox row does: start a turn, change a message, or only add to the next turn."""

    MESSAGE = "message"
    EDIT = "edit"
    DELETE = "delete"
    CONTEXT = "context"


class InboxMessage(Struct, frozen=True, kw_only=True, tag="message"):
    """One message to a chat session; `busy_mode` is the busy mode its sender asked for, if any.

    An edit or delete is about the message with the same platform id.
    """

    user: User
    address: Address
    asker: Requester = Requester()
    principal: str = OWNER
    role: Role = Role.OWNER
    busy_mode: BusyMode | None = msgspec.field(default=None, name="manner")
    answer_at: tuple[Address, ...] = ()
    reply_to: str | None = None
    """Platform id of the message it replies to."""
    kind: InboxKind = InboxKind.MESSAGE
    recordings: tuple[Recording, ...] = ()
    """Recordings to transcribe before the message is put into the inbox."""
    missed: bool = False
    """Whether it arrived late, such as after an outage: others may follow at once."""

    @property
    def reply_addresses(self) -> tuple[Address, ...]:
        """Addresses the answer goes to: the sender's, unless others were requested."""
        return self.answer_at or (self.address,)

    @property
    def message(self) -> str | None:
        """Platform id of the sender's message, to reply to."""
        return self.asker.message or None


class OutboxMessage(Struct, frozen=True, kw_only=True, tag="reply"):
    """One text for a chat, and the state of its delivery.

    `sent`: chunks delivered. Of the attempts so far, `known` have a known outcome, `free` were made
    while offline or throttled, and `unsure` may have arrived; the next chunk
    `may_repeat` one of those. `progress_post`: the progress message to edit into the first chunk,
    unless the answer is sent separately (`separate`). `cross_post`: it is added to the session at
    the address once delivered. `question`: id of the question it asks. `attachments` and `choices`
    are sent with the text.
    """

    address: Address
    text: str
    at: datetime
    run: str = ""
    reply_to: str | None = None
    progress_post: str | None = None
    separate: bool = False
    recovered: bool = False
    sent: int = 0
    known: int = 0
    free: int = 0
    unsure: int = 0
    may_repeat: bool = False
    cross_post: bool = False
    question: str = ""
    attachments: tuple[Attachment, ...] = ()
    choices: Choices | None = None


def platform_address(address: Address) -> Address:
    """Return the address as the channel itself knows it."""
    return Address(own_channel(address.channel), address.chat, address.thread)


def outbox_name(channel: str) -> str:
    return f"{OUTBOX}:{channel}"


def wake_outbox(bus: Bus, address: Address) -> None:
    """Announce a new outbox row; inbox rows are announced as `bus.wake(INBOX, session key)`."""
    bus.wake(f"{OUTBOX}:{address.channel}", topic_of(address))


def topic_of(address: Address) -> str:
    return msgspec.json.encode((address.channel, address.chat, address.thread)).decode()


def address_of_topic(topic: str) -> Address:
    channel, chat, thread = msgspec.json.decode(topic, type=tuple[str, str, str | None])
    return Address(channel, chat, thread)


def inbox_item(key: str, session_key: str, message: InboxMessage, queue: str = INBOX) -> QueueItem:
    return QueueItem(
        key=key, queue=queue, topic=session_key, body=Raw(msgspec.json.encode(message))
    )


read_inbox_message = msgspec.json.Decoder(InboxMessage).decode
"""Decode the body of an inbox item; raises `msgspec.DecodeError`."""


def outbox_post(key: str, reply: OutboxMessage) -> EnqueueItem:
    queue, topic = f"{OUTBOX}:{reply.address.channel}", topic_of(reply.address)
    body = Raw(msgspec.json.encode(reply))
    return EnqueueItem(QueueItem(key=key, queue=queue, topic=topic, body=body))


read_outbox_message = msgspec.json.Decoder(OutboxMessage).decode
"""Decode the body of an outbox item; raises `msgspec.DecodeError`."""


def outbox_amendment(key: str, reply: OutboxMessage, holder: str) -> AmendItem:
    return AmendItem(key, Raw(msgspec.json.encode(reply)), holder)
