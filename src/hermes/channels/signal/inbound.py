"""Turn the events of signal-cli into inbound updates."""

import mimetypes
from functools import partial

from msgspec import structs

from hermes.channels.received_files import AttachedFile, ReceivedFiles, RecordingKind, media_type_of
from hermes.channels.signal import SignalOptions
from hermes.channels.signal.objects import (
    Attachment,
    DataMessage,
    Envelope,
    Mention,
)
from hermes.channels.signal.people import People
from hermes.channels.signal.rpc import SignalRpc
from hermes.channels.written_at import time_at
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    ChangedReaction,
    DeletedMessage,
    EditedMessage,
    Inbound,
    InboundDetails,
    NewMessage,
    Update,
)
from hermes.schema.messages import SENT_FILES_HEADER, Media, Text, quoted_text
from hermes.schema.scope import Address

MAX_REMEMBERED = 5_000
MAX_QUOTE = 2_000
EVERY_GROUP = "*"
_RECORDINGS: dict[str, RecordingKind] = {"audio": "audio", "video": "video"}


class InboundBuilder:
    """Builds updates for one account; None means that something is not for it.

    Message ids combine author and time, because Signal identifies messages by both.
    """

    def __init__(
        self,
        *,
        name: str,
        options: SignalOptions,
        rpc: SignalRpc,
        people: People,
        files: ReceivedFiles,
        sent: LruMap[int, bool],
    ) -> None:
        self._name = name
        self._options = options
        self._rpc = rpc
        self._people = people
        self._files = files
        self._sent = sent
        self._versions: LruMap[str, int] = LruMap(MAX_REMEMBERED)
        """The time of the first version of an edited message."""

    async def update(self, envelope: Envelope) -> Inbound | None:
        sender = self._people.id_of(envelope.source_number, envelope.source_uuid)
        own = self._is_own(envelope.source_number, envelope.source_uuid)
        sync = envelope.sync_message
        if sync is not None:
            return await self._own_note(envelope, sender, own=own)
        if own or not sender:
            return None
        if (edit := envelope.edit_message) is not None and edit.data_message is not None:
            return await self._edit(envelope, sender, edit.target_sent_timestamp, edit.data_message)
        if envelope.data_message is not None:
            return await self._message(envelope, sender, envelope.data_message)
        return self._story_reply(envelope, sender)

    async def _own_note(self, envelope: Envelope, sender: str, *, own: bool) -> Inbound | None:
        """Read a note to self; what the account's owner writes to others is not for the agent."""
        sent = envelope.sync_message.sent_message if envelope.sync_message is not None else None
        if not own or sent is None or sent.group_info is not None:
            return None
        to_self = self._is_own(sent.destination_number, sent.destination_uuid)
        if not to_self or self._sent.get(sent.timestamp):
            return None
        return await self._message(envelope, self._options.account, sent)

    async def _edit(
        self, envelope: Envelope, sender: str, target: int, message: DataMessage
    ) -> Inbound | None:
        first = self._versions.get(f"{sender}:{target}") or target
        self._versions.put(f"{sender}:{message.timestamp}", first)
        return await self._written(
            envelope, sender, message, message_id(sender, first), EditedMessage()
        )

    async def _message(
        self, envelope: Envelope, sender: str, message: DataMessage
    ) -> Inbound | None:
        if not self._is_relevant(message):
            return None
        if (reaction := message.reaction) is not None:
            author = self._author(reaction.target_author_number, reaction.target_author_uuid)
            target = message_id(author, reaction.target_sent_timestamp)
            change = ChangedReaction(reaction.emoji, reaction.is_remove)
            return self._inbound(envelope, sender, message, target, change)
        if message.remote_delete is not None:
            target = message_id(sender, message.remote_delete.timestamp)
            return self._inbound(envelope, sender, message, target, DeletedMessage())
        target = message_id(sender, message.timestamp or envelope.timestamp)
        return await self._written(envelope, sender, message, target, NewMessage())

    async def _written(
        self,
        envelope: Envelope,
        sender: str,
        message: DataMessage,
        target: str,
        update: NewMessage | EditedMessage,
    ) -> Inbound | None:
        if not self._is_relevant(message):
            return None
        quote, replied = message.quote, None
        if quote is not None:
            replied = message_id(self._author(quote.author_number, quote.author_uuid), quote.id)
        inbound = self._inbound(envelope, sender, message, target, update, replied=replied)
        if message.attachments and (refused := await self._files.refused(inbound)):
            return refused
        parts = await self._parts(sender, message)
        return structs.replace(inbound, parts=tuple(parts)) if parts else None

    def _inbound(
        self,
        envelope: Envelope,
        sender: str,
        message: DataMessage,
        target: str,
        update: Update,
        *,
        parts: tuple[Text | Media, ...] = (),
        replied: str | None = None,
    ) -> Inbound:
        group = message.group_info
        numbers = {envelope.source_number, envelope.source_uuid} - {sender, None}
        kind = type(update).__name__
        return Inbound(
            f"{self._options.account}:{sender}:{message.timestamp or envelope.timestamp}:{kind}",
            Address(self._name, group.group_id if group is not None else sender),
            sender,
            parts,
            reply_to=replied,
            message=target,
            about=InboundDetails(
                chat_type="dm" if group is None else "group",
                chat_name="" if group is None else group.group_name or "",
                user_name=envelope.source_name or "",
                user_alt=next((number for number in numbers if number), ""),
                mentions=self._mentions_us(message),
            ),
            update=update,
            written_at=time_at((message.timestamp or envelope.timestamp) / 1000),
        )

    def _story_reply(self, envelope: Envelope, sender: str) -> Inbound | None:
        story = envelope.story_message
        shown = story.text_attachment if story is not None else None
        if self._options.ignore_stories or shown is None or not shown.text:
            return None
        message = DataMessage(timestamp=envelope.timestamp)
        target = message_id(sender, envelope.timestamp)
        parts = (Text(shown.text),)
        return self._inbound(envelope, sender, message, target, NewMessage(), parts=parts)

    def _is_relevant(self, message: DataMessage) -> bool:
        """Whether to read a message: groups must be listed, and group changes do not count."""
        group = message.group_info
        if group is None:
            return True
        listed = {entry.removeprefix("group:") for entry in self._options.group_allow_from}
        return group.type != "UPDATE" and bool(listed & {EVERY_GROUP, group.group_id})

    def _is_own(self, number: str | None, uuid: str | None) -> bool:
        return self._options.account in {number, uuid}

    def _author(self, number: str | None, uuid: str | None) -> str:
        if self._is_own(number, uuid):
            return self._options.account
        return self._people.id_of(number, uuid)

    def _mentions_us(self, message: DataMessage) -> bool:
        """Whether the message mentions us, or replies to one of our posts."""
        quote = message.quote
        return any(
            self._is_own(mention.number, mention.uuid) for mention in message.mentions or ()
        ) or (quote is not None and self._is_own(quote.author_number, quote.author_uuid))

    async def _parts(self, sender: str, message: DataMessage) -> list[Text | Media]:
        text = self._text(message)
        group = message.group_info
        where = {"recipient": sender} if group is None else {"groupId": group.group_id}
        files: list[Text | Media] = []
        for number, attachment in enumerate(message.attachments or (), 1):
            files += await self._fetch(attachment, number, message.timestamp, where)
        if not text and message.sticker is not None:
            text = f"(sticker {message.sticker.emoji or ''})".replace(" )", ")")
        if not text and not files:
            return [Text("(no text)")] if self._mentions_us(message) and message.mentions else []
        if not text and _is_attachment(files[0]):
            text = "(no text)"
        return [*([Text(text)] if text else []), *files, *self._quoted(sender, message)]

    def _quoted(self, sender: str, message: DataMessage) -> list[Text | Media]:
        """Return what someone else wrote, marked as quoted; our own posts are known."""
        quote = message.quote
        if quote is None or not quote.text:
            return []
        author = self._author(quote.author_number, quote.author_uuid)
        if author in {sender, self._options.account}:
            return []
        return [Text(quoted_text(author, quote.text[:MAX_QUOTE]))]

    def _text(self, message: DataMessage) -> str:
        """The text with names for the placeholders, without a mention of us at its start."""
        units = (message.message or "").encode("utf-16-le")
        for mention in sorted(
            message.mentions or (), key=lambda mention: mention.start, reverse=True
        ):
            start, end = 2 * mention.start, 2 * (mention.start + mention.length)
            units = units[:start] + self._shown(mention).encode("utf-16-le") + units[end:]
        text = units.decode("utf-16-le", "replace")
        return text.lstrip(" ,:\n") if message.mentions else text

    def _shown(self, mention: Mention) -> str:
        if self._is_own(mention.number, mention.uuid):
            return "" if mention.start == 0 else "@you"
        return f"@{mention.name or mention.number or mention.uuid}"

    async def _fetch(
        self, file: Attachment, number: int, timestamp: int, where: dict[str, str]
    ) -> list[Text | Media]:
        kind = media_type_of(file.filename or "", file.content_type or "")
        recording = _RECORDINGS.get(kind.partition("/")[0], "")
        extension = mimetypes.guess_extension(kind) or ""
        attached = AttachedFile(
            name=file.filename or f"signal-{timestamp}-{number}{extension}",
            media_type=kind,
            kind="voice note" if recording == "audio" and not file.filename else "file",
            size=file.size or 0,
            recording=recording,
        )
        download = partial(self._rpc.download, file.id or "", where)
        return await self._files.fetch(attached, download)


def message_id(author: str, timestamp: int) -> str:
    return f"{author}:{timestamp}"


def _is_attachment(part: Text | Media) -> bool:
    return isinstance(part, Text) and part.text.startswith(SENT_FILES_HEADER)
