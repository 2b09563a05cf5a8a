"""Handle the inbox of API sessions: events after a request's turn, and interrupted turns.

An event that arrives after its turn starts a new turn, which programs receive through the callback
or the session's event stream. An interrupted turn is not run again: its client is gone and may
repeat the request.
"""

import logging
from collections.abc import Sequence
from itertools import count

import anyio
import anyio.abc
import msgspec

from hermes.api.answer_text import assistant_text
from hermes.api.callbacks import (
    MESSAGE_EVENT,
    CallbackChannel,
    callback_post,
    secret_box_of,
    session_address,
)
from hermes.api.errors import ApiError
from hermes.api.turn_gate import SOURCE, TurnGate, is_own_session
from hermes.app.build import App
from hermes.app.followup_router import SESSION_FOLLOWUPS, FollowupMessage
from hermes.gateway.cross_post import CrossPoster
from hermes.gateway.delivery import Delivery
from hermes.gateway.delivery_rules import DeadTargets, DeliveryRules
from hermes.gateway.messages import CHAT_KEY_PREFIX, INBOX, wake_outbox
from hermes.gateway.notices import OutageNotices
from hermes.gateway.questions import QuestionPosts
from hermes.gateway.rate_limiter import RateLimiter
from hermes.kit.clock import Clock
from hermes.kit.retry import Backoff
from hermes.kit.tasks import BackgroundTasks
from hermes.ports.bus import Wakeups
from hermes.ports.store import AppendMessage, CompleteItem, QueueItem, Write
from hermes.schema.errors import HermesError, NotFound, SessionBusy, StoreError
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Message, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.session.turn_request import TurnRequest

log = logging.getLogger(__name__)

MAX_CALLBACKS = 1_000_000
BUSY_RETRY = 0.5
"""Seconds before a busy session is tried again."""
STORE_RETRY = Backoff(base=0.5, cap=60.0)
"""While the store cannot be used."""
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
        self._dead = DeadTargets(app.store)
        self._delivery = _callback_delivery(app, self._channel, self._dead)
        self._sessions: set[str] | None = None
        self._woken: dict[str, None] = {}
        self._serving: set[str] = set()

    async def run(self) -> None:
        await self._dead.load()
        async with self._channel, anyio.create_task_group() as group:
            group.start_soon(self._delivery.run)
            # Listening begins before the rows are listed, so that none is missed.
            with self.app.bus.listen(SESSION_FOLLOWUPS) as wakeups:
                await self._serve_woken(wakeups, group)

    async def has_callback(self, session: str) -> bool:
        if self._sessions is None:
            found = await self.app.store.api.sessions_with_callback(MAX_CALLBACKS)
            self._sessions = set(found)
        return session in self._sessions

    async def callback_changed(self, session: str, *, on: bool) -> None:
        """Handle a registered or removed callback, already stored."""
        self._sessions = None
        if on:
            await self._dead.revive(session_address(session))

    def wake_delivery(self, session: str) -> None:
        wake_outbox(self.app.bus, session_address(session))

    async def drain(self) -> None:
        await self._delivery.drain()

    async def _serve_woken(self, wakeups: Wakeups, group: anyio.abc.TaskGroup) -> None:
        topics = await self.app.store.queues.topics(INBOX)
        found = [topic for topic in topics if not topic.startswith(CHAT_KEY_PREFIX)]
        self._woken |= dict.fromkeys(found)
        while True:
            for session in [one for one in self._woken if one not in self._serving]:
                del self._woken[session]
                self._serving.add(session)
                group.start_soon(self._serve, session)
            await wakeups.wait()
            self._woken |= dict.fromkeys(wakeups.take())

    async def _serve(self, session: str) -> None:
        try:
            while (found := await self._find_messages(session)) is not None:
                await self._answer(*found)
                await self.app.clock.sleep(BUSY_RETRY)
        except HermesError as error:
            log.warning("cannot wake session %s: %s", session, error)
        except Exception:
            # A failure must not affect other sessions.
            log.exception("cannot wake session %s", session)
        finally:
            self._serving.discard(session)
            if session in self._woken:
                # It was skipped because it was busy.
                self.app.bus.wake_here(SESSION_FOLLOWUPS, session)

    async def _find_messages(self, identity: str) -> tuple[Session, list[FollowupMessage]] | None:
        """The messages that are to be answered; None if there are none.

        Waits while the store cannot be used: nothing else would wake the session.
        """
        for failures in count(1):
            try:
                session = await self.app.store.archive_for(OWNER).get(identity)
                messages = await self._claim_messages(session) if session.source == SOURCE else []
            except NotFound:
                return None
            except StoreError as error:
                log.warning("cannot wake session %s yet: %s", identity, error)
                await self.app.clock.sleep(STORE_RETRY.delay(failures))
            else:
                return (session, messages) if messages else None
        raise AssertionError("unreachable")

    async def _answer(self, session: Session, messages: Sequence[FollowupMessage]) -> None:
        """Run a turn for the next message; a busy session is tried again."""
        try:
            await self._wake(session, messages[0])
        except (SessionBusy, ApiError):
            return
        except HermesError as error:
            # Release the claim: the messages stay until the session is woken again.
            queues, now = self.app.store.queues, self.app.clock.now()
            for message in messages:
                await queues.retry(message.id, now, error.sentence)
            raise

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
        return [
            message for message in found if message.news and is_own_session(session, message.role)
        ]

    async def _wake(self, session: Session, message: FollowupMessage) -> None:
        request = TurnRequest(
            session=session,
            message=User(message.id, message.parts, message.trust),
            role=message.role,
        )
        reports_end = await self.has_callback(session.id)
        reader = _FollowupReader(request, self.app.clock, reports_end=reports_end)
        await self._turn_gate.run_turn(self.app, request, reader)
        self.wake_delivery(session.id)


