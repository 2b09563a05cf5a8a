"""Store the compacted views of sessions."""

import msgspec
from msgspec import Raw, Struct, structs

from hermes.compaction.pins import Pins
from hermes.compaction.service import VIEW_KIND
from hermes.compaction.summary import KeptText
from hermes.compaction.view import CompactionState
from hermes.kit.clock import Clock
from hermes.kit.text import one_line
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Store, Write
from hermes.schema.messages import Message, Usage
from hermes.schema.questions import Question
from hermes.schema.sessions import Session
from hermes.session.lease import Lease

_QUESTION_KIND = "question"


class StoredView(Struct, frozen=True):
    """A stored state and the version it was read at."""

    record: CompactionState
    state: str = ""  # version of the session's own record; empty if it has none


class _QuestionBody(Struct, frozen=True):
    question: Question


class ViewStore:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pins = Pins(store, clock)

    async def find(self, session: Session) -> StoredView:
        """The session's own view, or that of the session it was copied from."""
        own = await self._store.records.get(VIEW_KIND, session.id)
        if own is not None:
            return StoredView(msgspec.json.decode(own.body, type=CompactionState), own.state)
        parent = (
            await self._store.records.get(VIEW_KIND, session.parent) if session.parent else None
        )
        if parent is None:
            return StoredView(CompactionState())
        record = msgspec.json.decode(parent.body, type=CompactionState)
        return StoredView(structs.replace(record, times=0, calls=0, usage=Usage(), cost=0.0))

    async def save(
        self,
        session: Session,
        lease: Lease,
        found: StoredView,
        record: CompactionState,
        *writes: Write,
    ) -> None:
        """Replace the view that was found, while the session's lease is held."""
        stored = StateRecord(
            kind=VIEW_KIND,
            id=session.id,
            session=session.id,
            state=str(int(found.state or 0) + 1),
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(record)),
            open=False,
        )
        await self._store.commit(
            PutRecord(stored, expected_state=found.state), *writes, fence=lease.fence
        )

    async def transcript(self, session: Session) -> list[Message]:
        rows = await self._store.archive_for(session.principal).messages(session.id)
        return [row.message for row in rows]

    async def kept_text(self, session: Session) -> KeptText:
        """Pins and open questions, passed on verbatim rather than by a model."""
        waiting = await self._store.records.find(_QUESTION_KIND, session=session.id, only_open=True)
        questions = [msgspec.json.decode(row.body, type=_QuestionBody).question for row in waiting]
        texts = [one_line(f"{question.text} {question.subject}", 500) for question in questions]
        return KeptText(pins=await self._pins.of(session.id), questions=texts)
