"""What was brought to a chat from elsewhere is told to the session there, to be asked about."""

import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Raw

from hermes.gateway.messages import INBOX
from hermes.gateway.session_keys import belongs_to_other_address, keys_at
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.store import AppendMessage, EnqueueItem, QueueItem, Store
from hermes.schema.errors import SessionBusy
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session
from hermes.session.keys import SessionSource, build_session_key
from hermes.session.lease import Lease

CHAT_TYPES = ("dm", "group", "channel", "thread", "forum")
MAX_SESSIONS = 20
"""How many sessions of one group are told."""


class CrossPoster:
    """`holding` keeps others away from a session while something is added to it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        profile: str,
        holding: Callable[[str], AbstractAsyncContextManager[Lease]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._profile = profile
        self._holding = holding

    async def add(self, address: Address, text: str) -> bool:
        """As something to know of, which neither the agent nor its owner has said there.

        Where everybody in a group has a session of their own, all of them are told. False when
        no session is open there.
        """
        sessions = await self._sessions_at(address)
        for session in sessions:
            await self._tell(session, User(new_id("msg"), (Text(_framed(text)),), Trust.DATA))
        return bool(sessions)

    async def _tell(self, session: Session, said: User) -> None:
        """In the middle of a turn it waits on disk; the next one takes it up before it answers."""
        try:
            await self._append(session, said)
        except SessionBusy:
            body = Raw(msgspec.json.encode(said))
            parcel = QueueItem(key=said.id, lane=INBOX, topic=session.id, body=body)
            await self._store.commit(EnqueueItem(parcel))

    async def _append(self, session: Session, said: User) -> None:
        async with self._holding(session.id) as lease:
            told = AppendMessage(session.id, "", said, self._clock.now())
            await self._store.commit(told, fence=lease.fence)

    async def _sessions_at(self, address: Address) -> list[Session]:
        """Of a home that is older than the list of keys, only shared sessions are found."""
        archive = self._store.archive_for(OWNER)
        found: dict[str, Session] = {}
        for key in [*await keys_at(self._store, address), *self._likely_keys(address)]:
            session = await archive.by_key(key)
            if session is not None and not await belongs_to_other_address(
                self._store, key, address
            ):
                found[session.id] = session
        return list(found.values())[:MAX_SESSIONS]

    def _likely_keys(self, address: Address) -> list[str]:
        """Which kind of chat it is, only the session's own key knows."""
        keys: list[str] = []
        for kind in CHAT_TYPES:
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