def _callback_delivery(app: App, channel: CallbackChannel, dead: DeadTargets) -> Delivery:
    background, limiter = BackgroundTasks(), RateLimiter(app.clock, channel.caps)
    return Delivery(
        store=app.store,
        clock=app.clock,
        bus=app.bus,
        name=SOURCE,
        channel=channel,
        online=lambda: True,
        rate_limiter=limiter,
        dead=dead,
        questions=QuestionPosts(app.store, app.clock),
        outages=OutageNotices(
            clock=app.clock, channels={}, rate_limiters={}, background=background
        ),
        cross_posts=CrossPoster(
            store=app.store,
            clock=app.clock,
            profile=app.home.profile,
            holding=app.runner.holding,
            background=background,
        ),
        rules=DeliveryRules(),
    )


class _FollowupReader:
    """Reports the end to the callback; followers of the session read the stored events."""

    def __init__(self, request: TurnRequest, clock: Clock, *, reports_end: bool) -> None:
        self._request = request
        self._clock = clock
        self._reports_end = reports_end

    def on_event(self, event: Event) -> None: ...

    async def flush(self) -> None: ...

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        if not self._reports_end:
            return ()
        run, session, done = ended.run, self._request.session.id, ended.outcome is Outcome.DONE
        data: dict[str, object] = {
            "run_id": run,
            "text": assistant_text(messages),
            "completed": done,
        }
        data |= {} if done else {"error": ended.reason, "error_code": ended.code}
        return [callback_post(f"due:{run}", session, MESSAGE_EVENT, self._clock.now(), data)]


async def settle_interrupted_turns(app: App) -> int:
    """Add the messages of turns whose process is gone to their sessions, for the next turn.

    Returns how many were settled. Sessions held by another process are skipped.
    """
    by_session: dict[str, list[QueueItem]] = {}
    for item in await app.store.queues.unfinished(INBOX, MAX_INTERRUPTED):
        if not item.topic.startswith(CHAT_KEY_PREFIX):
            by_session.setdefault(item.topic, []).append(item)
    settled = 0
    for session, items in by_session.items():
        try:
            settled += await _settle_session(app, session, items)
        except SessionBusy:
            continue
    if settled:
        log.warning("added %d messages of interrupted turns to their transcripts", settled)
    return settled


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
