"""What was brought to a chat from elsewhere is told to the session there, to be asked about."""

import logging
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path

from hermes.gateway.keyholders import is_of_another, keys_at
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.store import Append, Fence, Store
from hermes.schema.errors import SessionBusy
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session
from hermes.session.keys import SessionSource, build_session_key

log = logging.getLogger(__name__)

KINDS = ("dm", "group", "channel", "thread", "forum")
MOST = 20
"""How many sessions of one group are told."""

TRIES = 30
PAUSE = 2.0
"""Seconds between two looks at a session that is in the middle of a turn."""


class Mirror:
    """`holding` keeps others away from a session while something is added to it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        profile: str,
        holding: Callable[[str], AbstractAsyncContextManager[int]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._profile = profile
        self._holding = holding

    async def add(self, address: Address, text: str, tries: int = TRIES) -> bool:
        """As something to know of, which neither the agent nor its owner has said there.

        Where everybody in a group has a session of their own, all of them are told. False when
        no session is open there, or one is busy.
        """
        sessions = await self._sessions_at(address)
        told = [await self._tell(session, text, tries) for session in sessions]
        return bool(told) and all(told)

    async def _tell(self, session: Session, text: str, tries: int) -> bool:
        for tries_left in reversed(range(tries)):
            try:
                await self._append(session, text)
            except SessionBusy:
                if tries_left:
                    await self._clock.sleep(PAUSE)
                continue
            return True
        log.warning("session %s was busy and does not know what was sent there", session.id)
        return False

    async def _append(self, session: Session, text: str) -> None:
        said = User(new_id("msg"), (Text(_framed(text)),), Trust.DATA)
        async with self._holding(session.id) as generation:
            fence = Fence(session.id, generation)
            await self._store.commit(Append(session.id, "", said, self._clock.now()), fence=fence)

    async def _sessions_at(self, address: Address) -> list[Session]:
        """Of a home that is older than the list of keys, only shared sessions are found."""
        archive = self._store.seen_by(OWNER)
        found: dict[str, Session] = {}
        for key in [*await keys_at(self._store, address), *self._likely_keys(address)]:
            session = await archive.by_key(key)
            if session is not None and not await is_of_another(self._store, key, address):
                found[session.id] = session
        return list(found.values())[:MOST]

    def _likely_keys(self, address: Address) -> list[str]:
        """Which kind of chat it is, only the session's own key knows."""
        keys: list[str] = []
        for kind in KINDS:
            source = SessionSource(
                platform=address.channel,
                chat_id=address.chat,
                thread_id=address.thread,
                chat_type=kind,
            )
            keys.append(build_session_key(source, profile=self._profile))
        return keys


def _framed(text: str) -> str:
    """The marks have a name that nobody outside can know, so no text can end them early."""
    mark = secrets.token_hex(4)
    opened, closed = f"<data-{mark}>", f"</data-{mark}>"
    frame = _frame().replace("@open@", opened).replace("@close@", closed)
    return f"{frame}\n{opened}{text}{closed}"


@cache
def _frame() -> str:
    return (Path(__file__).parent / "mirror.md").read_text(encoding="utf-8").strip()
