"""Views of sessions as rows: kept with what they cost, and found again by any process."""

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
    """`state` is that of the session's own row; empty when it has none yet."""

    record: CompactionState
    state: str = ""


class _QuestionBody(Struct, frozen=True):
    question: Question


class ViewStore:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pins = Pins(store, clock)

    async def find(self, session: Session) -> StoredView:
        """The session's own, or that of the one it was copied from: its messages are the same."""
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

    async def keep(
        self,
        session: Session,
        lease: Lease,
        found: StoredView,
        record: CompactionState,
        *writes: Write,
    ) -> None:
        """Over the one that was found, and only while the session is held."""
        matter = StateRecord(
            kind=VIEW_KIND,
            id=session.id,
            session=session.id,
            state=str(int(found.state or 0) + 1),
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(record)),
            open=False,
        )
        await self._store.commit(PutRecord(matter, was=found.state), *writes, fence=lease.fence)

    async def transcript(self, session: Session) -> list[Message]:
        rows = await self._store.archive_for(session.principal).messages(session.id)
        return [row.message for row in rows]

    async def kept(self, session: Session) -> KeptText:
        """Pins and open questions, as they are: no model is trusted to pass them on."""
        waiting = await self._store.records.find(_QUESTION_KIND, session=session.id, only_open=True)
        questions = [msgspec.json.decode(one.body, type=_QuestionBody).question for one in waiting]
        words = [one_line(f"{one.text} {one.subject}", 500) for one in questions]
        return KeptText(pins=await self._pins.of(session.id), questions=words)
