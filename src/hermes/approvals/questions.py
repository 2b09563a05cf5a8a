"""Who may answer which question, and which one is meant."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from msgspec import Struct, structs

from hermes.approvals import messages
from hermes.approvals.approval_store import (
    ANSWER_TTL,
    ANSWERED,
    OPEN,
    USED,
    ApprovalStore,
    QuestionRecord,
    digest_of,
    is_awaited,
)
from hermes.approvals.policy import NeedsApproval
from hermes.kit.clock import Clock
from hermes.kit.deadline import sleep_unless
from hermes.kit.failpoints import failpoint
from hermes.ports.approvals import ApprovalRequest, RecoveredQuestions, TurnSuspended
from hermes.ports.events import Emit
from hermes.schema import events
from hermes.schema.errors import StoreError
from hermes.schema.questions import ApprovalChoice, Question, QuestionKind
from hermes.schema.scope import OWNER, Address, Role, Scope


class Answerer(Struct, frozen=True, kw_only=True):
    """Who answers, and where: what is asked in the session, or of the owner at that address."""

    session: str = ""
    principal: str = OWNER
    role: Role = Role.OWNER
    address: Address | None = None


class QuestionForwarder(Protocol):
    """Brings a member's question to the owner, who is not in the member's chat."""

    def home_of(self, scope: Scope) -> Address | None:
        """The owner's own chat; None when there is none. Looks at the settings on disk."""
        ...

    async def carry(self, question: str, address: Address, text: str) -> None:
        """Once for the question of that id, also over a restart."""
        ...


def may_answer(who: Answerer, row: QuestionRecord) -> bool:
    return who.role is Role.OWNER or who.principal == row.question.asked


def is_asked_at(who: Answerer, row: QuestionRecord) -> bool:
    """Whether it was asked there: in the session, or of the owner at that address."""
    here = row.question.session == who.session
    there = who.role is Role.OWNER and who.address is not None
    return here or (there and row.address == who.address)


def is_addressed_to(who: Answerer, row: QuestionRecord) -> bool:
    if row.question.kind is QuestionKind.APPROVAL:
        return may_answer(who, row)
    return row.question.asked == who.principal


def matches_id(question: Question, name: str) -> bool:
    """By its id or the letters at the end of it; without a name every one is."""
    if not name or question.id == name:
        return True
    return len(name) >= messages.SHORT_ID_LENGTH and question.id.casefold().endswith(
        name.casefold()
    )


def split_answer(words: str) -> tuple[str, str]:
    """A word, and the id behind it if there is nothing else."""
    match words.split():
        case [first, name]:
            return first, name.strip(".!")
        case _:
            return words, ""


def parse_choice(question: Question, words: str) -> ApprovalChoice | None:
    """A bare word, or one with the id of this very question; whatever follows else is no answer."""
    first, name = split_answer(words)
    return messages.choice_of_word(first if name and matches_id(question, name) else words)


def needs_id(question: Question, words: str) -> bool:
    """Whether the words would have to name it: what others asked for is never meant by chance."""
    name = split_answer(words)[1]
    return question.elsewhere and not (name and matches_id(question, name))


def answerable_without_id(
    own: Sequence[QuestionRecord], choice: ApprovalChoice, *, everything: bool
) -> Sequence[QuestionRecord]:
    """Those that an answer without an id may settle; all can be refused at once, not allowed."""
    if everything and choice is ApprovalChoice.DENY:
        return own
    near = [one for one in own if not one.question.elsewhere]
    return near if everything or len(own) == len(near) else []


def matching_questions(waiting: Sequence[QuestionRecord], words: str) -> list[QuestionRecord]:
    """The questions that bare words may answer, oldest first."""
    first, name = split_answer(words)
    approvals = [one for one in waiting if one.question.kind is QuestionKind.APPROVAL]
    clarifies = [one for one in waiting if one.question.kind is QuestionKind.CLARIFY]
    slips = messages.is_misspelled_choice(first)
    if name and (slips or messages.choice_of_word(first)):
        named = [one for one in approvals if matches_id(one.question, name)]
        if named:
            return named
    if messages.choice_of_word(words):
        near = [one for one in waiting if not one.question.elsewhere]
        return near if clarifies else list(waiting)
    # A slip is asked about, unless any words may be an answer.
    return approvals if slips and not name and not clarifies else clarifies


