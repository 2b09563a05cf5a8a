"""From a question to its answer: asked once, waited for, found again after the next start.

A member's question goes to the owner's own chat, where only so many may wait at once.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
from msgspec import structs

from hermes.approvals import wording
from hermes.approvals.answering import Carrier
from hermes.approvals.policy import Doubtful
from hermes.approvals.rows import ANSWERED, FRESH, OPEN, USED, QuestionRow, Rows, is_awaited
from hermes.kit.clock import Clock
from hermes.kit.deadline import sleep_unless
from hermes.kit.failpoints import passing
from hermes.ports.counsel import Left, PutOff
from hermes.ports.sink import Emit
from hermes.schema import events
from hermes.schema.errors import StoreError
from hermes.schema.scope import Address, Role, Scope

log = logging.getLogger(__name__)

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
        self._open: dict[str, QuestionRow] = {}

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
    async def place_for(self, asked: QuestionRow) -> AsyncGenerator[str]:
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

    async def _of_others(self, asked: QuestionRow) -> Sequence[QuestionRow]:
        """What other processes carried; one that this very wish takes up again is none of it."""
        return [
            row
            for row in await self._rows.open_everywhere()
            if row.question.elsewhere
            and row.holder != self._holder
            and is_awaited(row, self._clock)
            and (row.question.session, row.digest) != (asked.question.session, asked.digest)
        ]

    async def carry(self, asked: QuestionRow) -> None:
        question = asked.question
        if question.elsewhere and self._carrier is not None and asked.address is not None:
            text = wording.as_post(question, question.seconds, carried=True)
            await self._carrier.carry(question.id, asked.address, text)


def _full(waiting: Sequence[QuestionRow], asked: QuestionRow) -> str:
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
        self._expected: dict[str, QuestionRow] = {}
        """By their calls, those that a turn which goes on is about to ask again."""
        self._leaving = False

    def leave(self) -> None:
        self._leaving = True
        for identity in self._waiting:
            self.wake(identity)

    def has(self, identity: str) -> bool:
        expected = any(row.question.id == identity for row in self._expected.values())
        return expected or identity in self._waiting

    async def left(self, session: str, *, resumed: bool) -> Left:
        """For a turn that begins and is the session's only one."""
        waiting: set[str] = set()
        told: dict[str, str] = {}
        for row in await self._rows.of_session(session):
            if row.question.id in self._waiting:
                continue
            if row.state in {OPEN, ANSWERED}:
                if resumed and row.call:
                    await self._expect(row)
                    waiting.add(row.call)
                    continue
                await self._rows.lapse(row)
            if row.call:
                told[row.call] = wording.undone(row)
        return Left(waiting=frozenset(waiting), told={one: told[one] for one in told if told[one]})

    async def _expect(self, row: QuestionRow) -> None:
        """From now on it is for us to hear of the answer, and in no moment for nobody."""
        passing("approvals.before_expecting")
        self._expected[row.call] = row
        if row.state == OPEN:
            # If it was answered just now, that is found when it is asked again.
            await self._rows.change(row, row)

    async def over(self, session: str) -> None:
        """Its turn has ended; what it expected and did not ask is not asked any more."""
        found = [one for one in self._expected.values() if one.question.session == session]
        for row in found:
            await self.asked_no_more(row.call)

    async def asked_no_more(self, call: str) -> None:
        """The call has been decided about in another way than by that question."""
        row = self._expected.pop(call, None)
        if row is None or self._leaving:
            return
        with anyio.CancelScope(shield=True):
            await self._let_go(row)

    def wake(self, identity: str) -> None:
        """Whoever waits for it looks at the row at once."""
        if identity in self._waiting:
            self._waiting[identity].set()

    async def earlier(self, session: str, digest: str) -> QuestionRow | None:
        """The same wish, asked before its process ended: still open, or answered meanwhile."""
        now = self._clock.now()
        for row in reversed(await self._rows.of_session(session)):
            if row.digest != digest or row.question.id in self._waiting:
                continue
            # A clock that was set back must not make an old answer new.
            unheard = row.state == ANSWERED and row.at is not None and abs(now - row.at) < FRESH
            return row if row.state == OPEN or unheard else None
        return None

    async def put(self, scope: Scope, asked: QuestionRow, tell: Emit) -> QuestionRow | None:
        """Ask, and wait; None when nobody answered."""
        where = asked.address or scope.address
        asked = structs.replace(
            asked, principal=scope.principal, address=where, call=scope.call, key=scope.key
        )
        earlier = await self.earlier(scope.session, asked.digest)
        if earlier is not None and earlier.state == ANSWERED:
            self._expected.pop(scope.call, None)
            return await self._used(earlier)
        if earlier is not None:
            # The same post stays the question; its time begins anew.
            again = structs.replace(
                earlier.question,
                until=asked.question.until,
                seconds=asked.question.seconds,
                run=scope.run,
            )
            asked = structs.replace(earlier, question=again, call=scope.call, key=scope.key)
        expected = self._expected.get(scope.call)
        if expected is not None and expected.question.id != asked.question.id:
            await self.asked_no_more(scope.call)
        asked = structs.replace(asked, ends=self._clock.monotonic() + asked.question.seconds)
        self._waiting[asked.question.id] = anyio.Event()
        self._expected.pop(scope.call, None)
        return await self._asked(earlier, asked, tell)

    async def _asked(
        self, earlier: QuestionRow | None, asked: QuestionRow, tell: Emit
    ) -> QuestionRow | None:
        question = asked.question
        try:
            if not await self._rows.change(earlier, asked):
                # It was answered just now.
                self._waiting[question.id].set()
            passing("approvals.asked")
            await self._carrying.carry(asked)
            await tell(events.Asked(question))
            row = await self._wait(asked)
        except BaseException:
            # Stopped, put off or never told: whichever it was, nobody waits for the answer here.
            with anyio.CancelScope(shield=True):
                await self._let_go(asked)
            raise
        finally:
            del self._waiting[question.id]
        answer = "" if row is None else row.answer or row.words
        await tell(events.Answered(question.id, answer, row.by if row else ""))
        return row

    async def _let_go(self, asked: QuestionRow) -> None:
        """Raises nothing in place of what ended the waiting."""
        try:
            if self._leaving:
                await self._rows.change(asked, asked, let_go=True)
            else:
                await self._take_back(asked)
        except StoreError as error:
            log.warning("question %s is not closed: %s", asked.question.id, error)

    async def _take_back(self, asked: QuestionRow) -> None:
        """Its turn is over: no later one may use an answer that came in the last moment."""
        if await self._rows.lapse(asked):
            return
        row = await self._rows.asked(asked.question.id)
        if row is not None and row.state == ANSWERED:
            await self._rows.lapse(row)

    async def _wait(self, asked: QuestionRow) -> QuestionRow | None:
        identity = asked.question.id
        while (left := asked.ends - self._clock.monotonic()) > 0:
            if self._leaving and await self._rows.comes_back(asked):
                raise PutOff
            await sleep_unless(self._clock, min(LOOK, left), self._waiting[identity])
            self._waiting[identity] = anyio.Event()
            if row := await self._answered(identity):
                return row
        if await self._rows.lapse(asked):
            return None
        return await self._answered(identity)

    async def _answered(self, identity: str) -> QuestionRow | None:
        row = await self._rows.asked(identity)
        return None if row is None or row.state != ANSWERED else await self._used(row)

    async def _used(self, row: QuestionRow) -> QuestionRow | None:
        passing("approvals.before_used")
        used = structs.replace(row, state=USED)
        done = await self._rows.change(row, used)
        passing("approvals.used")
        return used if done else None
