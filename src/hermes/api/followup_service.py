"""Handle the inbox of API sessions: events after a request's turn, and interrupted turns.

An event that arrives after its turn starts a new turn, which programs receive through the callback
or the session's event stream. An interrupted turn is not run again: its client is gone and may
repeat the request.
"""

import logging
from collections.abc import Sequence

import anyio
import anyio.abc
import msgspec

from hermes.api.answer_text import assistant_text
from hermes.api.callbacks import (
    CALLBACK_KIND,
    MESSAGE_EVENT,
    CallbackChannel,
    callback_post,
    secret_box_of,
    session_address,
)
from hermes.api.errors import ApiError
from hermes.api.turn_gate import SOURCE, ApiTurnRequest, TurnGate, is_own_session
from hermes.app.build import App
from hermes.app.followups import FollowupMessage
from hermes.gateway.delivery import Delivery
from hermes.gateway.delivery_rules import DeadTargets
from hermes.gateway.messages import CHAT_KEY_PREFIX, INBOX, topic_of
from hermes.kit.ids import new_id
from hermes.ports.store import AppendMessage, CompleteItem, QueueItem, Write
from hermes.schema.errors import HermesError, NotFound, SessionBusy
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Message, User
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session

log = logging.getLogger(__name__)

MAX_CALLBACKS = 1_000_000
BUSY_RETRY = 0.5
"""Seconds before a busy session is tried again."""
MAX_CLAIMED = 100
MAX_INTERRUPTED = 10_000


