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

from hermes.api.callback_channel import MESSAGE, CallbackChannel
from hermes.api.callbacks import KIND, due_post, place_of
from hermes.api.entry import SOURCE, Ask, Entry
from hermes.api.errors import ApiError
from hermes.api.ownership import is_own
from hermes.api.seal import seal_of
from hermes.api.words import spoken_text
from hermes.app.build import App
from hermes.app.later import News
from hermes.gateway.dead_targets import DeadTargets
from hermes.gateway.delivery import Delivery
from hermes.gateway.letters import INBOX, OURS, topic_of
from hermes.kit.holder import this_process
from hermes.kit.ids import new_id
from hermes.ports.store import Write
from hermes.schema.errors import HermesError, NotFound, SessionBusy
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Message, User
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session

log = logging.getLogger(__name__)

MOST = 1_000_000
AGAIN = 0.5
"""Seconds after which a session that was busy is asked again."""
MOST_LETTERS = 100


class Office:
    """`run` it for as long as the profile is served."""

    def __init__(self, app: App, entry: Entry, *, private: bool) -> None:
        self.app = app
        self._entry = entry
        seal = seal_of(app.home)
        self._channel = CallbackChannel(app.store, app.clock, seal, private=private)
        self._dead = DeadTargets(app.store, app.clock)
        self._delivery = Delivery(app.store, app.clock, SOURCE, self._channel, self._dead)
        self._sessions: set[str] | None = None
        self._rung: dict[str, None] = {}
        self._bell = anyio.Event()
        self._serving: set[str] = set()

    async def run(self) -> None:
        await self._dead.load()
        self.app.later.rings_elsewhere(self._ring)
        async with self._channel, anyio.create_task_group() as group:
            group.start_soon(self._delivery.run)
            for topic in await self.app.store.lanes.topics(INBOX):
                if not topic.startswith(OURS):
                    self._rung[topic] = None
            await self._answer_bells(group)

    async def calls_back(self, session: str) -> bool:
        """Whether what comes later can be brought to somebody there."""
        if self._sessions is None:
            matters = await self.app.store.matters.find(KIND, only_open=True, limit=MOST)
            self._sessions = {matter.session for matter in matters}
        return session in self._sessions

    async def changed(self, session: str, *, on: bool) -> None:
        """A callback was registered or taken away, on disk."""
        self._sessions = None
        if on:
            await self._dead.revive(place_of(session))

    def posted(self, session: str) -> None:
        """Something is due there."""
        self._delivery.wake(topic_of(place_of(session)))

    async def drain(self) -> None:
        await self._delivery.drain()

    def _ring(self, scope: Scope) -> None:
        self._rung[scope.session] = None
        self._bell.set()

    async def _answer_bells(self, group: anyio.abc.TaskGroup) -> None:
        while True:
            self._bell = anyio.Event()
            for session in [one for one in self._rung if one not in self._serving]:
                del self._rung[session]
                self._serving.add(session)
                group.start_soon(self._serve, session)
            await self._bell.wait()

    async def _serve(self, session: str) -> None:
        try:
            while await self._answer(session):
                await self.app.clock.sleep(AGAIN)
        except HermesError as error:
            log.warning("session %s could not be woken: %s", session, error)
        except Exception:
            # One session's trouble is not the others'.
            log.exception("session %s could not be woken", session)
        finally:
            self._serving.discard(session)
            self._bell.set()

    async def _answer(self, identity: str) -> bool:
        """Whether it must be tried again: the session is in the middle of another turn."""
        try:
            session = await self.app.store.seen_by(OWNER).get(identity)
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
            lanes, now = self.app.store.lanes, self.app.clock.now()
            for letter in letters:
                await lanes.retry(letter.id, now, error.sentence)
            raise
        # Others may have come meanwhile.
        return True

    async def _letters(self, session: Session) -> list[News]:
        lanes = self.app.store.lanes
        nothing = timedelta(0)
        parcels = await lanes.claim(INBOX, session.id, this_process(), nothing, MOST_LETTERS)
        found: list[News] = []
        for parcel in parcels:
            try:
                found.append(msgspec.json.decode(parcel.body, type=News))
            except msgspec.MsgspecError:
                continue  # Whoever takes up the session next says so.
        # What somebody said and a crash cut off is theirs to say again; what belongs to another
        # role than the session does is heard by its next turn, and begins none.
        return [one for one in found if one.news and is_own(session, one.role)]

    async def _wake(self, session: Session, letter: News) -> None:
        run = new_id("run")
        followed = await self.calls_back(session.id)

        def closing(ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
            if not followed:
                return ()
            done = ended.outcome is Outcome.DONE
            data: dict[str, object] = {"run_id": run, "text": spoken_text(said), "completed": done}
            data |= {} if done else {"error": ended.reason, "error_code": ended.code}
            return [due_post(f"due:{run}", session.id, MESSAGE, self.app.clock.now(), data)]

        said = User(letter.id, letter.parts, letter.trust)
        ask = Ask(
            session=session,
            asked=said,
            role=letter.role,
            run=run,
            followed=True,
            closing=closing,
        )
        await self._entry.enter(self.app, ask, _nobody_listens)
        self.posted(session.id)


async def _nobody_listens(event: Event) -> None:
    """It is on disk, and whoever follows the session reads it there."""
