"""A run's events while it goes on: numbered once, told at once, on disk in a few notes.

A reader that keeps up is served from memory; one that comes late or falls behind reads the disk,
where the same numbers stand. A fact is on disk before anybody is told of it; what was told before
it reached the disk is bounded, so that the end of an interrupted run can be numbered beyond it.
"""

import logging
from collections.abc import AsyncGenerator, Sequence

import anyio
from msgspec import Raw

from hermes.kit.clock import Clock
from hermes.ports.journal import AppendRunEvents, Journal, RunEvent, RunRecord, RunStatus
from hermes.ports.store import Store, Write
from hermes.schema.errors import StoreError

log = logging.getLogger(__name__)

FLUSH_INTERVAL = 0.05
"""Seconds for which deltas are gathered before they are written."""
MAX_PENDING = 512
"""Events that may be told and not yet written; whoever tells more waits for the disk."""
MAX_PENDING_BYTES = 256 * 1024
MAX_BUFFERED = 1_024
"""Events kept in memory for readers that keep up."""
MAX_BUFFERED_BYTES = 512 * 1024
INTERRUPTED_GAP = 2 * MAX_PENDING
"""How far the end of an interrupted run is numbered beyond the last event on disk."""


class RunLog:
    """The events of one run in this process."""

    def __init__(self, store: Store, clock: Clock, run: str) -> None:
        self.run = run
        self._store = store
        self._clock = clock
        self._events: list[RunEvent] = []
        self._bytes = 0
        self._base = 1
        self._last = 0
        self._written = 0
        self._visible = 0
        self._facts: list[int] = []
        self._pending_bytes = 0
        self._status: RunStatus | None = None
        self._name = ""
        self._ended = False
        self._closing = False
        self._more = anyio.Event()
        self._dirty = anyio.Event()
        self._writing = anyio.Lock()

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def last_event(self) -> str:
        return self._name

    def begin(self, status: RunStatus) -> None:
        """Say how the run stands; it is written with the next note."""
        self._status = status
        self._dirty.set()

    async def delta(self, name: str, body: bytes) -> None:
        """Told at once, written soon; after the last word nothing is."""
        if self._closing:
            return
        self._add(name, body)
        self._reveal()
        self._dirty.set()
        if self._last - self._written > MAX_PENDING or self._pending_bytes > MAX_PENDING_BYTES:
            await self.flush()

    async def fact(self, name: str, body: bytes) -> None:
        """Written, together with all before it, and then told; after the last word nothing is."""
        if self._closing:
            return
        self._add(name, body)
        self._facts.append(self._last)
        await self.flush()

    def closing(
        self, status: RunStatus, result: bytes, events: Sequence[tuple[str, bytes]]
    ) -> Sequence[Write]:
        """The last note of the run, for whoever commits it; `finish` then tells of it."""
        self._closing = True
        for name, body in events:
            self._add(name, body)
        self._facts.append(self._last)
        return [self._note(self._pending(), status, Raw(result))]

    async def finish(self, writes: Sequence[Write]) -> None:
        """Tell the end; where it was not committed with the run's last word it is now.

        The same note twice is no harm, because nothing is noted after the end.
        """
        async with self._writing:
            try:
                await self._store.commit(*writes)
            except StoreError as error:
                # Whoever follows must not wait for ever; the next start finds the run open.
                log.error("the end of run %s could not be written: %s", self.run, error)  # noqa: TRY400 - where it failed is no news
            self._settle(self._last)
            self._ended = True
            self._wake()

    async def keep(self) -> None:
        """Write what gathers, until cancelled."""
        while True:
            await self._dirty.wait()
            await self._clock.sleep(FLUSH_INTERVAL)
            self._dirty = anyio.Event()
            try:
                await self.flush()
            except StoreError as error:
                log.warning("events of run %s could not be written: %s", self.run, error)

    async def flush(self) -> None:
        """Raises `StoreError`."""
        # What was begun is finished: a note that is half known would be written twice.
        with anyio.CancelScope(shield=True):
            async with self._writing:
                pending = self._pending()
                if self._closing or (not pending and self._status is None):
                    return
                status = self._status
                await self._store.commit(self._note(pending, status, None))
                if self._status is status:
                    self._status = None
                if pending:
                    self._settle(pending[-1].seq)

    async def follow(self, after: int) -> AsyncGenerator[Sequence[RunEvent]]:
        """Some at a time, from beyond `after` until the end of the run."""
        place = after
        while True:
            more = self._more
            if place + 1 < self._base:
                some = await self._store.journal.events(self.run, place)
            else:
                some = self._told(place)
            if some:
                place = some[-1].seq
                yield some
            elif self._ended:
                return
            else:
                await more.wait()

    def _add(self, name: str, body: bytes) -> None:
        self._last += 1
        self._name = name
        self._events.append(RunEvent(self._last, Raw(body)))
        self._bytes += len(body)
        self._pending_bytes += len(body)

    def _pending(self) -> Sequence[RunEvent]:
        return self._events[self._written + 1 - self._base :]

    def _told(self, after: int) -> Sequence[RunEvent]:
        return self._events[after + 1 - self._base : self._visible + 1 - self._base]

    def _note(
        self, events: Sequence[RunEvent], status: RunStatus | None, result: Raw | None
    ) -> AppendRunEvents:
        return AppendRunEvents(
            run=self.run,
            at=self._clock.now(),
            events=tuple(events),
            status=status,
            last_event=self._name,
            result=result,
        )

    def _settle(self, written: int) -> None:
        self._written = max(self._written, written)
        self._pending_bytes = sum(len(bytes(event.body)) for event in self._pending())
        self._facts = [seq for seq in self._facts if seq > self._written]
        self._forget()
        self._reveal()

    def _reveal(self) -> None:
        """Everything up to the first fact that is not on disk may be told."""
        visible = self._facts[0] - 1 if self._facts else self._last
        if visible > self._visible:
            self._visible = visible
            self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = anyio.Event()

    def _forget(self) -> None:
        """Let go of what is on disk when there is too much of it; half stays for the quick."""
        if len(self._events) <= MAX_BUFFERED and self._bytes <= MAX_BUFFERED_BYTES:
            return
        count, size = 0, self._bytes
        for event in self._events:
            few = len(self._events) - count <= MAX_BUFFERED // 2
            if event.seq > self._written or (few and size <= MAX_BUFFERED_BYTES // 2):
                break
            count += 1
            size -= len(bytes(event.body))
        del self._events[:count]
        self._base += count
        self._bytes = size


async def replay(journal: Journal, run: str, after: int) -> AsyncGenerator[Sequence[RunEvent]]:
    """All that is on disk of a run that goes on no more, from beyond `after`."""
    place = after
    while some := await journal.events(run, place):
        place = some[-1].seq
        yield some


def interrupted_end(
    record: RunRecord, body: bytes, name: str, result: bytes, clock: Clock
) -> AppendRunEvents:
    """The last word for a run whose process died before it could say it."""
    return AppendRunEvents(
        run=record.run,
        at=clock.now(),
        events=(RunEvent(record.last_seq + INTERRUPTED_GAP, Raw(body)),),
        status=RunStatus.FAILED,
        last_event=name,
        result=Raw(result),
    )
