"""The event log of a running run: numbered once, published immediately, stored in batches.

Readers that keep up are served from memory; late or slow ones read the same numbers from the store.
Facts are stored before they are published. The number of published but unstored events is bounded,
so that the end of an interrupted run can be numbered beyond them.
"""

import logging
from collections.abc import AsyncGenerator, Sequence

import anyio
from msgspec import Raw

from hermes.kit.clock import Clock
from hermes.ports.journal import AppendRunEvents, Journal, RunEvent, RunStatus
from hermes.ports.store import Store, Write
from hermes.schema.errors import StoreError

log = logging.getLogger(__name__)

FLUSH_INTERVAL = 0.05
"""Seconds for which deltas are collected before they are stored."""
MAX_PENDING = 512
"""Events that may be published but not stored yet; beyond that, writers wait for the store."""
MAX_PENDING_BYTES = 256 * 1024
MAX_BUFFERED = 1_024
"""Events kept in memory for readers that keep up."""
MAX_BUFFERED_BYTES = 512 * 1024
INTERRUPTED_GAP = 2 * MAX_PENDING
"""Distance between the last stored event and the end event of an interrupted run."""


class RunLog:
    """One run's events in this process; `last_event` is the name of the latest."""

    def __init__(self, store: Store, clock: Clock, run: str) -> None:
        self.run = run
        self._store = store
        self._clock = clock
        self._events: list[RunEvent] = []
        self._bytes = 0
        self._base = 1
        self._last = 0
        self._stored = 0
        self._visible = 0
        self._unstored_facts: list[int] = []
        self._pending_bytes = 0
        self._status: RunStatus | None = None
        self.last_event = ""
        self.ended = False
        self._closing = False
        self._more = anyio.Event()
        self._dirty = anyio.Event()
        self._writing = anyio.Lock()

    def set_status(self, status: RunStatus) -> None:
        """Set the status of the run, stored with the next batch."""
        self._status = status
        self._dirty.set()

    def add_delta(self, name: str, body: bytes) -> None:
        """Publish immediately, to be stored soon; ignored after the end."""
        if self._closing:
            return
        self._add(name, body)
        self._publish()
        self._dirty.set()

    def add_fact(self, name: str, body: bytes) -> None:
        """Add an event that is published by the next `flush`; ignored after the end."""
        if self._closing:
            return
        self._add(name, body)
        self._unstored_facts.append(self._last)

    @property
    def must_flush(self) -> bool:
        """Whether a fact waits to be published, or too much is not stored."""
        unstored = self._last - self._stored
        too_much = unstored > MAX_PENDING or self._pending_bytes > MAX_PENDING_BYTES
        return bool(self._unstored_facts) or too_much

    def final_writes(
        self, status: RunStatus, result: bytes, events: Sequence[tuple[str, bytes]]
    ) -> Sequence[Write]:
        """Return the run's last writes, to be committed by the caller before `finish`."""
        self._closing = True
        for name, body in events:
            self._add(name, body)
        self._unstored_facts.append(self._last)
        return [self._batch(self._pending(), status, Raw(result))]

    async def finish(self, writes: Sequence[Write]) -> None:
        """Publish the end, and commit it if the turn did not.

        Committing the same batch twice is harmless, because nothing follows the end.
        """
        async with self._writing:
            try:
                await self._store.commit(*writes)
            except StoreError as error:
                # Followers must not wait forever; the next start finds the run unfinished.
                log.error("cannot store the end of run %s: %s", self.run, error)  # noqa: TRY400 - the traceback adds nothing
            self._mark_stored(self._last)
            self.ended = True
            self._wake()

    async def flush_regularly(self) -> None:
        """Store collected events until cancelled."""
        while True:
            await self._dirty.wait()
            await self._clock.sleep(FLUSH_INTERVAL)
            self._dirty = anyio.Event()
            try:
                await self.flush()
            except StoreError as error:
                log.warning("cannot store events of run %s: %s", self.run, error)

    async def flush(self) -> None:
        """Store all pending events. Raises `StoreError`."""
        # Shielded: if the outcome of a commit were unknown, its events would be stored twice.
        with anyio.CancelScope(shield=True):
            async with self._writing:
                pending = self._pending()
                if self._closing or (not pending and self._status is None):
                    return
                status = self._status
                await self._store.commit(self._batch(pending, status, None))
                if self._status is status:
                    self._status = None
                if pending:
                    self._mark_stored(pending[-1].seq)

    async def follow(self, after: int) -> AsyncGenerator[Sequence[RunEvent]]:
        """Yield batches of events after number `after` until the run ends."""
        position = after
        while True:
            more = self._more
            if position + 1 < self._base:
                events = await self._store.journal.events(self.run, position)
            else:
                events = self._events[position + 1 - self._base : self._visible + 1 - self._base]
            if events:
                position = events[-1].seq
                yield events
            elif self.ended:
                return
            else:
                await more.wait()

    def _add(self, name: str, body: bytes) -> None:
        self._last += 1
        self.last_event = name
        self._events.append(RunEvent(self._last, Raw(body)))
        self._bytes += len(body)
        self._pending_bytes += len(body)

    def _pending(self) -> Sequence[RunEvent]:
        return self._events[self._stored + 1 - self._base :]

    def _batch(
        self, events: Sequence[RunEvent], status: RunStatus | None, result: Raw | None
    ) -> AppendRunEvents:
        return AppendRunEvents(
            run=self.run,
            at=self._clock.now(),
            events=tuple(events),
            status=status,
            last_event=self.last_event,
            result=result,
        )

    def _mark_stored(self, written: int) -> None:
        self._stored = max(self._stored, written)
        self._pending_bytes = sum(len(bytes(event.body)) for event in self._pending())
        self._unstored_facts = [seq for seq in self._unstored_facts if seq > self._stored]
        self._trim()
        self._publish()

    def _publish(self) -> None:
        """Publish everything up to the first fact not stored yet, within the bound."""
        visible = self._unstored_facts[0] - 1 if self._unstored_facts else self._last
        visible = min(visible, self._stored + MAX_PENDING)
        if visible > self._visible:
            self._visible = visible
            self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = anyio.Event()

    def _trim(self) -> None:
        """Drop stored events if there are too many; half stay for readers that keep up."""
        if len(self._events) <= MAX_BUFFERED and self._bytes <= MAX_BUFFERED_BYTES:
            return
        count, size = 0, self._bytes
        for event in self._events:
            few = len(self._events) - count <= MAX_BUFFERED // 2
            if event.seq > self._stored or (few and size <= MAX_BUFFERED_BYTES // 2):
                break
            count += 1
            size -= len(bytes(event.body))
        del self._events[:count]
        self._base += count
        self._bytes = size


async def replay(journal: Journal, run: str, after: int) -> AsyncGenerator[Sequence[RunEvent]]:
    """Yield all stored events of an ended run after number `after`."""
    position = after
    while events := await journal.events(run, position):
        position = events[-1].seq
        yield events
