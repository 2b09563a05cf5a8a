"""The state of the emulator: bots, chats, messages and updates, and what people do in them."""

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from emulators.telegram.entities import found_entities
from emulators.telegram.limits import FloodLimits
from support.chat_platform.state import NO_FAULTS, FaultRates

Json: TypeAlias = dict[str, object]

DEFAULT_UPDATES = frozenset({"message", "edited_message", "callback_query"})
"""Reactions are only sent to bots that ask for them."""


class EmulatedBot(Struct):
    """One bot account; `acknowledged` is the first update that is not confirmed."""

    token: str
    id: int
    username: str = "hermes_test_bot"
    reads_groups: bool = False
    updates: deque[Json] = field(default_factory=deque[Json])
    acknowledged: int = 0
    allowed: frozenset[str] = DEFAULT_UPDATES
    commands: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    webhook: Json = field(default_factory=dict[str, object])
    polls: int = 0

    @property
    def user(self) -> Json:
        return {
            "id": self.id,
            "is_bot": True,
            "first_name": "Hermes",
            "username": self.username,
            "can_join_groups": True,
            "can_read_all_group_messages": self.reads_groups,
            "supports_inline_queries": False,
        }


class EmulatedChat(Struct):
    """`known`: the bot may write, because the person has written before."""

    id: int
    type: str = "private"
    title: str = ""
    is_forum: bool = False
    topics: dict[int, str] = field(default_factory=dict[int, str])
    blocked: bool = False
    known: bool = False
    moved_to: int = 0
    next_message: int = 1
    typing: bool = False

    @property
    def object(self) -> Json:
        if self.type == "private":
            return {"id": self.id, "type": "private", "first_name": f"Person {self.id}"}
        forum: Json = {"is_forum": True} if self.is_forum else {}
        return {"id": self.id, "type": self.type, "title": self.title, **forum}


class EmulatedMessage(Struct):
    """A message as it stands; `forms` are all its texts so far."""

    object: Json
    own: bool
    forms: list[str]
    file: bytes = b""
    reactions: list[str] = field(default_factory=list[str])

    @property
    def id(self) -> int:
        return int(str(self.object["message_id"]))

    @property
    def text(self) -> str:
        return self.forms[-1]


