"""Add text posted to a chat from elsewhere to that chat's session, as untrusted content."""

import logging
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Raw, structs

from hermes.gateway.messages import INBOX
from hermes.gateway.session_keys import belongs_to_other_address, keys_at
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.tasks import BackgroundTasks
from hermes.ports.store import AppendMessage, EnqueueItem, QueueItem, Store
from hermes.schema.errors import SessionBusy, StoreError
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session
from hermes.session.keys import SessionSource, build_session_key
from hermes.session.lease import Lease

log = logging.getLogger(__name__)

CHAT_TYPES = ("dm", "group", "channel", "thread", "forum")
MAX_SESSIONS = 20
"""Maximum number of sessions of one group that receive the text."""


class CrossPoster:
    """`holding` takes the lease of a session while something is appended to it."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        profile: str,
        holding: Callable[[str], AbstractAsyncContextManager[Lease]],
        background: BackgroundTasks,
    ) -> None:
        self._store = store
        self._clock = clock
        self._profile = profile
        self._holding = holding
        self._background = background

    def add_later(self, address: Address, text: str) -> None:
        """Append the text in the background."""
        self._background.start(self._try_add, address, text)

    async def _try_add(self, address: Address, text: str) -> None:
        try:
            await self.add(address, text)
        except StoreError as error:
            log.warning("cannot add the cross-post to the session at %s: %s", address, error)

    async def add(self, address: Address, text: str) -> bool:
        """Append the text to every open session at the address; return False if there is none.

        Groups with per-user sessions have several.
        """
        sessions = await self._sessions_at(address)
        for session in sessions:
            await self._add_to(session, User(new_id("msg"), (Text(framed(text)),), Trust.DATA))
        return bool(sessions)

    async def _add_to(self, session: Session, message: User) -> None:
        """Append it, or queue it for the next turn while one is running."""
        try:
            async with self._holding(session.id) as lease:
                write = AppendMessage(session.id, "", message, self._clock.now())
                await self._store.commit(write, fence=lease.fence)
        except SessionBusy:
            body = Raw(msgspec.json.encode(message))
            item = QueueItem(key=message.id, queue=INBOX, topic=session.id, body=body)
            await self._store.commit(EnqueueItem(item))

    async def _sessions_at(self, address: Address) -> list[Session]:
        """Find the sessions; homes without stored session keys only have shared ones."""
        archive = self._store.archive_for(OWNER)
        found: dict[str, Session] = {}
        for key in [*await keys_at(self._store, address), *self._likely_keys(address)]:
            session = await archive.by_key(key)
            if session and not await belongs_to_other_address(self._store, key, address):
                found[session.id] = session
        return list(found.values())[:MAX_SESSIONS]

    def _likely_keys(self, address: Address) -> list[str]:
        """Guess the keys, because the chat type of an address is unknown."""
        source = SessionSource(
            platform=address.channel, chat_id=address.chat, thread_id=address.thread
        )
        sources = [structs.replace(source, chat_type=kind) for kind in CHAT_TYPES]
        return [
            build_session_key(session_source, profile=self._profile) for session_source in sources
        ]


def framed(text: str) -> str:
    """Frame the text with a random tag, so that the text cannot close it early."""
    tag = secrets.token_hex(4)
    opened, closed = f"<data-{tag}>", f"</data-{tag}>"
    frame = _frame().replace("@open@", opened).replace("@close@", closed)
    return f"{frame}\n{opened}{text}{closed}"


@cache
def _frame() -> str:
    return (Path(__file__).parent / "cross_post.md").read_text(encoding="utf-8").strip()
