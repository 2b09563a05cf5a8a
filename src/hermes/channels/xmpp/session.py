"""One XMPP session of a channel: rooms, archives, and posts until the server confirms them."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from xml.etree.ElementTree import Element, tostring

import anyio

from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.channels.xmpp.connection import RequestRefused, XmppConnection
from hermes.channels.xmpp.inbound import Rooms
from hermes.channels.xmpp.records import ArchivePosition
from hermes.channels.xmpp.stanzas import (
    MAM,
    RSM,
    StanzaProblem,
    XmppMessage,
    archive_query,
    bare,
    join_element,
    parse_archived,
    parse_message,
    parse_presence,
)
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.channel import NotSent, Offline, TargetGone, Throttled, UnknownOutcome

log = logging.getLogger(__name__)

REPLY_SECONDS = 20.0
"""Seconds between pings."""
CONFIRM_SECONDS = 40.0
RETRY_SECONDS = 30.0
MAX_WAITING = 5_000
PAGE = 100
MAX_PAGES = 50
_GONE = frozenset({
    "gone", "item-not-found", "jid-malformed", "recipient-unavailable", "remote-server-not-found",
    "service-unavailable",
})  # fmt: skip


class PendingPost:
    """A message on its way; `echo` is what a room passed on."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.problem: StanzaProblem | None = None
        self.echo: XmppMessage | None = None


class XmppSession:
    """`handle_message` and `handle_presence` get stanzas; `waiting` outlives the session."""

    def __init__(
        self,
        *,
        own: str,
        rooms: Rooms,
        waiting: deque[XmppMessage],
        unreadable: UnreadableUpdates,
        clock: Clock,
    ) -> None:
        self._own = own
        self._rooms = rooms
        self._waiting = waiting
        self._unreadable = unreadable
        self._clock = clock
        self._arrived = anyio.Event()
        self._presence = anyio.Event()
        self._refused: dict[str, StanzaProblem] = {}
        self._queries: dict[str, list[XmppMessage]] = {}
        self._pending: dict[str, PendingPost] = {}
        self._overflow = anyio.Event()
        self.ready = anyio.Event()

    def handle_message(self, xml: Element) -> None:
        with self._unreadable.skipping(tostring(xml)):
            self._take_message(xml)

    def _take_message(self, xml: Element) -> None:
        if (archived := parse_archived(xml, self._own)) is not None:
            if (found := self._queries.get(archived.query)) is not None:
                found.append(archived.message)
            return
        message = parse_message(xml, self._own)
        post = self._pending.get(message.id)
        if message.problem is not None:
            if post is not None:
                post.problem = message.problem
                post.done.set()
            return
        if message.kind == "groupchat" and message.nick == self._rooms.nick:
            if post is not None:
                post.echo = message
                post.done.set()
            return
        self._put(message)

    def handle_presence(self, xml: Element) -> None:
        presence = parse_presence(xml)
        if presence is None or bare(presence.sender) not in self._rooms.names:
            return
        self._rooms.update(presence)
        if presence.problem is not None:
            self._refused[bare(presence.sender)] = presence.problem
        if presence.own or presence.problem is not None:
            self._presence.set()

    def _put(self, message: XmppMessage) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._overflow.set()
            return
        self._waiting.append(message)
        self._arrived.set()

    async def wait(self) -> None:
        """Wait until a message is waiting."""
        while not self._waiting:
            self._arrived = anyio.Event()
            await self._arrived.wait()

    async def keep_alive(self, connection: XmppConnection) -> None:
        """Notice a dead connection, and messages that cannot be handled fast enough."""
        while True:
            await self._clock.sleep(REPLY_SECONDS)
            try:
                await connection.ping()
            except UnknownOutcome as error:
                raise Offline(str(error)) from error
            if self._overflow.is_set():
                raise Offline("Messages arrive on XMPP faster than they can be handled.")

    async def join(self, connection: XmppConnection, rooms: Sequence[tuple[str, str]]) -> None:
        """Join rooms with their passwords; return once each is joined or refused."""
        self._rooms.joined.clear()
        for room, password in rooms:
            connection.send_presence(f"{room}/{self._rooms.nick}", join_element(password))
        with anyio.move_on_after(REPLY_SECONDS):
            while not all(room in self._rooms.joined | self._refused.keys() for room, _ in rooms):
                self._presence = anyio.Event()
                await self._presence.wait()
        for room, problem in self._refused.items():
            log.warning("the room %s cannot be joined: %s", room, problem.text)

    async def missed(
        self, connection: XmppConnection, archive: str, position: ArchivePosition | None
    ) -> list[XmppMessage]:
        """Messages of an archive after the position, or its last one; none if there is none."""
        found: list[XmppMessage] = []
        after, start = (position.id, None) if position is not None else (None, None)
        for _ in range(MAX_PAGES):
            try:
                page, complete = await self._page(connection, archive, after, start)
            except RequestRefused as error:
                if error.condition != "item-not-found" or position is None or start is not None:
                    log.info("%s has no archive: %s", archive, error)
                    return found
                # The archive no longer has the last message, so continue by time.
                after, start = "", position.at
                continue
            found += page
            if complete or not page or position is None:
                break
            after = page[-1].archive_id
        return found

    async def _page(
        self, connection: XmppConnection, archive: str, after: str | None, start: datetime | None
    ) -> tuple[list[XmppMessage], bool]:
        query = new_id("mam")
        self._queries[query] = []
        max_results = PAGE if after is not None else 1
        try:
            request = archive_query(query, after=after, start=start, max_results=max_results)
            answer = await connection.ask("set", archive, request)
        except UnknownOutcome as error:
            raise Offline(str(error)) from error
        finally:
            messages = self._queries.pop(query)
        end = answer.find(f"{{{MAM}}}fin")
        complete = end is None or end.get("complete") == "true"
        last = end.findtext(f"{{{RSM}}}set/{{{RSM}}}last") if end is not None else None
        return [one for one in messages if self._is_from(one, archive)], complete or not last

    def _is_from(self, message: XmppMessage, archive: str) -> bool:
        """Accept results from the archive itself only, and from a room only its own messages."""
        said_there = message.kind == "groupchat" and message.chat == archive
        return message.archive == archive and (archive == self._own or said_there)

    @asynccontextmanager
    async def confirming(self, message: str) -> AsyncGenerator[PendingPost]:
        post = PendingPost()
        self._pending[message] = post
        try:
            yield post
        finally:
            del self._pending[message]

    async def _confirm(self, connection: XmppConnection) -> None:
        try:
            await connection.ping()
        except Offline as error:
            raise UnknownOutcome(str(error)) from error

    async def send(
        self, connection: XmppConnection, to: str, kind: str, message: str, parts: Sequence[Element]
    ) -> str:
        """Send a message; return the id that a room gave it.

        Raises `NotSent`, or `UnknownOutcome` if the connection is lost on the way.
        """
        async with self.confirming(message) as post:
            connection.send_message(to, kind, message, parts)
            if kind == "groupchat":
                with anyio.move_on_after(CONFIRM_SECONDS):
                    await post.done.wait()
                if not post.done.is_set():
                    raise UnknownOutcome("The room has not confirmed the message.")
            else:
                await self._confirm(connection)
        if post.problem is not None:
            raise _refusal(post.problem)
        return post.echo.archive_id if post.echo is not None else ""


def _refusal(problem: StanzaProblem) -> Exception:
    reason = f"The XMPP server refused it: {problem.text}"
    if problem.condition in _GONE:
        return TargetGone(reason)
    if problem.kind == "wait":
        return Throttled(reason, wait=RETRY_SECONDS)
    return NotSent(reason)
