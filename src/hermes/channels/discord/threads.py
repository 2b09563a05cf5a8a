"""Open threads for conversations in servers' channels, when the answer begins.

A thread that is opened from a message has the message's id. An address can therefore name a thread
before it exists, and no thread is opened for people whom the gateway rejects.
"""

import logging
import re

from hermes.channels.discord.chats import ChatDirectory
from hermes.channels.discord.message_text import readable
from hermes.channels.discord.objects import Channel
from hermes.channels.discord.rest_api import RestApi, ThreadExists, UnknownChannel
from hermes.kit.lru_map import LruMap
from hermes.kit.text import one_line
from hermes.ports.channel import NotSent, Offline, Throttled
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

MAX_NAME = 100
ARCHIVE_MINUTES = 1440
MAX_REMEMBERED = 5_000
NO_NAME = "Conversation"
_MENTION = re.compile(r"<[@#][!&]?\d+>")


class Threads:
    """Tracks the threads to open, those the bot takes part in, and those it cannot open."""

    def __init__(self, api: RestApi, chats: ChatDirectory) -> None:
        self._api = api
        self._chats = chats
        self._expected: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """Names of threads that do not exist yet, by the message that opens them."""
        self._own: LruMap[str, bool] = LruMap(MAX_REMEMBERED)
        self._refused: LruMap[str, bool] = LruMap(MAX_REMEMBERED)

    def expect(self, message: str, text: str) -> None:
        """Record that the conversation of this message gets a thread."""
        if self._own.get(message) is None:
            self._expected.put(message, thread_name(text))

    def begins_with(self, message: str) -> bool:
        """Whether the message has a thread, opened or not."""
        return self._expected.get(message) is not None or self._own.get(message) is not None

    def join(self, thread: str) -> None:
        self._own.put(thread, True)

    def takes_part(self, thread: Channel, bot: str) -> bool:
        return (
            thread.owner_id == bot
            or thread.member is not None
            or self._own.get(thread.id) is not None
        )

    def was_refused(self, to: Address) -> bool:
        """Whether the thread cannot be opened, so that posts go to the channel instead."""
        return bool(to.thread) and self._refused.get(to.thread or "") is not None

    async def destination(self, to: Address) -> str:
        """Return the channel for a post, and open its thread if it is expected."""
        if not to.thread:
            return to.chat
        if (name := self._expected.get(to.thread)) is not None:
            await self._open(to.chat, to.thread, name)
        return to.chat if self.was_refused(to) else to.thread

    async def open_missing(self, to: Address) -> bool:
        """Open a thread that Discord does not know; False if there is no message for it."""
        if not to.thread or self.was_refused(to):
            return False
        try:
            message = await self._api.message(to.chat, to.thread)
        except (NotSent, UnknownChannel):
            return False
        await self._open(to.chat, to.thread, thread_name(readable(message.content, ())))
        return True

    async def _open(self, chat: str, message: str, name: str) -> None:
        path = f"/channels/{chat}/messages/{message}/threads"
        fields = {"name": name, "auto_archive_duration": ARCHIVE_MINUTES}
        try:
            self._chats.add(await self._api.call_with_retries("POST", path, Channel, fields))
        except ThreadExists:
            log.debug("message %s already has a thread", message)
        except (Offline, Throttled):
            raise
        except NotSent as error:
            log.warning("no thread can be opened in channel %s: %s", chat, error)
            self._refused.put(message, True)
        else:
            self._own.put(message, True)
        self._expected.drop(message)


def thread_name(text: str) -> str:
    """Derive a thread name from the first line of a message."""
    plain = _MENTION.sub("", text).strip()
    return one_line(plain.partition("\n")[0], MAX_NAME - 20) or NO_NAME
