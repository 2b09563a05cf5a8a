"""The conversations of the pages: submit, steer, queue, stop, edit and retry."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import anyio
from msgspec import Struct

from hermes.app.build import App
from hermes.kit.ids import new_id
from hermes.ports.store import CompleteItem
from hermes.schema.errors import HermesError, SessionBusy, UsageError
from hermes.schema.events import Event, MessageAdded, RunEnded
from hermes.schema.messages import Media, Text, User, sent_files
from hermes.session.conversation import Conversation, SessionOptions
from hermes.web.live import LiveTurns
from hermes.web.texts import text

log = logging.getLogger(__name__)

SOURCE = "web"
MAX_QUEUED = 20
MAX_UNSAVED = 50

Parts = Sequence[Text | Media]
StartTask = Callable[[Callable[[], Coroutine[Any, Any, None]]], bool]
"""Starts work in the background; False while shutting down."""


class _Queued(Struct, frozen=True, kw_only=True):
    """A message that waits for the running turn, or for the next one."""

    id: str
    parts: tuple[Text | Media, ...]
    steers: bool

    @property
    def words(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class _Open:
    """A session whose turns this server runs."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.queued: list[_Queued] = []
        self.is_ending = False
        """The run has ended; its end is still being stored."""
        self.settled = anyio.Event()
        """Set when the end is stored, or the next turn begins."""


