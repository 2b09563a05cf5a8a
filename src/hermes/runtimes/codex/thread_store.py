"""Store which codex thread belongs to which session."""

import logging
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.runtime_sessions import PutRuntimeSession, RuntimeSession
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, StoreError
from hermes.schema.messages import Message
from hermes.schema.scope import OWNER

log = logging.getLogger(__name__)

RUNTIME = "codex"
MAX_FORK_POINTS = 50
"""Turns to remember per thread: how far back it can be forked."""
MAX_ANCESTORS = 8
"""Levels of parent sessions to search."""


class ForkPoint(Struct, frozen=True, array_like=True):
    """The last message that the thread knew when a turn of codex ended."""

    message: str
    turn: str


class ContextFill(Struct, frozen=True, array_like=True):
    """Tokens in the thread's context, and the size of the model's context window."""

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

    def with_fork_point(self, turn: str) -> Sequence[ForkPoint]:
        """Return the fork points plus the end of a turn, which replaces one at the same message."""
        if not turn or not self.seen:
            return self.marks
        kept = [mark for mark in self.marks if mark.message != self.seen]
        return [*kept, ForkPoint(self.seen, turn)][-MAX_FORK_POINTS:]

    def common_fork_points(self, messages: Sequence[Message]) -> Sequence[ForkPoint]:
        """Return the fork points up to the last one contained in these messages."""
        ids = {message.id for message in messages}
        known = [index for index, mark in enumerate(self.marks) if mark.message in ids]
        return self.marks[: known[-1] + 1] if known else ()


class ThreadStore:
    """Keeps threads in memory if there is no store."""

    def __init__(self, store: Store | None, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, StoredThread] = {}

    async def get(self, session: str) -> StoredThread | None:
        if self._store is None:
            return self._known.get(session)
        try:
            record = await self._store.runtime_sessions.get(RUNTIME, session)
            return None if record is None else msgspec.json.decode(record.state, type=StoredThread)
        except (StoreError, *JSON_ERRORS) as error:
            log.warning("cannot read session %s's codex thread: %s", session, error)
            return None

    async def put(self, session: str, thread: StoredThread) -> None:
        if self._store is None:
            self._known[session] = thread
            return
        record = RuntimeSession(
            runtime=RUNTIME,
            id=session,
            session=session,
            at=self._clock.now(),
            state=Raw(msgspec.json.encode(thread)),
        )
        try:
            await self._store.commit(PutRuntimeSession(record))
        except StoreError as error:
            log.warning("cannot store session %s's codex thread: %s", session, error)

    async def nearest_ancestor(self, parent: str | None) -> StoredThread | None:
        """Return the thread of the nearest ancestor that has one."""
        for _ in range(MAX_ANCESTORS):
            if not parent:
                return None
            if (kept := await self.get(parent)) is not None:
                return kept
            if self._store is None:
                return None
            try:
                parent = (await self._store.archive_for(OWNER).get(parent)).parent
            except (NotFound, StoreError):
                return None
        return None
