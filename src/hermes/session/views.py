"""Views of sessions as rows: kept with what they cost, and found again by any process."""

import msgspec
from msgspec import Raw, Struct, structs

from hermes.agent.compression.summary import Kept
from hermes.agent.compression.view import Record
from hermes.kit.clock import Clock
from hermes.kit.text import one_line
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Store, Write
from hermes.schema.messages import Message, Usage
from hermes.schema.questions import Question
from hermes.schema.sessions import Session
from hermes.session.compressing import KIND
from hermes.session.lease import Lease
from hermes.session.pins import Pins

_QUESTION = "question"


class Found(Struct, frozen=True):
    """`state` is that of the session's own row; empty when it has none yet."""

    record: Record
    state: str = ""


class _Waiting(Struct, frozen=True):
    question: Question


class Views:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pins = Pins(store, clock)

    async def find(self, session: Session) -> Found:
        """The session's own, or that of the one it was copied from: its messages are the same."""
        own = await self._store.matters.get(KIND, session.id)
        if own is not None:
            return Found(msgspec.json.decode(own.body, type=Record), own.state)
        parent = await self._store.matters.get(KIND, session.parent) if session.parent else None
        if parent is None:
            return Found(Record())
        record = msgspec.json.decode(parent.body, type=Record)
        return Found(structs.replace(record, times=0, calls=0, usage=Usage(), cost=0.0))

    async def keep(
        self, session: Session, lease: Lease, found: Found, record: Record, *writes: Write
    ) -> None:
        """Over the one that was found, and only while the session is held."""
        matter = Matter(
            kind=KIND,
            id=session.id,
            session=session.id,
            state=str(int(found.state or 0) + 1),
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(record)),
            open=False,
        )
        await self._store.commit(PutMatter(matter, was=found.state), *writes, fence=lease.fence)

    async def transcript(self, session: Session) -> list[Message]:
        rows = await self._store.seen_by(session.principal).messages(session.id)
        return [row.message for row in rows]

    async def kept(self, session: Session) -> Kept:
        """Pins and open questions, as they are: no model is trusted to pass them on."""
        waiting = await self._store.matters.find(_QUESTION, session=session.id, only_open=True)
        questions = [msgspec.json.decode(one.body, type=_Waiting).question for one in waiting]
        words = [one_line(f"{one.text} {one.subject}", 500) for one in questions]
        return Kept(pins=await self._pins.of(session.id), questions=words)