def request_digest(scope: Scope, wish: ApprovalRequest) -> str:
    """The same wish of the same person, in the same circumstances."""
    what = (wish.tool, wish.action, wish.target, wish.detail, wish.reaching, wish.folder)
    lasting = (wish.kind, wish.seal)
    whose = (scope.principal, scope.role.value, "foreign" if wish.foreign else "")
    return digest_of("wish", *what, *lasting, *whose)


def chosen_answer(question: Question, words: str) -> str:
    """A number stands for the choice of that number."""
    number = words.strip().strip(".)")
    if number.isdecimal() and 1 <= int(number) <= len(question.choices):
        return question.choices[int(number) - 1]
    return words.strip()


log = logging.getLogger(__name__)

POLL_INTERVAL = 2.0
"""Seconds between two looks at the row: another process may have taken the answer."""


MAX_PER_RUN = 1
MAX_PER_PERSON = 3
"""How many may lie before the owner at once; whoever wants more waits for an answer first."""


class ForwardedQuestions:
    def __init__(self, rows: ApprovalStore, clock: Clock, holder: str) -> None:
        self._rows = rows
        self._clock = clock
        self._holder = holder
        self._forwarder: QuestionForwarder | None = None
        self._open: dict[str, QuestionRecord] = {}

    def set_forwarder(self, carrier: QuestionForwarder) -> None:
        self._forwarder = carrier

    async def home_of(self, scope: Scope, doubt: NeedsApproval) -> Address | None:
        """Where a member's question can be put to the owner; guests bother nobody."""
        carrier = self._forwarder
        asks = scope.attended and doubt.owner_only and scope.role is Role.MEMBER
        if carrier is None or not asks:
            return None
        home = await anyio.to_thread.run_sync(carrier.home_of, scope)
        return None if home == scope.address else home

    @asynccontextmanager
    async def reserve_slot(self, asked: QuestionRecord) -> AsyncGenerator[str]:
        """Held while it is asked; gives why there is none, for the model, or nothing."""
        if not asked.question.elsewhere:
            yield ""
            return
        others = await self._from_other_processes(asked)
        # From here to the place taken nobody else has a turn.
        why = _limit_reason([*others, *self._open.values()], asked)
        if why:
            yield why
            return
        self._open[asked.question.id] = asked
        try:
            yield ""
        finally:
            del self._open[asked.question.id]

    async def _from_other_processes(self, asked: QuestionRecord) -> Sequence[QuestionRecord]:
        """What other processes carried; one that this very wish takes up again is none of it."""
        return [
            row
            for row in await self._rows.all_open()
            if row.question.elsewhere
            and row.holder != self._holder
            and is_awaited(row, self._clock)
            and (row.question.session, row.digest) != (asked.question.session, asked.digest)
        ]

    async def carry(self, asked: QuestionRecord) -> None:
        question = asked.question
        if question.elsewhere and self._forwarder is not None and asked.address is not None:
            text = messages.question_text(question, question.seconds, carried=True)
            await self._forwarder.carry(question.id, asked.address, text)


def _limit_reason(waiting: Sequence[QuestionRecord], asked: QuestionRecord) -> str:
    if sum(one.question.run == asked.question.run for one in waiting) >= MAX_PER_RUN:
        return messages.RUN_WAITS_ALREADY
    if sum(one.principal == asked.principal for one in waiting) >= MAX_PER_PERSON:
        return messages.TOO_MANY_WAITING
    return ""


