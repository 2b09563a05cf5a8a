"""From a question to its answer: asked once, waited for, found again after the next start.

A member's question goes to the owner's own chat, where only so many may wait at once.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
from msgspec import structs

from hermes.approvals import wording
from hermes.approvals.answering import Carrier
from hermes.approvals.policy import Doubtful
from hermes.approvals.rows import ANSWERED, FRESH, LAPSED, OPEN, USED, Asked, Rows
from hermes.kit.clock import Clock
from hermes.kit.deadline import sleep_unless
from hermes.ports.sink import Emit
from hermes.schema import events
from hermes.schema.scope import Address, Role, Scope

LOOK = 2.0
"""Seconds between two looks at the row: another process may have taken the answer."""


MOST_OF_A_RUN = 1
MOST_OF_A_PERSON = 3
"""How many may lie before the owner at once; whoever wants more waits for an answer first."""


class Carrying:
    def __init__(self, rows: Rows, clock: Clock, holder: str) -> None:
        self._rows = rows
        self._clock = clock
        self._holder = holder
        self._carrier: Carrier | None = None
        self._open: dict[str, Asked] = {}

    def carried_by(self, carrier: Carrier) -> None:
        self._carrier = carrier

    async def home_of(self, scope: Scope, doubt: Doubtful) -> Address | None:
        """Where a member's question can be put to the owner; guests bother nobody."""
        carrier = self._carrier
        asks = scope.attended and doubt.owner_only and scope.role is Role.MEMBER
        if carrier is None or not asks:
            return None
        home = await anyio.to_thread.run_sync(carrier.home_of, scope)
        return None if home == scope.address else home

    @asynccontextmanager
    async def place_for(self, asked: Asked) -> AsyncGenerator[str]:
        """Held while it is asked; gives why there is none, for the model, or nothing."""
        if not asked.question.elsewhere:
            yield ""
            return
        others = await self._of_others(asked)
        # From here to the place taken nobody else has a turn.
        why = _full([*others, *self._open.values()], asked)
        if why:
            yield why
            return
        self._open[asked.question.id] = asked
        try:
            yield ""
        finally:
            del self._open[asked.question.id]

    async def _of_others(self, asked: Asked) -> Sequence[Asked]:
        """What other processes carried; one that this very wish takes up again is none of it."""
        now = self._clock.now()
        return [
            row
            for row, holder in await self._rows.open_everywhere()
            if row.question.elsewhere
            and holder != self._holder
            and row.question.until > now
            and (row.question.session, row.digest) != (asked.question.session, asked.digest)
        ]

    async def carry(self, asked: Asked) -> None:
        question = asked.question
        if question.elsewhere and self._carrier is not None and asked.address is not None:
            left = (question.until - self._clock.now()).total_seconds()
            text = wording.as_post(question, left, carried=True)
            await self._carrier.carry(question.id, asked.address, text)


def _full(waiting: Sequence[Asked], asked: Asked) -> str:
    if sum(one.question.run == asked.question.run for one in waiting) >= MOST_OF_A_RUN:
        return wording.ONE_AT_A_TIME
    if sum(one.principal == asked.principal for one in waiting) >= MOST_OF_A_PERSON:
        return wording.TOO_MANY
    return ""


class Waiting:
    """Those of this process that wait for somebody."""

    def __init__(self, rows: Rows, clock: Clock, carrying: Carrying) -> None:
        self._rows = rows
        self._clock = clock
        self._carrying = carrying
        self._waiting: dict[str, anyio.Event] = {}
        self._leaving = False

    def leave(self) -> None:
        self._leaving = True

    def has(self, identity: str) -> bool:
        return identity in self._waiting

    def wake(self, identity: str) -> None:
        """Whoever waits for it looks at the row at once."""
        if identity in self._waiting:
            self._waiting[identity].set()

    async def earlier(self, session: str, digest: str) -> Asked | None:
        """The same wish, asked before its process ended: still open, or answered meanwhile."""
        now = self._clock.now()
        for row in reversed(await self._rows.of_session(session)):
            if row.digest != digest or row.question.id in self._waiting:
                continue
            unheard = row.state == ANSWERED and row.at is not None and now - row.at < FRESH
            return row if row.state == OPEN or unheard else None
        return None

    async def put(self, scope: Scope, asked: Asked, tell: Emit) -> Asked | None:
        """Ask, and wait; None when nobody answered."""
        where = asked.address or scope.address
        asked = structs.replace(asked, principal=scope.principal, address=where)
        earlier = await self.earlier(scope.session, asked.digest)
        if earlier is not None and earlier.state == ANSWERED:
            used = structs.replace(earlier, state=USED)
            return used if await self._rows.change(earlier, used) else None
        if earlier is not None:
            # The same post stays the question; its time begins anew.
            again = structs.replace(earlier.question, until=asked.question.until, run=scope.run)
            asked = structs.replace(earlier, question=again)
        return await self._asked(earlier, asked, tell)

    async def _asked(self, earlier: Asked | None, asked: Asked, tell: Emit) -> Asked | None:
        question = asked.question
        self._waiting[question.id] = anyio.Event()
        try:
            if not await self._rows.change(earlier, asked):
                # It was answered just now.
                self._waiting[question.id].set()
            await self._carrying.carry(asked)
            await tell(events.Asked(question))
            row = await self._wait(asked)
        except anyio.get_cancelled_exc_class():
            if not self._leaving:
                with anyio.CancelScope(shield=True):
                    await self._take_back(asked)
            raise
        finally:
            del self._waiting[question.id]
        answer = "" if row is None else row.answer or row.words
        await tell(events.Answered(question.id, answer, row.by if row else ""))
        return row

    async def _take_back(self, asked: Asked) -> None:
        """Its turn is over: no later one may use an answer that came in the last moment."""
        if await self._rows.change(asked, structs.replace(asked, state=LAPSED)):
            return
        row = await self._rows.asked(asked.question.id)
        if row is not None and row.state == ANSWERED:
            await self._rows.change(row, structs.replace(row, state=LAPSED))

    async def _wait(self, asked: Asked) -> Asked | None:
        identity, until = asked.question.id, asked.question.until
        while (left := (until - self._clock.now()).total_seconds()) > 0:
            await sleep_unless(self._clock, min(LOOK, left), self._waiting[identity])
            self._waiting[identity] = anyio.Event()
            if row := await self._answered(identity):
                return row
        if await self._rows.change(asked, structs.replace(asked, state=LAPSED)):
            return None
        return await self._answered(identity)

    async def _answered(self, identity: str) -> Asked | None:
        row = await self._rows.asked(identity)
        if row is None or row.state != ANSWERED:
            return None
        used = structs.replace(row, state=USED)
        return used if await self._rows.change(row, used) else None