class FollowupService:
    """One profile's followups; `run` lasts as long as the profile is served."""

    def __init__(self, app: App, turn_gate: TurnGate, *, allow_private: bool) -> None:
        self.app = app
        self._turn_gate = turn_gate
        secret_box = secret_box_of(app.home)
        self._channel = CallbackChannel(
            app.store, app.clock, secret_box, allow_private=allow_private
        )
        self._dead = DeadTargets(app.store, app.clock)
        self._delivery = Delivery(app.store, app.clock, SOURCE, self._channel, self._dead)
        self._sessions: set[str] | None = None
        self._woken: dict[str, None] = {}
        self._wake_event = anyio.Event()
        self._serving: set[str] = set()

    async def run(self) -> None:
        await self._dead.load()
        self.app.followups.set_wake_elsewhere(self._on_wake)
        async with self._channel, anyio.create_task_group() as group:
            group.start_soon(self._delivery.run)
            for topic in await self.app.store.queues.topics(INBOX):
                if not topic.startswith(CHAT_KEY_PREFIX):
                    self._woken[topic] = None
            await self._serve_woken(group)

    async def has_callback(self, session: str) -> bool:
        if self._sessions is None:
            records = await self.app.store.records.find(
                CALLBACK_KIND, only_open=True, limit=MAX_CALLBACKS
            )
            self._sessions = {record.session for record in records}
        return session in self._sessions

    async def callback_changed(self, session: str, *, on: bool) -> None:
        """Handle a registered or removed callback, already stored."""
        self._sessions = None
        if on:
            await self._dead.revive(session_address(session))

    def wake_delivery(self, session: str) -> None:
        self._delivery.wake(topic_of(session_address(session)))

    async def drain(self) -> None:
        await self._delivery.drain()

    def _on_wake(self, scope: Scope) -> None:
        self._woken[scope.session] = None
        self._wake_event.set()

    async def _serve_woken(self, group: anyio.abc.TaskGroup) -> None:
        while True:
            self._wake_event = anyio.Event()
            for session in [one for one in self._woken if one not in self._serving]:
                del self._woken[session]
                self._serving.add(session)
                group.start_soon(self._serve, session)
            await self._wake_event.wait()

    async def _serve(self, session: str) -> None:
        try:
            while await self._answer(session):
                await self.app.clock.sleep(BUSY_RETRY)
        except HermesError as error:
            log.warning("cannot wake session %s: %s", session, error)
        except Exception:
            # A failure must not affect other sessions.
            log.exception("cannot wake session %s", session)
        finally:
            self._serving.discard(session)
            self._wake_event.set()

    async def _answer(self, identity: str) -> bool:
        """Run a turn for the next message; return whether to try again."""
        try:
            session = await self.app.store.archive_for(OWNER).get(identity)
        except NotFound:
            return False
        if session.source != SOURCE or not (messages := await self._claim_messages(session)):
            return False
        try:
            await self._wake(session, messages[0])
        except (SessionBusy, ApiError):
            return True
        except HermesError as error:
            # Release the claim: the messages stay until the session is woken again.
            queues, now = self.app.store.queues, self.app.clock.now()
            for message in messages:
                await queues.retry(message.id, now, error.sentence)
            raise
        # More may have arrived meanwhile.
        return True

    async def _claim_messages(self, session: Session) -> list[FollowupMessage]:
        queues, worker = self.app.store.queues, self.app.store.workers.own
        items = await queues.claim(INBOX, session.id, worker, None, MAX_CLAIMED)
        found: list[FollowupMessage] = []
        for item in items:
            try:
                found.append(msgspec.json.decode(item.body, type=FollowupMessage))
            except msgspec.MsgspecError:
                continue  # The next turn of the session reports it.
        # User messages of an interrupted turn are for the user to repeat; messages of another role
        # are read by the session's next turn but do not start one.
        return [one for one in found if one.news and is_own_session(session, one.role)]

    async def _wake(self, session: Session, message: FollowupMessage) -> None:
        run = new_id("run")
        has_callback = await self.has_callback(session.id)

        def final_writes(ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
            if not has_callback:
                return ()
            done = ended.outcome is Outcome.DONE
            data: dict[str, object] = {
                "run_id": run,
                "text": assistant_text(messages),
                "completed": done,
            }
            data |= {} if done else {"error": ended.reason, "error_code": ended.code}
            now = self.app.clock.now()
            return [callback_post(f"due:{run}", session.id, MESSAGE_EVENT, now, data)]

        request = ApiTurnRequest(
            session=session,
            question=User(message.id, message.parts, message.trust),
            role=message.role,
            run=run,
            followed=True,
            final_writes=final_writes,
        )
        await self._turn_gate.run_turn(self.app, request, _ignore_event)
        self.wake_delivery(session.id)


async def _ignore_event(event: Event) -> None:
    """Ignore it: followers of the session read the stored events."""


async def settle_interrupted_turns(app: App) -> int:
    """Add the messages of turns whose process is gone to their sessions, for the next turn.

    Returns how many were settled. Sessions held by another process are skipped.
    """
    by_session: dict[str, list[QueueItem]] = {}
    for item in await app.store.queues.unfinished(INBOX, MAX_INTERRUPTED):
        if not item.topic.startswith(CHAT_KEY_PREFIX):
            by_session.setdefault(item.topic, []).append(item)
    count = 0
    for session, items in by_session.items():
        try:
            count += await _settle_session(app, session, items)
        except SessionBusy:
            continue
    if count:
        log.warning("added %d messages of interrupted turns to their transcripts", count)
    return count


async def _settle_session(app: App, session: str, items: Sequence[QueueItem]) -> int:
    archive = app.store.archive_for(OWNER)
    try:
        await archive.get(session)
    except NotFound:
        # The session was deleted with everything in it.
        await app.store.commit(*(CompleteItem(item.key) for item in items))
        return len(items)
    async with app.runner.holding(session) as lease:
        messages = [row.message for row in await archive.messages(session)]
        messages = await app.runner.close_calls(lease, messages)
        known = {message.id for message in messages}
        writes: list[Write] = []
        now = app.clock.now()
        for item in items:
            user = await _read_message(app, item)
            if user is None:
                continue
            if user.id not in known:
                writes.append(AppendMessage(session, "", user, now))
            writes.append(CompleteItem(item.key))
        await app.store.commit(*writes, fence=lease.fence)
        return sum(isinstance(write, CompleteItem) for write in writes)


async def _read_message(app: App, item: QueueItem) -> User | None:
    """Return None for followups, which start a turn, and for unreadable items."""
    try:
        followup = msgspec.json.decode(item.body, type=FollowupMessage)
    except msgspec.MsgspecError as error:
        log.warning("cannot read inbox item %s: %s", item.key, error)
        await app.store.queues.park(item.key, f"Cannot be read: {error}")
        return None
    return None if followup.news else User(followup.id, followup.parts, followup.trust)