class EmulatedTelegram:
    """Everything that the server knows."""

    def __init__(
        self,
        *,
        faults: FaultRates = NO_FAULTS,
        seed: int = 0,
        limits: FloodLimits | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.faults = faults
        self.limits = limits
        self.chance = random.Random(seed)  # noqa: S311 - must be repeatable, not secret
        self.bots: dict[str, EmulatedBot] = {}
        self.chats: dict[int, EmulatedChat] = {}
        self.messages: dict[tuple[int, int], EmulatedMessage] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        self.queries: set[str] = set()
        self.answered: list[str] = []
        self.updates_sent: list[Json] = []
        self.changes: list[EmulatedMessage] = []
        """The post of each change to a post, in order."""
        self.on_change = on_change
        self._updates = 1000
        self._moment = 1_700_000_000

    def add_bot(self, token: str, **options: object) -> EmulatedBot:
        bot = EmulatedBot(token, int(token.partition(":")[0]))
        for name, value in options.items():
            setattr(bot, name, value)
        self.bots[token] = bot
        return bot

    @property
    def bot(self) -> EmulatedBot:
        """The first bot."""
        return next(iter(self.bots.values()))

    def chat(self, number: int, **fields: object) -> EmulatedChat:
        """Return a chat; negative numbers are groups."""
        if number not in self.chats:
            kind = "private" if number > 0 else "supergroup"
            self.chats[number] = EmulatedChat(number, kind, "" if number > 0 else f"Group {number}")
        for name, value in fields.items():
            setattr(self.chats[number], name, value)
        return self.chats[number]

    def posts(self, chat: int) -> list[EmulatedMessage]:
        """The bot's own messages in a chat, oldest first."""
        return [one for (at, _), one in self.messages.items() if at == chat and one.own]

    def unacknowledged(self) -> int:
        return sum(len(bot.updates) for bot in self.bots.values())

    # What people do

    def say(
        self,
        chat: int,
        text: str = "",
        *,
        person: int = 0,
        thread: int = 0,
        more: Json | None = None,
    ) -> int:
        """Write a message with any further fields; return its id."""
        more = more or {}
        place = self.chat(chat)
        place.known, place.blocked = True, False
        message = self._written(place, person or abs(chat), thread)
        if text:
            message |= {"text": text, "entities": _entities(text)}
        if isinstance(caption := more.get("caption"), str):
            message["caption_entities"] = _entities(caption)
        message |= more
        return self._arrive(place, message)

    def _written(self, place: EmulatedChat, person: int, thread: int) -> Json:
        message: Json = {
            "message_id": self._next_message(place),
            "date": self._tick(),
            "chat": place.object,
            "from": person_object(person),
        }
        if thread:
            topic: Json = {"name": place.topics.get(thread, ""), "icon_color": 7322096}
            opened: Json = {
                "message_id": thread, "date": 1, "chat": place.object,
                "from": person_object(person), "forum_topic_created": topic,
            }  # fmt: skip
            message |= {
                "message_thread_id": thread, "is_topic_message": True, "reply_to_message": opened,
            }  # fmt: skip
        return message

    def _arrive(self, place: EmulatedChat, message: Json) -> int:
        text = str(message.get("text") or message.get("caption") or "")
        arrived = EmulatedMessage(message, False, [text])
        self.messages[(place.id, arrived.id)] = arrived
        self.push({"message": message})
        return arrived.id

    def reply(self, chat: int, number: int, text: str, *, person: int = 0, quote: str = "") -> int:
        replied = self.messages[(chat, number)].object
        more: Json = {"reply_to_message": replied}
        if quote:
            more["quote"] = {"text": quote, "position": 0}
        return self.say(chat, text, person=person, more=more)

    def edit(self, chat: int, number: int, text: str) -> None:
        message = self.messages[(chat, number)]
        message.object = {
            **message.object, "text": text, "edit_date": self._tick(), "entities": _entities(text),
        }  # fmt: skip
        message.forms.append(text)
        self.push({"edited_message": message.object})

    def react(self, chat: int, number: int, emoji: str, *, person: int = 0) -> None:
        changed: Json = {
            "chat": self.chat(chat).object,
            "message_id": number,
            "user": person_object(person or abs(chat)),
            "date": self._tick(),
            "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": emoji}],
        }
        self.push({"message_reaction": changed})

    def press(self, chat: int, number: int, value: str, *, person: int = 0) -> str:
        """Press a button of a post; return the id of the query."""
        query = f"q{len(self.queries) + 1}"
        self.queries.add(query)
        body: Json = {
            "id": query,
            "from": person_object(person or abs(chat)),
            "message": self.messages[(chat, number)].object,
            "chat_instance": "1",
            "data": value,
        }
        self.push({"callback_query": body})
        return query

    def album(self, chat: int, photos: Iterable[tuple[bytes, str]], *, person: int = 0) -> None:
        """Send photos with captions as one album: as separate messages with the same group."""
        group = f"album{self._updates}"
        for data, caption in photos:
            more: Json = {"photo": [self.photo(data)], "media_group_id": group}
            if caption:
                more["caption"] = caption
            self.say(chat, person=person, more=more)

    def photo(self, data: bytes, size: int = 0) -> Json:
        number = self.add_file("photos/file.jpg", data)
        return {
            "file_id": number, "file_unique_id": number, "width": 90, "height": 60,
            "file_size": size or len(data),
        }  # fmt: skip

    def document(
        self, data: bytes, name: str, media_type: str = "", size: int = 0, **more: object
    ) -> Json:
        number = self.add_file(f"documents/{name}", data)
        return {
            "file_id": number, "file_unique_id": number, "file_name": name,
            "mime_type": media_type or "application/octet-stream",
            "file_size": size or len(data), **more,
        }  # fmt: skip

    def add_file(self, path: str, data: bytes) -> str:
        number = f"f{len(self.files) + 1}"
        self.files[number] = (f"{number}-{path.replace('/', '-')}", data)
        return number

    # Updates

    def push(self, content: Json) -> None:
        """Queue an update for every bot that wants its kind."""
        self._updates += 1
        (kind,) = content
        update: Json = {"update_id": self._updates, **content}
        self.updates_sent.append(update)
        for bot in self.bots.values():
            if kind in bot.allowed:
                bot.updates.append(update)
        self.on_change()

    def push_again(self, update: Json) -> None:
        """Queue an update once more, as if its acknowledgment had been lost."""
        self.bot.updates.append(update)
        self.bot.acknowledged = 0
        self.on_change()

    def earlier_updates(self, last: int, count: int) -> list[Json]:
        """Choose some of the updates up to number `last`."""
        first = _id(self.updates_sent[0]) if self.updates_sent else last + 1
        known = self.updates_sent[: max(last + 1 - first, 0)]
        return self.chance.choices(known, k=count) if known else []

    def updates_from(self, bot: EmulatedBot, offset: int, limit: int) -> list[Json]:
        """Confirm everything before `offset` and return the next updates."""
        if offset < 0:
            offset = _id(bot.updates[max(offset, -len(bot.updates))]) if bot.updates else 0
        if offset > 0:
            kept = [one for one in bot.updates if _id(one) >= offset]
            if len(kept) < len(bot.updates) or offset > bot.acknowledged:
                bot.acknowledged = max(bot.acknowledged, offset)
                bot.updates = deque(kept)
                self.on_change()
        return [*bot.updates][:limit]

    def new_post(self, chat: int, content: Mapping[str, object], text: str) -> EmulatedMessage:
        place = self.chat(chat)
        message: Json = {
            "message_id": self._next_message(place),
            "date": self._tick(),
            "chat": place.object,
            "from": self.bot.user,
            **content,
        }
        place.typing = False
        post = EmulatedMessage(message, True, [text])
        self.messages[(chat, post.id)] = post
        self.changes.append(post)
        self.on_change()
        return post

    def _next_message(self, place: EmulatedChat) -> int:
        place.next_message += 1
        return place.next_message

    def _tick(self) -> int:
        self._moment = max(int(time.time()), self._moment + 1)
        return self._moment


def person_object(number: int) -> Json:
    return {"id": number, "is_bot": False, "first_name": f"Person {number}"}


def _entities(text: str) -> list[Json]:
    return [
        {"type": one.type, "offset": one.offset, "length": one.length}
        for one in found_entities(text)
    ]


def _id(update: Json) -> int:
    return int(str(update["update_id"]))
