"""Which thread of codex belongs to which session: a row each, so that it outlives a restart."""

import logging
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, StoreError
from hermes.schema.messages import Message
from hermes.schema.scope import OWNER

log = logging.getLogger(__name__)

THREAD_KIND = "codex_thread"
MAX_FORK_POINTS = 50
"""Turns of a thread that are remembered: so far back it can be forked."""
MAX_ANCESTORS = 8
"""Branches of branches that are looked through."""


class ForkPoint(Struct, frozen=True, array_like=True):
    """The last message of ours that the thread knew when that turn of codex's was over."""

    message: str
    turn: str


class ContextFill(Struct, frozen=True, array_like=True):
    """Tokens that the thread's next request begins with, and how many its model takes at all."""

    tokens: int = 0
    window: int = 0

    @property
    def share(self) -> float:
        return self.tokens / self.window if self.window else 0.0


class StoredThread(Struct, frozen=True):
    """`seen` is the last message of the session that the thread knows."""

    thread: str
    seen: str = ""
    marks: Sequence[ForkPoint] = ()
    filled: ContextFill = ContextFill()

    def marked(self, turn: str) -> Sequence[ForkPoint]:
        """With the end of a turn; one at the same message takes the place of the older."""
        if not turn or not self.seen:
            return self.marks
        kept = [mark for mark in self.marks if mark.message != self.seen]
        return [*kept, ForkPoint(self.seen, turn)][-MAX_FORK_POINTS:]

    def shared(self, messages: Sequence[Message]) -> Sequence[ForkPoint]:
        """The marks up to the last one that these messages contain."""
        said = {message.id for message in messages}
        for place in range(len(self.marks) - 1, -1, -1):
            if self.marks[place].message in said:
                return self.marks[: place + 1]
        return ()


class ThreadStore:
    """Without a store it remembers for as long as it lives."""

    def __init__(self, store: Store | None, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, StoredThread] = {}

    async def of(self, session: str) -> StoredThread | None:
        if self._store is None:
            return self._known.get(session)
        try:
            matter = await self._store.records.get(THREAD_KIND, session)
            return None if matter is None else msgspec.json.decode(matter.body, type=StoredThread)
        except (StoreError, msgspec.DecodeError) as error:
            log.warning("which thread of codex belongs to %s is not known: %s", session, error)
            return None

    async def put(self, session: str, kept: StoredThread) -> None:
        if self._store is None:
            self._known[session] = kept
            return
        matter = StateRecord(
            kind=THREAD_KIND,
            id=session,
            session=session,
            state="kept",
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(kept)),
            open=False,
        )
        try:
            await self._store.commit(PutRecord(matter))
        except StoreError as error:
            log.warning("which thread of codex belongs to %s was not kept: %s", session, error)

    async def before(self, parent: str | None) -> StoredThread | None:
        """The thread of the nearest session that a branch comes from and that has one."""
        for _ in range(MAX_ANCESTORS):
            if not parent:
                return None
            if (kept := await self.of(parent)) is not None:
                return kept
            parent = await self._parent(parent)
        return None

    async def _parent(self, session: str) -> str | None:
        if self._store is None:
            return None
        try:
            return (await self._store.archive_for(OWNER).get(session)).parent
        except (NotFound, StoreError):
            return None
