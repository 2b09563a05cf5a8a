"""Find messages by meaning, if the extra `recall` is installed.

Nothing is loaded before the first search. A separate thread then computes the vectors of
messages in small batches, as long as the store is open.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Condition, Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

import apsw
from anyio.to_thread import run_sync

from hermes.kit.tasks import Worker
from hermes.schema.errors import StoreError
from hermes.schema.sessions import SearchHit
from hermes.store.connection import Connection
from hermes.store.database_file import open_writer
from hermes.store.search import MessageSearch, SearchRequest
from hermes.store.search_index import newest_message
from hermes.store.search_text import TermKind

if TYPE_CHECKING:
    from hermes.store.vectors import Embedder, Vectors

R = TypeVar("R")
log = logging.getLogger(__name__)

PACKAGES = ("numpy", "tokenizers", "wordllama")
SEARCH_WAIT = 2.0
"""Seconds a search waits for vectors; messages without one are only found by words."""
BATCH_PAUSE = 0.002
"""Seconds between two batches, so that turns take precedence."""
POLL_INTERVAL = 30.0
"""Seconds between checks for new messages."""
ERROR_PAUSE = 1.0


class RunRead(Protocol):
    def __call__(self, work: Callable[[Connection], R], /) -> Awaitable[R]: ...


def has_packages(needs: Sequence[str] = PACKAGES) -> bool:
    return all(find_spec(name) is not None for name in needs)


class VectorSearch:
    def __init__(self, path: Path, needs: Sequence[str] = PACKAGES) -> None:
        """`needs` are the packages that searching by meaning requires."""
        self._path = path
        self._needs = needs
        self._parts: tuple[Embedder, Vectors, _VectorBuilder] | None = None
        self._usable = True
        self._loading = Lock()

    async def find(self, wanted: SearchRequest, read: RunRead) -> Sequence[SearchHit]:
        """Return the nearest first; nothing if the extra is not installed."""
        exact = any(term.kind is not TermKind.WORD for term in wanted.terms)
        if not self._usable or not wanted.terms or exact or wanted.role == "result":
            return []
        parts = await run_sync(self._loaded)
        if parts is None:
            return []
        embedder, vectors, builder = parts
        await run_sync(builder.wait_for, await read(newest_message))

        def find(connection: Connection) -> list[SearchHit]:
            vector = embedder.embed([wanted.query])
            search = MessageSearch(wanted)
            sessions = search.sessions(connection)
            near = vectors.nearest(connection, vector, wanted.principal, wanted.role, sessions)
            return search.vector_hits(connection, near)

        try:
            return await read(find)
        except (apsw.Error, StoreError, ValueError, TypeError, ArithmeticError) as error:
            # Stored vectors can be rebuilt, and the word search still works.
            log.warning("this search only used words: %s", error)
            return []

    async def build_all(self, read: RunRead) -> bool:
        """Wait for the vectors of all messages so far; return whether they are complete."""
        parts = await run_sync(self._loaded)
        if parts is None:
            return False
        message = await read(newest_message)
        wait = partial(parts[2].wait_for, message, None)
        return await run_sync(wait, abandon_on_cancel=True)

    async def close(self) -> None:
        # Loading may take a while and must not block the event loop.
        parts = await run_sync(self._disable)
        if parts is not None:
            await parts[2].close()

    def _disable(self) -> "tuple[Embedder, Vectors, _VectorBuilder] | None":
        with self._loading:
            self._usable = False
            return self._parts

    def _loaded(self) -> "tuple[Embedder, Vectors, _VectorBuilder] | None":
        with self._loading:
            if self._parts is None and self._usable:
                self._usable = has_packages(self._needs)
                if self._usable:
                    self._load()
            return self._parts if self._usable else None

    def _load(self) -> None:
        try:
            from hermes.store.vectors import Embedder, Vectors  # noqa: PLC0415 - imports numpy

            embedder = Embedder.load()
        except Exception as error:  # noqa: BLE001 - a broken package must not break the search
            log.warning("messages can only be found by words: %s", error)
            self._usable = False
            return
        self._parts = (embedder, Vectors(), _VectorBuilder(self._path, embedder))


class _VectorBuilder:
    """The thread that computes vectors, on its own connection."""

    def __init__(self, path: Path, embedder: "Embedder") -> None:
        self._path = path
        self._embedder = embedder
        self._changed = Condition()
        self._upto = -1
        self._rounds = 0
        self._wake_requested = False
        self._closed = False
        self._worker = Worker("hermes-store-vectors", self._serve)
        self._worker.start()

    def wait_for(self, message: int, timeout: float | None = SEARCH_WAIT) -> bool:
        """Wait until that message has its vector, a failure, or the timeout.

        Returns whether it has one. Blocks: call it in a thread.
        """
        with self._changed:
            # The current round may have missed the message, the next one has not. If it has no
            # vector after that, it was deleted.
            last = self._rounds + 2
            self._wake_requested = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._closed or self._upto >= message or self._rounds >= last, timeout
            )
            return self._upto >= message

    async def close(self) -> None:
        self._stop()
        await self._worker.ended()

    def _serve(self) -> None:
        try:
            self._make()
        except StoreError as error:
            log.warning("no vectors are computed: %s", error)
        except Exception:
            # The thread's boundary: no one else would report it.
            log.exception("computing vectors of %s stopped", self._path)
        finally:
            self._stop()

    def _make(self) -> None:
        connection = open_writer(self._path)
        try:
            # Vectors can be recomputed, so there is no need to wait for the disk.
            connection.execute("PRAGMA synchronous = NORMAL").fetchall()
            while self._pause(self._run_batch(connection)):
                pass
        finally:
            connection.close()

    def _run_batch(self, connection: Connection) -> float:
        """Process a batch; return how long to wait before the next one."""
        from hermes.store.vectors import embed_batch, vector_state  # noqa: PLC0415 - imports numpy

        try:
            more = embed_batch(connection, self._embedder)
            upto = vector_state(connection).upto
        except (apsw.Error, StoreError) as error:
            log.warning("could not compute vectors of %s: %s", self._path, error)
            with self._changed:
                self._rounds += 1
                self._changed.notify_all()
            return ERROR_PAUSE
        with self._changed:
            self._upto = upto
            self._rounds += not more
            self._changed.notify_all()
        return BATCH_PAUSE if more else POLL_INTERVAL

    def _pause(self, pause: float) -> bool:
        """Pause; a waiting search only wakes the thread when it is idle."""
        with self._changed:
            idle = pause == POLL_INTERVAL
            self._changed.wait_for(lambda: self._closed or (idle and self._wake_requested), pause)
            self._wake_requested = self._wake_requested and not idle
            return not self._closed

    def _stop(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