class QuestionWaiter:
    """Those of this process that wait for somebody."""

    def __init__(self, rows: ApprovalStore, clock: Clock, carrying: ForwardedQuestions) -> None:
        self._rows = rows
        self._clock = clock
        self._carrying = carrying
        self._waiting: dict[str, anyio.Event] = {}
        self._expected: dict[str, QuestionRecord] = {}
        """By their calls, those that a turn which goes on is about to ask again."""
        self._leaving = False

    def leave(self) -> None:
        self._leaving = True
        for identity in self._waiting:
            self.wake(identity)

    def has(self, identity: str) -> bool:
        expected = any(row.question.id == identity for row in self._expected.values())
        return expected or identity in self._waiting

    async def left(self, session: str, *, resumed: bool) -> RecoveredQuestions:
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
                told[row.call] = messages.interrupted_message(row)
        return RecoveredQuestions(
            waiting=frozenset(waiting), told={one: told[one] for one in told if told[one]}
        )

    async def _expect(self, row: QuestionRecord) -> None:
        """From now on it is for us to hear of the answer, and in no moment for nobody."""
        failpoint("approvals.before_expecting")
        self._expected[row.call] = row
        if row.state == OPEN:
            # If it was answered just now, that is found when it is asked again.
            await self._rows.change(row, row)

    async def over(self, session: str) -> None:
        """Its turn has ended; what it expected and did not ask is not asked any more."""
        found = [one for one in self._expected.values() if one.question.session == session]
        for row in found:
            await self.drop_expected(row.call)

    async def drop_expected(self, call: str) -> None:
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

    async def earlier(self, session: str, digest: str) -> QuestionRecord | None:
        """The same wish, asked before its process ended: still open, or answered meanwhile."""
        now = self._clock.now()
        for row in reversed(await self._rows.of_session(session)):
            if row.digest != digest or row.question.id in self._waiting:
                continue
            # A clock that was set back must not make an old answer new.
            unheard = (
                row.state == ANSWERED and row.at is not None and abs(now - row.at) < ANSWER_TTL
            )
            return row if row.state == OPEN or unheard else None
        return None

    async def put(self, scope: Scope, asked: QuestionRecord, tell: Emit) -> QuestionRecord | None:
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
            await self.drop_expected(scope.call)
        asked = structs.replace(asked, ends=self._clock.monotonic() + asked.question.seconds)
        self._waiting[asked.question.id] = anyio.Event()
        self._expected.pop(scope.call, None)
        return await self._asked(earlier, asked, tell)

    async def _asked(
        self, earlier: QuestionRecord | None, asked: QuestionRecord, tell: Emit
    ) -> QuestionRecord | None:
        question = asked.question
        try:
            if not await self._rows.change(earlier, asked):
                # It was answered just now.
                self._waiting[question.id].set()
            failpoint("approvals.asked")
            await self._carrying.carry(asked)
            await tell(events.QuestionAsked(question))
            row = await self._wait(asked)
        except BaseException:
            # Stopped, put off or never told: whichever it was, nobody waits for the answer here.
            with anyio.CancelScope(shield=True):
                await self._let_go(asked)
            raise
        finally:
            del self._waiting[question.id]
        answer = "" if row is None else row.answer or row.words
        await tell(events.QuestionAnswered(question.id, answer, row.by if row else ""))
        return row

    async def _let_go(self, asked: QuestionRecord) -> None:
        """Raises nothing in place of what ended the waiting."""
        try:
            if self._leaving:
                await self._rows.change(asked, asked, let_go=True)
            else:
                await self._take_back(asked)
        except StoreError as error:
            log.warning("question %s is not closed: %s", asked.question.id, error)

    async def _take_back(self, asked: QuestionRecord) -> None:
        """Its turn is over: no later one may use an answer that came in the last moment."""
        if await self._rows.lapse(asked):
            return
        row = await self._rows.asked(asked.question.id)
        if row is not None and row.state == ANSWERED:
            await self._rows.lapse(row)

    async def _wait(self, asked: QuestionRecord) -> QuestionRecord | None:
        identity = asked.question.id
        while (left := asked.ends - self._clock.monotonic()) > 0:
            if self._leaving and await self._rows.is_resumable(asked):
                raise TurnSuspended
            await sleep_unless(self._clock, min(POLL_INTERVAL, left), self._waiting[identity])
            self._waiting[identity] = anyio.Event()
            if row := await self._answered(identity):
                return row
        if await self._rows.lapse(asked):
            return None
        return await self._answered(identity)

    async def _answered(self, identity: str) -> QuestionRecord | None:
        row = await self._rows.asked(identity)
        return None if row is None or row.state != ANSWERED else await self._used(row)

    async def _used(self, row: QuestionRecord) -> QuestionRecord | None:
        failpoint("approvals.before_used")
        used = structs.replace(row, state=USED)
        done = await self._rows.change(row, used)
        failpoint("approvals.used")
        return used if done else None
