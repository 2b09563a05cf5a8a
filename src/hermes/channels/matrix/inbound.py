"""Turn Matrix's events into inbound updates."""

import logging
import re
from collections.abc import Collection

import msgspec
from msgspec import Struct, structs

from hermes.channels.matrix import MatrixOptions
from hermes.channels.matrix.choices import ChoicePosts
from hermes.channels.matrix.client_api import ClientApi
from hermes.channels.matrix.encryption import ENCRYPTED, Encryption, Undecryptable
from hermes.channels.matrix.media import MediaReader, file_name
from hermes.channels.matrix.message_text import is_mentioned, without_fallback, written_text
from hermes.channels.matrix.objects import ABSENT, Event, MessageContent, Redaction, Related
from hermes.channels.matrix.rooms import RoomDirectory, RoomFacts
from hermes.channels.matrix.threads import Threads
from hermes.channels.written_at import time_at
from hermes.kit.json_errors import JSON_ERRORS
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
    UnknownOutcome,
)
from hermes.schema.messages import SENT_FILES_HEADER, Media, Text, quoted_text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

MAX_QUOTE = 4_000
MAX_REMEMBERED = 5_000
FILES = frozenset({"m.image", "m.audio", "m.video", "m.file"})
_TEXTS = frozenset({"m.text", "m.emote", "m.notice", "m.location"})
_WRITTEN = frozenset({"m.room.message", "m.sticker"})


class Origin(Struct, frozen=True, kw_only=True):
    """Where an event happened."""

    room: str
    facts: RoomFacts
    direct: bool


