"""Store what people were shown of an answer that is being written, at most once a second.

A killed process leaves the text; the next holder of the session puts it into the transcript. The
text of an answer that is stored whole is removed in the same commit.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextvars import copy_context

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.run_records import PartialText, PutPartialText, RemovePartialText
from hermes.ports.store import AppendMessage, Fence, Store, Write
from hermes.schema.errors import LeaseLost, StoreError
from hermes.schema.events import Event, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Stop, Text, Usage
from hermes.schema.scope import Scope
from hermes.session.lease import Lease

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two writes: as much text can be lost."""
MAX_TEXT = 200_000
"""Characters that are stored of one answer."""


class PartialAnswer:
    """The text of the current answer of one run."""

    def __init__(self, writer: "PartialAnswerWriter", scope: Scope, lease: Lease) -> None:
        self._writer = writer
        self._scope = scope
        self._texts: list[str] = []
        self._size = 0
        self._is_stored = False
        self.lease = lease

    def add(self, event: Event) -> None:
        """Remember shown text; one task of all runs writes it."""
        match event:
            case TextDelta(text=text):
                if self._size < MAX_TEXT:
                    self._texts.append(text)
                    self._size += len(text)
                    self._writer.changed(self)
            case StreamReset():
                self._texts, self._size = [], 0
                self._writer.changed(self)
            case _:
                pass

    def write(self, holder: str) -> PutPartialText | None:
        """The write of the text so far; None if there is nothing to store."""
        if not self._texts and not self._is_stored:
            return None
        self._is_stored = True
        scope, text = self._scope, "".join(self._texts)
        return PutPartialText(
            PartialText(run=scope.run, session=scope.session, text=text, holder=holder)
        )

    def closing_writes(self) -> list[Write]:
        """Writes to commit with the stored answer or the end of the run."""
        self._writer.forget(self)
        was_stored, self._is_stored = self._is_stored, False
        self._texts, self._size = [], 0
        return [RemovePartialText(self._scope.run)] if was_stored else []


class PartialAnswerWriter:
    """Writes the changed texts of all runs, in a task that ends when nothing changes."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._changed: dict[PartialAnswer, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._context = copy_context()

    def of_turn(self, scope: Scope, lease: Lease) -> PartialAnswer:
        return PartialAnswer(self, scope, lease)

    def changed(self, partial: PartialAnswer) -> None:
        self._changed[partial] = None
        if self._task is None or self._task.done() or not _is_in_this_loop(self._task):
            # As for the renewal of leases: the task belongs to all turns.
            self._task = asyncio.create_task(self._run(), context=self._context.copy())  # noqa: TID251 - as above

    def forget(self, partial: PartialAnswer) -> None:
        self._changed.pop(partial, None)

    async def stop(self) -> None:
        """Stop the task once all turns are over."""
        task, self._task = self._task, None
        if task is not None and _is_in_this_loop(task):
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(INTERVAL)
            if not self._changed:
                return
            changed, self._changed = self._changed, {}
            for partial in changed:
                await self._write(partial)

    async def _write(self, partial: PartialAnswer) -> None:
        # No await between reading the text and the commit: a later closing write comes after it.
        put = partial.write(self._store.workers.own)
        if put is None:
            return
        try:
            await self._store.commit(put, fence=partial.lease.fence)
        except LeaseLost:
            log.info("the text of run %s belongs to another process now", put.partial.run)
        except StoreError as error:
            log.warning("the text of run %s could not be stored: %s", put.partial.run, error)


async def shown_text(store: Store, run: str) -> str:
    """What people were shown of the answer that an interrupted run was writing."""
    partial = await store.runs.partial_text(run)
    return "" if partial is None else partial.text


async def take_partial_answers(
    store: Store, clock: Clock, session: str, fence: Fence
) -> Sequence[Assistant]:
    """Put the text that interrupted runs left into the transcript of a held session."""
    answers: list[Assistant] = []
    for partial in await store.runs.partial_texts(session):
        writes: list[Write] = [RemovePartialText(partial.run)]
        if partial.text.strip():
            text = Text(partial.text)
            message = Assistant(new_id("msg"), (text,), Stop.CANCELLED, Usage(), "", "")
            writes.append(AppendMessage(session, partial.run, message, clock.now()))
            answers.append(message)
        await store.commit(*writes, fence=fence)
    return answers


def _is_in_this_loop(task: asyncio.Task[None]) -> bool:
    """False for a task left behind by a closed event loop."""
    return task.get_loop() is asyncio.get_running_loop()
