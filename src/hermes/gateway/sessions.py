"""The session that belongs to a place in a chat."""

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import Struct

from hermes.gateway.letters import platform_of
from hermes.gateway.resets import ResetPolicy
from hermes.kit.clock import Clock
from hermes.kit.failpoints import passing
from hermes.kit.ids import new_session_id
from hermes.ports.store import ChangeSession, OpenSession, Store
from hermes.schema.errors import StoreError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session, SessionChange

_TRIES = 5


class Opened(Struct, frozen=True, kw_only=True):
    """The session to go on in, whether it is new, and why the one before it came to its end."""

    session: Session
    new: bool = False
    before: Session | None = None
    reason: str = ""
    told: str = ""


class ChatSessions:
    def __init__(
        self, store: Store, clock: Clock, cwd: str, resets: ResetPolicy | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._cwd = cwd
        self._resets = resets or ResetPolicy()
        self._running: Callable[[Session], Sequence[datetime]] = _nothing_runs

    def waits_for(self, running: Callable[[Session], Sequence[datetime]]) -> None:
        """Says when the processes began that still run for a session: it is not ended meanwhile."""
        self._running = running

    async def find(self, key: str) -> Session | None:
        return await self._store.seen_by(OWNER).by_key(key)

    async def current(self, key: str, channel: str, principal: str) -> Session:
        """The session that is open there, or a new one."""
        found = await self.find(key)
        return found or await self.begin(key, channel, principal)

    async def opened(self, key: str, channel: str, principal: str) -> Opened:
        """The session for the next turn; one whose time is over is ended first."""
        found = await self.find(key)
        if found is not None and self._resets.asks(key):
            last = await self._store.seen_by(OWNER).active_at(found.id)
            reason = self._resets.due(key, last, self._clock.now())
            if reason is not None and not self._is_needed(key, found):
                await self.end(found, reason)
                return Opened(
                    session=await self.begin(key, channel, principal),
                    new=True,
                    before=found,
                    reason=reason,
                    told=self._resets.sentence(key, reason),
                )
        if found is not None:
            return Opened(session=found)
        return Opened(session=await self.begin(key, channel, principal), new=True)

    def _is_needed(self, key: str, session: Session) -> bool:
        return self._resets.waits_for(key, self._running(session), self._clock.now())

    async def begin(self, key: str, channel: str, principal: str, title: str = "") -> Session:
        for tries_left in reversed(range(_TRIES)):
            now = self._clock.now()
            session = Session(
                id=new_session_id(now),
                started_at=now,
                source=platform_of(channel),
                principal=principal,
                key=key,
                title=title,
                cwd=self._cwd,
            )
            try:
                await self._store.commit(OpenSession(session))
            except StoreError:
                # Ids of one second differ by little, and many may be opened at once.
                if not tries_left or not await self._exists(session.id):
                    raise
                continue
            passing("sessions.opened")
            return session
        raise AssertionError("unreachable")

    async def end(self, session: Session, reason: str) -> None:
        change = SessionChange(ended_at=self._clock.now(), end_reason=reason)
        await self._store.commit(ChangeSession(session.id, change))

    async def _exists(self, session: str) -> bool:
        try:
            await self._store.seen_by(OWNER).get(session)
        except StoreError:
            return False
        return True


def _nothing_runs(session: Session) -> Sequence[datetime]:
    return ()
