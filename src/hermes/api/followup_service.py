"""What comes after its request, for one profile's sessions: brought to callbacks, and answered.

Something that ended after its turn lies in the inbox of its session. Here it wakes the session:
a turn is run for it, which a program hears of at its callback or on the session's events.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta

import anyio
import anyio.abc
import msgspec

from hermes.api.answer_text import assistant_text
from hermes.api.callbacks import (
    CALLBACK_KIND,
    MESSAGE_EVENT,
    CallbackChannel,
    callback_post,
    session_address,
)
from hermes.api.errors import ApiError
from hermes.api.secret_box import secret_box_of
from hermes.api.turn_gate import SOURCE, ApiTurnRequest, TurnGate, is_own_session
from hermes.app.build import App
from hermes.app.followups import FollowupMessage
from hermes.gateway.dead_targets import DeadTargets
from hermes.gateway.delivery import Delivery
from hermes.gateway.messages import CHAT_KEY_PREFIX, INBOX, topic_of
from hermes.kit.ids import new_id
from hermes.kit.process_identity import process_id
from hermes.ports.store import Write
from hermes.schema.errors import HermesError, NotFound, SessionBusy
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Message, User
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session

log = logging.getLogger(__name__)

MAX_CALLBACKS = 1_000_000
BUSY_RETRY = 0.5
"""Seconds after which a session that was busy is asked again."""
MAX_CLAIMED = 100


class FollowupService:
    """`run` it for as long as the profile is served."""

    def __init__(self, app: App, entry: TurnGate, *, private: bool) -> None:
        self.app = app
        self._entry = entry
        seal = secret_box_of(app.home)
        self._channel = CallbackChannel(app.store, app.clock, seal, private=private)
        self._dead = DeadTargets(app.store, app.clock)
        self._delivery = Delivery(app.store, app.clock, SOURCE, self._channel, self._dead)
        self._sessions: set[str] | None = None
        self._woken: dict[str, None] = {}
        self._wake_event = anyio.Event()
        self._serving: set[str] = set()

    async def run(self) -> None:
        await self._dead.load()
        self.app.later.set_wake_elsewhere(self._ring)
        async with self._channel, anyio.create_task_group() as group:
            group.start_soon(self._delivery.run)
            for topic in await self.app.store.queues.topics(INBOX):
                if not topic.startswith(CHAT_KEY_PREFIX):
                    self._woken[topic] = None
            await self._serve_woken(group)

    async def has_callback(self, session: str) -> bool:
        """Whether what comes later can be brought to somebody there."""
        if self._sessions is None:
            records = await self.app.store.records.find(
                CALLBACK_KIND, only_open=True, limit=MAX_CALLBACKS
            )
            self._sessions = {matter.session for matter in records}
        return session in self._sessions

    async def changed(self, session: str, *, on: bool) -> None:
        """A callback was registered or taken away, on disk."""
        self._sessions = None
        if on:
            await self._dead.revive(session_address(session))

    def posted(self, session: str) -> None:
        """Something is due there."""
        self._delivery.wake(topic_of(session_address(session)))

    async def drain(self) -> None:
        await self._delivery.drain()

    def _ring(self, scope: Scope) -> None:
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
            log.warning("session %s could not be woken: %s", session, error)
        except Exception:
            # One session's trouble is not the others'.
            log.exception("session %s could not be woken", session)
        finally:
            self._serving.discard(session)
            self._wake_event.set()

    async def _answer(self, identity: str) -> bool:
        """Whether it must be tried again: the session is in the middle of another turn."""
        try:
            session = await self.app.store.archive_for(OWNER).get(identity)
        except NotFound:
            return False
        if session.source != SOURCE or not (letters := await self._letters(session)):
            return False
        try:
            await self._wake(session, letters[0])
        except (SessionBusy, ApiError):
            return True
        except HermesError as error:
            # Nobody is at it any more: it waits for the next time that the session is woken.
            queues, now = self.app.store.queues, self.app.clock.now()
            for letter in letters:
                await queues.retry(letter.id, now, error.sentence)
            raise
        # Others may have come meanwhile.
        return True

    async def _letters(self, session: Session) -> list[FollowupMessage]:
        queues = self.app.store.queues
        nothing = timedelta(0)
        items = await queues.claim(INBOX, session.id, process_id(), nothing, MAX_CLAIMED)
        found: list[FollowupMessage] = []
        for parcel in items:
            try:
                found.append(msgspec.json.decode(parcel.body, type=FollowupMessage))
            except msgspec.MsgspecError:
                continue  # Whoever takes up the session next says so.
        # What somebody said and a crash cut off is theirs to say again; what belongs to another
        # role than the session does is heard by its next turn, and begins none.
        return [one for one in found if one.news and is_own_session(session, one.role)]

    async def _wake(self, session: Session, letter: FollowupMessage) -> None:
        run = new_id("run")
        followed = await self.has_callback(session.id)

        def closing(ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
            if not followed:
                return ()
            done = ended.outcome is Outcome.DONE
            data: dict[str, object] = {
                "run_id": run,
                "text": assistant_text(said),
                "completed": done,
            }
            data |= {} if done else {"error": ended.reason, "error_code": ended.code}
            return [
                callback_post(f"due:{run}", session.id, MESSAGE_EVENT, self.app.clock.now(), data)
            ]

        said = User(letter.id, letter.parts, letter.trust)
        ask = ApiTurnRequest(
            session=session,
            asked=said,
            role=letter.role,
            run=run,
            followed=True,
            closing=closing,
        )
        await self._entry.enter(self.app, ask, _ignore_event)
        self.posted(session.id)


async def _ignore_event(event: Event) -> None:
    """It is on disk, and whoever follows the session reads it there."""
