"""Track which messages can be replied to: QQ accepts a few replies, for some minutes.

A reply has a number (`msg_seq`), which is reused when a post is repeated: QQ refuses the
repetition, so the post is shown once.
"""

import hashlib
import logging
from datetime import datetime

import anyio
import anyio.to_thread
from msgspec import Struct, field

from hermes.channels.qqbot.objects import ChatKind
from hermes.channels.state_file import StateFile
from hermes.kit.clock import Clock

log = logging.getLogger(__name__)

MAX_CHATS = 5_000
MAX_MESSAGES = 20
"""Maximum number of messages remembered per chat."""
MARGIN = 5.0
"""Seconds for the call itself."""
_SECONDS = {
    ChatKind.USER: 3600.0,
    ChatKind.GROUP: 300.0,
    ChatKind.CHANNEL: 300.0,
    ChatKind.DIRECT: 300.0,
}
_REPLIES = {ChatKind.USER: 5, ChatKind.GROUP: 5}
"""Maximum replies to one message; guilds have no such limit."""


class Question(Struct):
    """A message or event that can be replied to; `replies` are keys of posts, in order."""

    id: str
    at: float
    event: bool = False
    replies: list[str] = field(default_factory=list[str])
    spent: bool = False


class Chat(Struct):
    kind: ChatKind
    questions: list[Question] = field(default_factory=list[Question])


class Chats(Struct):
    chats: dict[str, Chat] = field(default_factory=dict[str, Chat])


class Reply(Struct, frozen=True):
    """The message to reply to, and the number of the reply."""

    question: str
    number: int
    event: bool = False

    def fields_in(self, kind: ChatKind) -> dict[str, object]:
        """The fields of the API; guilds have no numbers."""
        reply: dict[str, object] = {"event_id" if self.event else "msg_id": self.question}
        return reply if kind.in_guild else {**reply, "msg_seq": self.number}


class ReplyWindows:
    """The chats of one bot, remembered in a file: a restart must not use a number twice."""

    def __init__(self, file: StateFile[Chats], clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._chats: dict[str, Chat] | None = None
        self._lock = anyio.Lock()

    async def kind_of(self, chat: str) -> ChatKind:
        """Return the chat's kind, known from its messages; only guild ids are numbers."""
        known = (await self._load()).get(chat)
        if known is not None:
            return known.kind
        return ChatKind.CHANNEL if chat.isdecimal() else ChatKind.USER

    async def opened(self, chat: str, kind: ChatKind, question: Question) -> None:
        """Record a new message; the file is written before the message is acknowledged."""
        async with self._lock:
            chats = await self._load()
            known = chats.pop(chat, None) or Chat(kind)
            chats[chat] = known
            known.kind = kind
            if all(earlier.id != question.id for earlier in known.questions):
                known.questions = [*known.questions, question][-MAX_MESSAGES:]
            while len(chats) > MAX_CHATS:
                del chats[next(iter(chats))]
            await self._write()

    async def next_reply(self, chat: str, key: str, preferred: str | None) -> Reply | None:
        """Choose how to send the post with this key: as before, or as a reply to an open question.

        The `preferred` question is used if it is open, otherwise the latest one. None if no
        question is open.
        """
        async with self._lock:
            known = (await self._load()).get(chat)
            if known is None:
                return None
            mark = hashlib.sha256(key.encode()).hexdigest()[:16]
            usable = self._open_questions(known)
            for question in usable:
                if key and mark in question.replies:
                    return Reply(question.id, question.replies.index(mark) + 1, question.event)
            limit = _REPLIES.get(known.kind)
            free = [
                question for question in usable if limit is None or len(question.replies) < limit
            ]
            free.sort(key=lambda question: (question.id == preferred, question.at))
            if not free:
                return None
            free[-1].replies.append(mark)
            await self._write()
            return Reply(free[-1].id, len(free[-1].replies), free[-1].event)

    async def spent(self, chat: str, reply: Reply | None) -> None:
        """Record that QQ accepts no more replies to this message."""
        async with self._lock:
            known = (await self._load()).get(chat)
            for question in known.questions if known is not None else ():
                if reply is not None and question.id == reply.question:
                    question.spent = True
            await self._write()

    def _open_questions(self, chat: Chat) -> list[Question]:
        return [question for question in chat.questions if self._is_open(chat.kind, question)]

    def _is_open(self, kind: ChatKind, question: Question) -> bool:
        age = self._clock.now().timestamp() - question.at
        return not question.spent and age < _SECONDS[kind] - MARGIN

    async def _load(self) -> dict[str, Chat]:
        if self._chats is None:
            stored = await anyio.to_thread.run_sync(self._file.read) or Chats()
            if self._chats is None:
                # Otherwise another call has read the file, and may have added a message since.
                self._chats = stored.chats
        return self._chats

    async def _write(self) -> None:
        chats = await self._load()
        for chat in chats.values():
            chat.questions = self._open_questions(chat)
        try:
            await self._file.write(Chats(chats))
        except OSError as error:
            log.warning("the messages that can be replied to cannot be stored: %s", error)


def written_at(timestamp: str, now: datetime) -> float:
    """Return when a message was written, never later than now: clocks differ."""
    try:
        written = datetime.fromisoformat(timestamp)
    except ValueError:
        return now.timestamp()
    if written.tzinfo is None:
        return now.timestamp()
    return min(written.timestamp(), now.timestamp())