class InboundBuilder:
    """Builds updates for the channel `name`; `user` is the account itself."""

    def __init__(
        self,
        *,
        name: str,
        user: str,
        api: ClientApi,
        encryption: Encryption | None,
        rooms: RoomDirectory,
        threads: Threads,
        media: MediaReader,
        choices: ChoicePosts,
        options: MatrixOptions,
        commands: Collection[str],
    ) -> None:
        self._name = name
        self._user = user
        self._api = api
        self._encryption = encryption
        self._rooms = rooms
        self._threads = threads
        self._media = media
        self._choices = choices
        self._options = options
        self._commands = commands
        self._ignored = [re.compile(pattern) for pattern in options.ignore_user_patterns]
        # By room and event: an event may relate to one of another room.
        self._written: LruMap[tuple[str, str], Address] = LruMap(MAX_REMEMBERED)
        """Addresses of recent messages: edits, reactions and deletions do not contain them."""
        self._reactions: LruMap[tuple[str, str], tuple[str, str]] = LruMap(MAX_REMEMBERED)
        """Message and emoji of recent reactions: a removal only names the reaction."""

    async def build(self, room: str, event: Event, *, encrypted: bool) -> Inbound | None:
        """Return the update; None if it is not for the agent. Raises `MsgspecError`."""
        if self._ignores_sender(event.sender):
            return None
        facts = await self._rooms.facts(room)
        origin = Origin(room=room, facts=facts, direct=await self._rooms.is_direct(room))
        if not self._serves(origin, encrypted=encrypted):
            return None
        match event.kind:
            case kind if kind in _WRITTEN:
                return await self._message(origin, event)
            case "m.reaction":
                return await self._reaction(origin, event)
            case "m.room.redaction":
                return self._deletion(origin, event)
            case _:
                return None

    def _ignores_sender(self, user: str) -> bool:
        return user == self._user or any(pattern.search(user) for pattern in self._ignored)

    def _serves(self, origin: Origin, *, encrypted: bool) -> bool:
        options, listed = self._options, origin.room in self._options.allowed_rooms
        if origin.facts.public and not options.allow_public_rooms and not listed:
            log.info("%s is a public room, where nothing is answered", origin.room)
            return False
        return encrypted or options.mode != "required"

    async def _message(self, origin: Origin, event: Event) -> Inbound | None:
        content = event.read(MessageContent)
        relation = content.relates_to
        if relation is not None and relation.rel_type == "m.replace":
            if content.new_content == ABSENT:
                return None
            new = msgspec.json.decode(content.new_content, type=MessageContent)
            new = structs.replace(new, relates_to=None)
            address = await self._address_of(origin, relation.event_id)
            return await self._inbound(
                origin, event, new, address, EditedMessage(), relation.event_id
            )
        if content.msgtype == "m.notice" and not self._options.process_notices:
            return None
        address = self._address(origin, event, content)
        self._written.put((origin.room, event.event_id), address)
        return await self._inbound(origin, event, content, address, NewMessage(), event.event_id)

    async def _inbound(
        self,
        origin: Origin,
        event: Event,
        content: MessageContent,
        address: Address,
        update: NewMessage | EditedMessage,
        message: str,
    ) -> Inbound | None:
        mentioned = self._names_agent(origin, content)
        thread = address.thread
        if not mentioned and not origin.direct and thread and thread != event.event_id:
            mentioned = not self._options.thread_require_mention and await self._threads.takes_part(
                origin.room, thread, self._user
            )
        replied = content.relates_to.replied if content.relates_to is not None else ""
        inbound = Inbound(
            f"{self._user}:{event.event_id}",
            address,
            event.sender,
            (),
            reply_to=replied or None,
            message=message,
            about=self._about(origin, event, mentioned=mentioned, content=content),
            update=update,
            written_at=time_at(event.origin_server_ts / 1000),
        )
        if _has_file(event, content) and (refused := await self._media.received.refused(inbound)):
            return refused
        parts = await self._parts(origin, event, content)
        return structs.replace(inbound, parts=tuple(parts)) if parts else None

    async def _reaction(self, origin: Origin, event: Event) -> Inbound | None:
        relation = event.read(Related).relates_to
        if relation is None or not relation.key or not relation.event_id:
            return None
        self._reactions.put((origin.room, event.event_id), (relation.event_id, relation.key))
        address = await self._address_of(origin, relation.event_id)
        value = self._choices.value(origin.room, relation, event.sender)
        update = PressedButton(value) if value else ChangedReaction(relation.key)
        return self._change(origin, event, address, relation.event_id, update)

    def _deletion(self, origin: Origin, event: Event) -> Inbound | None:
        target = event.redacts or event.read(Redaction).redacts
        if not isinstance(target, str) or not target:
            return None
        if (reaction := self._reactions.get((origin.room, target))) is not None:
            message, emoji = reaction
            address = self._written.get((origin.room, message)) or Address(self._name, origin.room)
            update = ChangedReaction(emoji, removed=True)
            return self._change(origin, event, address, message, update)
        address = self._written.get((origin.room, target)) or Address(self._name, origin.room)
        return self._change(origin, event, address, target, DeletedMessage())

    def _change(
        self,
        origin: Origin,
        event: Event,
        address: Address,
        message: str,
        update: ChangedReaction | DeletedMessage | PressedButton,
    ) -> Inbound:
        return Inbound(
            f"{self._user}:{event.event_id}",
            address,
            event.sender,
            (),
            message=message,
            about=self._about(origin, event, mentioned=isinstance(update, PressedButton)),
            update=update,
        )

    def _about(
        self,
        origin: Origin,
        event: Event,
        *,
        mentioned: bool,
        content: MessageContent | None = None,
    ) -> InboundDetails:
        return InboundDetails(
            chat_type="dm" if origin.direct else "group",
            chat_name=origin.facts.name,
            user_name=origin.facts.name_of(event.sender),
            bot=content is not None and content.msgtype == "m.notice",
            mentions=mentioned,
        )

    def _names_agent(self, origin: Origin, content: MessageContent) -> bool:
        name = origin.facts.name_of(self._user)
        room_mentions = self._options.allow_room_mentions
        return is_mentioned(content, self._user, name, room_mentions=room_mentions)

    def _address(self, origin: Origin, event: Event, content: MessageContent) -> Address:
        """Return the address of the conversation; a mention in a room opens a thread."""
        options, address = self._options, Address(self._name, origin.room)
        relation = content.relates_to
        thread = relation.thread if relation is not None else ""
        if options.session_scope == "room":
            if thread:
                self._threads.remember(event.event_id, thread)
            return address
        if thread:
            return structs.replace(address, thread=thread)
        mentioned = self._names_agent(origin, content)
        if origin.direct:
            opens = options.dm_auto_thread or (options.dm_mention_threads and mentioned)
        else:
            is_free = origin.room in options.free_response_rooms
            replies = relation is not None and bool(relation.replied)
            opens = options.auto_thread and mentioned and not replies and not is_free
        if opens or options.session_scope == "thread":
            return structs.replace(address, thread=event.event_id)
        return address

    async def _address_of(self, origin: Origin, message: str) -> Address:
        """Return the address of an earlier message."""
        if (known := self._written.get((origin.room, message))) is not None:
            return known
        address = Address(self._name, origin.room)
        found = await self._find(origin.room, message)
        if found is None:
            return address
        if found.sender != self._user and found.kind in _WRITTEN:
            address = self._address(origin, found, found.read(MessageContent))
        else:
            if found.sender == self._user:
                self._choices.remember_event(origin.room, found)
            relation = found.read(Related).relates_to
            thread = relation.thread if relation is not None else ""
            if self._options.session_scope != "room":
                address = structs.replace(address, thread=thread or None)
        self._written.put((origin.room, message), address)
        return address

    async def _find(self, room: str, message: str) -> Event | None:
        """Return an earlier event, decrypted; None if it cannot be fetched."""
        try:
            event = await self._api.event(room, message)
            if event.kind == ENCRYPTED and self._encryption is not None:
                event = await self._encryption.decrypt(room, event)
        except Offline:
            raise
        except (NotSent, UnknownOutcome, Undecryptable) as error:
            log.info("event %s cannot be read: %s", message, error)
            return None
        return event

    async def _parts(
        self, origin: Origin, event: Event, content: MessageContent
    ) -> list[Text | Media]:
        """Return the sender's text, then files, then what others wrote, marked as quoted."""
        typed, files = self._typed(origin, event, content), list[Text | Media]()
        if _has_file(event, content):
            files = await self._media.parts(content)
        others: list[Text | Media] = []
        if quote := await self._quote(origin, event, content):
            others.append(Text(quote))
        if not typed and not files:
            # A bare mention counts as a question.
            typed = "(no text)" if self._names_agent(origin, content) else ""
        # The first part is always the sender's text, never an attachment.
        if not typed and files and (others or _is_attachment(files[0])):
            typed = "(no text)"
        return [*([Text(typed)] if typed else []), *files, *others] if typed or files else []

    def _typed(self, origin: Origin, event: Event, content: MessageContent) -> str:
        name = origin.facts.name_of(self._user)
        if event.kind == "m.sticker":
            return f"(sticker {content.body})"
        if content.msgtype in FILES:
            has_caption = content.filename and content.filename != content.body
            return content.body if has_caption and file_name(content) != content.body else ""
        if content.msgtype not in _TEXTS:
            return ""
        text = written_text(content, self._user, name, self._commands)
        if content.msgtype == "m.emote":
            return f"* {origin.facts.name_of(event.sender)} {text}"
        return text

    async def _quote(self, origin: Origin, event: Event, content: MessageContent) -> str:
        """Return the message of someone else that this one replies to."""
        replied = content.relates_to.replied if content.relates_to is not None else ""
        if not replied:
            return ""
        found = await self._find(origin.room, replied)
        if found is None or found.kind not in _WRITTEN:
            return ""
        if found.sender in {self._user, event.sender}:
            return ""
        try:
            text = without_fallback(found.read(MessageContent).body)
        except JSON_ERRORS:
            return ""
        author = origin.facts.name_of(found.sender)
        return quoted_text(author, text[:MAX_QUOTE]) if text else ""


def _has_file(event: Event, content: MessageContent) -> bool:
    return content.msgtype in FILES or event.kind == "m.sticker"


def _is_attachment(part: Text | Media) -> bool:
    return isinstance(part, Text) and part.text.startswith(SENT_FILES_HEADER)
