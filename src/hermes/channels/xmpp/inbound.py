"""Turn messages of an XMPP account into inbound updates."""

import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from msgspec import structs

from hermes.channels.received_files import AttachedFile, ReceivedFiles, RecordingKind, media_type_of
from hermes.channels.xmpp.stanzas import Reactions, RoomPresence, XmppMessage, bare
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
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address

MAX_REMEMBERED = 5_000
MIN_ID = 8
"""Shorter message ids may be counters that restart with each session."""
_RECORDINGS: dict[str, RecordingKind] = {"audio": "audio", "video": "video"}


class Rooms:
    """The occupants of rooms by their room address, and the agent's nickname in each room.

    `names` are the rooms of the settings; anyone can claim to be another one.
    """

    def __init__(self, nick: str, names: Collection[str]) -> None:
        self.nick = nick
        self.names = frozenset(names)
        self.joined: set[str] = set()
        self._people: dict[str, str] = {}

    def update(self, presence: RoomPresence) -> None:
        room = bare(presence.sender)
        if presence.own:
            (self.joined.add if presence.available else self.joined.discard)(room)
        if presence.available and presence.jid:
            self._people[presence.sender] = presence.jid
        elif not presence.available:
            self._people.pop(presence.sender, None)

    def person(self, sender: str) -> str:
        """The address of someone where the room shows it, else the one in the room."""
        return self._people.get(sender) or f"{bare(sender)}/{sender.partition('/')[2]}"


class InboundBuilder:
    """Builds updates for the channel `name`; `download` gets a file of the account's server."""

    def __init__(
        self,
        *,
        name: str,
        own: str,
        rooms: Rooms,
        files: ReceivedFiles,
        download: Callable[[str], Awaitable[bytes]],
    ) -> None:
        self._name = name
        self._own = own
        self._rooms = rooms
        self._files = files
        self._download = download
        self._own_posts: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """Our id of our messages, by the id that a room gave them."""
        self._room_ids: LruMap[tuple[str, str], str] = LruMap(MAX_REMEMBERED)
        """The id that a room gave to a message, by sender and the sender's id."""
        self._reactions: LruMap[tuple[str, str], tuple[str, ...]] = LruMap(MAX_REMEMBERED)
        """Reactions of a person to a message."""

    def sent(self, message: str, room_id: str) -> None:
        """Record that a room passed on a message of ours."""
        if room_id:
            self._own_posts.put(room_id, message)

    def keys(self, message: XmppMessage) -> tuple[str, ...]:
        """Return the keys that identify the message: its archive id and its sender's id."""
        archived = f"{message.archive}:{message.archive_id}" if message.archive_id else ""
        own = f"{message.sender}:{message.id}" if len(message.id) >= MIN_ID else ""
        return tuple(filter(None, (archived, own)))

    async def updates(self, message: XmppMessage, key: str) -> list[Inbound]:
        """Return the updates in a message; none if it is not meant for people."""
        if message.reactions is not None:
            return list(self._reaction_updates(message, message.reactions, key))
        message_id = self._message_id(message)
        if message.retracts:
            about = self._known_id(message, message.retracts)
            return [self._inbound(message, key, DeletedMessage(), about, mentioned=True)]
        if not message.body and not message.files:
            return []
        mentioned, text = _without_mention(message.body, self._rooms.nick)
        text, about = text if mentioned else message.body, message_id
        update = EditedMessage() if message.replaces else NewMessage()
        if message.replaces:
            about = self._known_id(message, message.replaces)
        else:
            self._remember(message, message_id)
            mentioned = mentioned or bool(self._own_posts.get(message.reply_to))
        inbound = self._inbound(message, key, update, about, mentioned=mentioned)
        if message.files and (refused := await self._files.refused(inbound)):
            return [refused]
        return [structs.replace(inbound, parts=await self._parts(message, text))]

    def _inbound(
        self,
        message: XmppMessage,
        key: str,
        update: Update,
        about: str,
        *,
        mentioned: bool,
    ) -> Inbound:
        direct = message.kind != "groupchat"
        sender = bare(message.sender) if direct else self._rooms.person(message.sender)
        reply_to = self._own_posts.get(message.reply_to) or message.reply_to
        return Inbound(
            key,
            Address(self._name, message.chat),
            sender,
            (),
            reply_to=reply_to or None,
            message=about,
            about=InboundDetails(
                chat_type="dm" if direct else "group",
                chat_name=message.chat.partition("@")[0] if not direct else sender,
                user_name=sender.partition("@")[0] if direct else message.nick,
                mentions=direct or mentioned,
            ),
            update=update,
            written_at=message.at,
        )

    def _message_id(self, message: XmppMessage) -> str:
        """Return the message id; in rooms, the room's own id, which replies and reactions use."""
        if message.kind == "groupchat":
            return message.archive_id or message.id
        return message.id or message.archive_id

    def _remember(self, message: XmppMessage, message_id: str) -> None:
        if message.kind == "groupchat" and message.id:
            self._room_ids.put((message.sender, message.id), message_id)

    def _known_id(self, message: XmppMessage, sender_id: str) -> str:
        """Return our id of a message; corrections use the sender's id."""
        return self._room_ids.get((message.sender, sender_id)) or sender_id

    def _reaction_updates(
        self, message: XmppMessage, reactions: Reactions, key: str
    ) -> Iterator[Inbound]:
        about = self._own_posts.get(reactions.message) or reactions.message
        place = (message.sender if message.kind == "groupchat" else message.chat, about)
        before = self._reactions.get(place) or ()
        self._reactions.put(place, reactions.emojis)
        changes = [(emoji, False) for emoji in reactions.emojis if emoji not in before]
        changes += [(emoji, True) for emoji in before if emoji not in reactions.emojis]
        for emoji, removed in changes:
            update = ChangedReaction(emoji, removed)
            one_key = f"{key}:{emoji}:{removed}"
            yield self._inbound(message, one_key, update, about, mentioned=False)

    async def _parts(self, message: XmppMessage, text: str) -> tuple[Text | Media, ...]:
        files: list[Text | Media] = []
        for url in message.files:
            if not _is_of(url, self._own.partition("@")[2]):
                continue
            name = unquote(PurePosixPath(urlsplit(url).path).name) or "file"
            kind = media_type_of(name)
            recording = _RECORDINGS.get(kind.partition("/")[0], "")
            file = AttachedFile(name=name, media_type=kind, recording=recording)
            files += await self._files.fetch(file, lambda url=url: self._download(url))
        # A file's URL is repeated as text for clients that cannot show files.
        written = "" if files and text.strip() in message.files else text
        if not written and (not files or isinstance(files[0], Text)):
            written = "(no text)"
        return (*([Text(written)] if written else []), *files)


def _is_of(url: str, server: str) -> bool:
    """Whether a file is on the account's own server; URLs of others could point anywhere."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    host = (parts.hostname or "").lower()
    return parts.scheme in {"http", "https"} and (host == server or host.endswith(f".{server}"))


def _without_mention(text: str, nick: str) -> tuple[bool, str]:
    """Return whether the text begins with the agent's nickname, and the text after it."""
    found = re.match(rf"@?{re.escape(nick)}(?:\s*[:,]\s*|\s+|$)", text, re.IGNORECASE)
    if found is None:
        return False, text
    return True, text[found.end() :] or "(no text)"