class Conversations:
    """Runs turns for the pages of one profile; all pages see a turn, whichever started it."""

    def __init__(self, app: App, live: LiveTurns, start: StartTask) -> None:
        self._app = app
        self._live = live
        self._start = start
        self._open: dict[str, _Open] = {}
        self._unsaved: dict[str, Conversation] = {}

    @property
    def running(self) -> int:
        return len(self._open)

    def is_running(self, session: str) -> bool:
        return session in self._open

    async def conversation(self, session: str, unsaved: str = "") -> Conversation:
        """A conversation that continues the session, or a new one. Raises `NotFound`.

        `unsaved` names a new one that was kept.
        """
        if not session and unsaved in self._unsaved:
            return self._unsaved[unsaved]
        options = SessionOptions(
            source=SOURCE, cwd=str(self._app.home.workspace), attended=True, async_delivery=True
        )
        conversation = self._app.new_conversation(options)
        if session:
            await conversation.resume(session)
        return conversation

    def keep(self, conversation: Conversation) -> str:
        """Keep a conversation without a message, as a command has changed it; returns its name."""
        name = conversation.session.id
        self._unsaved[name] = conversation
        if len(self._unsaved) > MAX_UNSAVED:
            del self._unsaved[next(iter(self._unsaved))]
        return name

    async def send(
        self, session: str, parts: Parts, *, replaces: str = "", unsaved: str = ""
    ) -> str:
        """Start a turn; returns the session once the message is durable.

        `replaces` is the id of the question that the message takes the place of. Raises
        `SessionBusy` if a turn of the session is running.
        """
        opened = self._open.get(session)
        if opened is not None and opened.is_ending and not opened.queued:
            await opened.settled.wait()
        if session in self._open:
            raise SessionBusy(text("busy"), hint=text("busy_hint"))
        if (live := self._live.get(session)) is not None:
            raise SessionBusy(text("busy"), hint=text("busy_source_hint", source=live.source))
        conversation = await self.conversation(session, unsaved)
        if replaces:
            question = await conversation.replace_from(replaces)
            # Only the text is edited; attached files stay.
            parts = [*parts, *sent_files(question)] if parts else question.parts
        if conversation.session.id in self._open:
            # Another page began meanwhile.
            raise SessionBusy(text("busy"), hint=text("busy_hint"))
        opened = self._open[conversation.session.id] = _Open(conversation)
        self._live.own.add(conversation.session.id)
        stored = await self._submit(opened, parts)
        self._unsaved.pop(unsaved, None)
        return stored

    async def _submit(self, opened: _Open, parts: Parts, message_id: str = "") -> str:
        conversation, session = opened.conversation, opened.conversation.session.id
        accepted, failure = anyio.Event(), list[HermesError]()

        opened.is_ending = False
        opened.settled.set()
        opened.settled = anyio.Event()

        async def emit(event: Event) -> None:
            accepted.set()
            if isinstance(event, RunEnded):
                opened.is_ending = True
            if isinstance(event, MessageAdded) and isinstance(event.message, User):
                self._taken(session, opened, event.message.id)

        async def work() -> None:
            try:
                await conversation.submit(parts, emit, message_id=message_id)
            except HermesError as error:
                failure.append(error)
                # Queued messages are stored, so the session's next turn answers them.
                opened.queued.clear()
                log.warning("a turn of the dashboard failed: %s", error.sentence)
            finally:
                accepted.set()
                self._ended(session, opened)

        if not self._start(work):
            self._close(session, opened)
            raise UsageError(text("shutting_down"))
        await accepted.wait()
        if failure:
            raise failure[0]
        return session

    def _ended(self, session: str, opened: _Open) -> None:
        """Answer messages queued meanwhile in one turn; their rows are already stored."""
        if not opened.queued:
            self._close(session, opened)
            return
        first = opened.queued[0]
        # The row of a steering message that came too late is completed: it is sent as a new one.
        identity = "" if first.steers else first.id
        if first.steers:
            self._taken(session, opened, first.id)

        async def work() -> None:
            try:
                await self._submit(opened, first.parts, identity)
            except HermesError as error:
                self._live.feed.publish("notice", {"text": error.sentence}, session)

        if not self._start(work):
            self._close(session, opened)

    def _close(self, session: str, opened: _Open) -> None:
        opened.settled.set()
        if self._open.get(session) is opened:
            del self._open[session]
            self._live.own.discard(session)

    async def steer(self, session: str, parts: Parts) -> None:
        """Send a message to the running turn; files wait for the next one."""
        opened = self._opened(session)
        words = "".join(part.text for part in parts if isinstance(part, Text))
        identity = new_id("msg")
        queued = _Queued(id=identity, parts=tuple(parts), steers=True)
        if any(isinstance(part, Media) for part in parts):
            await self.queue(session, parts)
            return
        self._add(session, opened, queued)
        if not await opened.conversation.steer(identity, words):
            self._taken(session, opened, identity)
            await self.queue(session, parts)

    async def queue(self, session: str, parts: Parts) -> None:
        """Store a message for the turn after the running one."""
        opened = self._opened(session)
        if len(opened.queued) >= MAX_QUEUED:
            raise UsageError(text("queue_full"))
        identity = await opened.conversation.queue(parts)
        self._add(session, opened, _Queued(id=identity, parts=tuple(parts), steers=False))
        current = self._open.get(session)
        if current is not None and current is not opened:
            # Another turn began in between, and takes over what is queued.
            current.queued += opened.queued
            opened.queued.clear()
            self._publish_queue(session, current)
        elif current is None:
            # The turn ended in between.
            self._open[session] = opened
            self._live.own.add(session)
            self._ended(session, opened)

    async def stop(self, session: str) -> list[str]:
        """Stop the turn; returns the queued messages, which are dropped."""
        opened = self._opened(session)
        words = [one.words for one in opened.queued]
        dropped = [CompleteItem(one.id) for one in opened.queued]
        opened.queued.clear()
        self._publish_queue(session, opened)
        opened.conversation.interrupt()
        await self._app.store.commit(*dropped)
        return words

    def queued(self, session: str) -> list[str]:
        """The texts of messages that wait."""
        opened = self._open.get(session)
        return [] if opened is None else [one.words for one in opened.queued]

    def _opened(self, session: str) -> _Open:
        opened = self._open.get(session)
        if opened is None:
            raise UsageError(text("not_running_here"))
        return opened

    def _add(self, session: str, opened: _Open, queued: _Queued) -> None:
        opened.queued.append(queued)
        self._publish_queue(session, opened)

    def _taken(self, session: str, opened: _Open, identity: str) -> None:
        left = [one for one in opened.queued if one.id != identity]
        if len(left) != len(opened.queued):
            opened.queued = left
            self._publish_queue(session, opened)

    def _publish_queue(self, session: str, opened: _Open) -> None:
        words = [one.words for one in opened.queued]
        self._live.feed.publish("queue", {"texts": words}, session)
