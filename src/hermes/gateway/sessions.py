"""The session that belongs to a place in a chat."""

from hermes.kit.clock import Clock
from hermes.kit.ids import new_session_id
from hermes.ports.store import ChangeSession, OpenSession, Store
from hermes.schema.errors import StoreError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session, SessionChange

_TRIES = 5


class ChatSessions:
    def __init__(self, store: Store, clock: Clock, cwd: str) -> None:
        self._store = store
        self._clock = clock
        self._cwd = cwd

    async def find(self, key: str) -> Session | None:
        return await self._store.seen_by(OWNER).by_key(key)

    async def current(self, key: str, channel: str, principal: str) -> Session:
        """The session that is open there, or a new one."""
        found = await self.find(key)
        return found or await self.begin(key, channel, principal)

    async def begin(self, key: str, channel: str, principal: str, title: str = "") -> Session:
        for tries_left in reversed(range(_TRIES)):
            now = self._clock.now()
            session = Session(
                id=new_session_id(now),
                started_at=now,
                source=channel,
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
