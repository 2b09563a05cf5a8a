"""Match answers to questions, and wait for them."""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from msgspec import Struct, structs

from hermes.approvals import messages
from hermes.approvals.approval_store import (
    ANSWER_TTL,
    ApprovalStore,
    digest_of,
    is_awaited,
)
from hermes.approvals.policy import NeedsApproval
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.tasks import sleep_unless
from hermes.ports.approval_records import ANSWERED, OPEN, USED, QuestionRecord
from hermes.ports.approvals import ApprovalRequest, RecoveredQuestions, TurnSuspended
from hermes.ports.turn import Emit
from hermes.schema import events
from hermes.schema.errors import StoreError
from hermes.schema.questions import ApprovalChoice, Question, QuestionKind
from hermes.schema.scope import OWNER, Address, Role, Scope

NO_LIMIT = 30 * 24 * 3600.0
"""Seconds that mean "no time limit"; the wait ends with the turn."""
POLL_INTERVAL = 2.0
"""Seconds between checks of the stored question: another process may have taken the answer."""
MAX_PER_RUN = 1
MAX_PER_PERSON = 3
"""How many requests may wait for the owner; further ones are rejected until one is answered."""
log = logging.getLogger(__name__)


class QuestionTimeouts(Struct, frozen=True, kw_only=True):
    """Seconds that a person has to answer; `terminal` is for the owner at a terminal or page.

    `channels` has the seconds for approvals in the chats of some channels.
    """

    approval: float = 60.0
    clarify: float = 3600.0
    terminal: float = NO_LIMIT
    channels: Mapping[str, float] = {}


class Answerer(Struct, frozen=True, kw_only=True):
    """The person answering and the session or owner address they answer in."""

    session: str = ""
    principal: str = OWNER
    role: Role = Role.OWNER
    address: Address | None = None


class QuestionForwarder(Protocol):
    """Forwards a member's question to the owner, who is not in the member's chat."""

    def owner_chat(self, scope: Scope) -> Address | None:
        """Return the owner's own chat, if there is one. Reads the settings from disk."""
        ...

    async def forward(self, question: str, address: Address, text: str) -> None:
        """Send the question of that id once, even across restarts."""
        ...


def may_answer(answerer: Answerer, row: QuestionRecord) -> bool:
    return answerer.role is Role.OWNER or answerer.principal == row.question.answerable_by


def is_asked_at(answerer: Answerer, row: QuestionRecord) -> bool:
    """Whether it was asked in this session, or of the owner at this address."""
    here = row.question.session == answerer.session
    there = answerer.role is Role.OWNER and answerer.address is not None
    return here or (there and row.address == answerer.address)


def is_addressed_to(answerer: Answerer, row: QuestionRecord) -> bool:
    if row.question.kind is QuestionKind.APPROVAL:
        return may_answer(answerer, row)
    return row.question.answerable_by == answerer.principal


def matches_id(question: Question, name: str) -> bool:
    """Match the id or its ending; an empty name matches every question."""
    if not name or question.id == name:
        return True
    return len(name) >= messages.SHORT_ID_LENGTH and question.id.casefold().endswith(
        name.casefold()
    )


def split_answer(words: str) -> tuple[str, str]:
    """Split a reply into its word and the id that follows it, if there is nothing else."""
    match words.split():
        case [first, name]:
            return first, name.strip(".!")
        case _:
            return words, ""


def parse_choice(question: Question, words: str) -> ApprovalChoice | None:
    """Parse a single word, optionally followed by the id; anything else is not an answer."""
    first, name = split_answer(words)
    return messages.choice_of_word(first if name and matches_id(question, name) else words)


def needs_id(question: Question, words: str) -> bool:
    """Whether the reply must name the question: forwarded ones must not be answered by accident."""
    name = split_answer(words)[1]
    return question.elsewhere and not (name and matches_id(question, name))


def answerable_without_id(
    own: Sequence[QuestionRecord], choice: ApprovalChoice, *, everything: bool
) -> Sequence[QuestionRecord]:
    """The questions an answer without an id may settle: deny all, but allow only local ones."""
    if everything and choice is ApprovalChoice.DENY:
        return own
    local = [question for question in own if not question.question.elsewhere]
    return local if everything or len(own) == len(local) else []


def matching_questions(waiting: Sequence[QuestionRecord], words: str) -> list[QuestionRecord]:
    """The questions that a plain message may answer, oldest first."""
    first, name = split_answer(words)
    approvals = [
        question for question in waiting if question.question.kind is QuestionKind.APPROVAL
    ]
    clarifies = [question for question in waiting if question.question.kind is QuestionKind.CLARIFY]
    typo = messages.is_misspelled_choice(first)
    if name and (typo or messages.choice_of_word(first)):
        named = [approval for approval in approvals if matches_id(approval.question, name)]
        if named:
            return named
    if messages.choice_of_word(words):
        local = [question for question in waiting if not question.question.elsewhere]
        return local if clarifies else list(waiting)
    # A typo is asked about, unless free text may answer a clarification.
    return approvals if typo and not name and not clarifies else clarifies


def request_digest(scope: Scope, request: ApprovalRequest) -> str:
    """Identify the same request by the same person in the same circumstances."""
    what = (
        request.tool,
        request.action,
        request.target,
        request.detail,
        request.reaching,
        request.folder,
    )
    whose = (scope.principal, scope.role.value, "foreign" if request.foreign else "")
    return digest_of("wish", *what, request.kind, request.seal, *whose)


def chosen_answer(question: Question, words: str) -> str:
    """Replace the number of a choice by the choice."""
    number = words.strip().strip(".)")
    if number.isdecimal() and 1 <= int(number) <= len(question.choices):
        return question.choices[int(number) - 1]
    return words.strip()


class ForwardedQuestions:
    def __init__(
        self,
        rows: ApprovalStore,
        clock: Clock,
        holder: str,
        forwarder: QuestionForwarder | None = None,
    ) -> None:
        self._rows = rows
        self._clock = clock
        self._holder = holder
        self._forwarder = forwarder
        self._open: dict[str, QuestionRecord] = {}

    async def owner_chat(self, scope: Scope, verdict: NeedsApproval) -> Address | None:
        """Where a member's question can be forwarded to the owner; guests' questions never are."""
        asks = scope.attended and verdict.owner_only and scope.role is Role.MEMBER
        if self._forwarder is None or not asks:
            return None
        home = await anyio.to_thread.run_sync(self._forwarder.owner_chat, scope)
        return None if home == scope.address else home

    @asynccontextmanager
    async def reserve_slot(self, question: QuestionRecord) -> AsyncGenerator[str]:
        """Hold a slot while the question is asked; yields why there is none, or an empty string."""
        if not question.question.elsewhere:
            yield ""
            return
        others = await self._from_other_processes(question)
        # No await until the slot is taken.
        why = _limit_reason([*others, *self._open.values()], question)
        if why:
            yield why
            return
        self._open[question.question.id] = question
        try:
            yield ""
        finally:
            del self._open[question.question.id]

    async def _from_other_processes(self, question: QuestionRecord) -> Sequence[QuestionRecord]:
        """Questions forwarded by other processes, except the one this request resumes."""
        return [
            row
            for row in await self._rows.all_open()
            if row.question.elsewhere
            and row.holder != self._holder
            and is_awaited(row, self._clock)
            and (row.question.session, row.digest) != (question.question.session, question.digest)
        ]

    async def forward(self, record: QuestionRecord) -> None:
        question = record.question
        if question.elsewhere and self._forwarder is not None and record.address is not None:
            text = messages.question_text(question, question.seconds, forwarded=True)
            await self._forwarder.forward(question.id, record.address, text)


def _limit_reason(waiting: Sequence[QuestionRecord], record: QuestionRecord) -> str:
    if sum(question.question.run == record.question.run for question in waiting) >= MAX_PER_RUN:
        return messages.RUN_WAITS_ALREADY
    if sum(question.principal == record.principal for question in waiting) >= MAX_PER_PERSON:
        return messages.TOO_MANY_WAITING
    return ""


class QuestionWaiter:
    """Waits for the answers to this process's questions."""

    def __init__(self, rows: ApprovalStore, clock: Clock, forwarded: ForwardedQuestions) -> None:
        self._rows = rows
        self._clock = clock
        self._forwarded = forwarded
        self._waiting: dict[str, anyio.Event] = {}
        self._expected: dict[str, QuestionRecord] = {}
        """By call: questions that a resumed turn is about to ask again."""
        self._shutting_down = False

    def prepare_shutdown(self) -> None:
        self._shutting_down = True
        for identity in self._waiting:
            self.wake(identity)

    def is_waiting(self, identity: str) -> bool:
        expected = any(row.question.id == identity for row in self._expected.values())
        return expected or identity in self._waiting

    async def recover(self, session: str, *, resumed: bool) -> RecoveredQuestions:
        """Recover the questions of a session whose turn begins and is its only one."""
        waiting: set[str] = set()
        results: dict[str, str] = {}
        for row in await self._rows.session_questions(session):
            if row.question.id in self._waiting:
                continue
            if row.state in {OPEN, ANSWERED}:
                if resumed and row.call:
                    await self._expect(row)
                    waiting.add(row.call)
                    continue
                await self._rows.lapse(row)
            if row.call:
                results[row.call] = messages.interrupted_message(row)
        known = {call: text for call, text in results.items() if text}
        return RecoveredQuestions(waiting=frozenset(waiting), results=known)

    async def _expect(self, row: QuestionRecord) -> None:
        """Take over the question, so that its answer reaches this process without a gap."""
        failpoint("approvals.before_expecting")
        self._expected[row.call] = row
        if row.state == OPEN:
            # An answer that arrives now is found when the question is asked again.
            await self._rows.update(row, row)

    async def turn_ended(self, session: str) -> None:
        """Close what a finished turn expected and did not ask again."""
        for row in list(self._expected.values()):
            if row.question.session == session:
                await self.drop_expected(row.call)

    async def drop_expected(self, call: str) -> None:
        """Close the question of a call that was decided without it."""
        row = self._expected.pop(call, None)
        if row is None or self._shutting_down:
            return
        with anyio.CancelScope(shield=True):
            await self._release(row)

    def wake(self, identity: str) -> None:
        """Have the waiting task check the stored question now."""
        if identity in self._waiting:
            self._waiting[identity].set()

    async def find_earlier(self, session: str, digest: str) -> QuestionRecord | None:
        """The same request from an ended process: still open, or answered meanwhile."""
        now = self._clock.now()
        for row in reversed(await self._rows.session_questions(session)):
            if row.digest != digest or row.question.id in self._waiting:
                continue
            # A clock that was set back must not revive an old answer.
            unused = row.state == ANSWERED and abs(now - row.at) < ANSWER_TTL
            return row if row.state == OPEN or unused else None
        return None

    async def ask_and_wait(
        self, scope: Scope, question: QuestionRecord, emit: Emit
    ) -> QuestionRecord | None:
        """Ask and wait; None without an answer."""
        address = question.address or scope.address
        question = structs.replace(
            question, principal=scope.principal, address=address, call=scope.call, key=scope.key
        )
        earlier = await self.find_earlier(scope.session, question.digest)
        if earlier is not None and earlier.state == ANSWERED:
            self._expected.pop(scope.call, None)
            return await self._mark_used(earlier)
        if earlier is not None:
            # The question keeps its message and starts a new timeout.
            again = structs.replace(
                earlier.question,
                until=question.question.until,
                seconds=question.question.seconds,
                run=scope.run,
            )
            question = structs.replace(earlier, question=again, call=scope.call, key=scope.key)
        expected = self._expected.get(scope.call)
        if expected is not None and expected.question.id != question.question.id:
            await self.drop_expected(scope.call)
        question = structs.replace(
            question, deadline=self._clock.monotonic() + question.question.seconds
        )
        self._waiting[question.question.id] = anyio.Event()
        self._expected.pop(scope.call, None)
        return await self._ask(earlier, question, emit)

    async def _ask(
        self, earlier: QuestionRecord | None, record: QuestionRecord, emit: Emit
    ) -> QuestionRecord | None:
        question = record.question
        try:
            if not await self._rows.update(earlier, record):
                # It was answered just now.
                self._waiting[question.id].set()
            failpoint("approvals.asked")
            await self._forwarded.forward(record)
            await emit(events.QuestionAsked(question))
            row = await self._wait(record)
        except BaseException:
            # Cancelled, suspended or never shown: this process stops waiting.
            with anyio.CancelScope(shield=True):
                await self._release(record)
            raise
        finally:
            del self._waiting[question.id]
        answer = "" if row is None else row.answer or row.answer_text
        await emit(events.QuestionAnswered(question.id, answer, row.answered_by if row else ""))
        return row

    async def _release(self, question: QuestionRecord) -> None:
        """Release the question without masking the exception that ended the wait."""
        try:
            if self._shutting_down:
                await self._rows.update(question, question, release=True)
            else:
                await self._close(question)
        except StoreError as error:
            log.warning("could not close question %s: %s", question.question.id, error)

    async def _close(self, question: QuestionRecord) -> None:
        """Close the question of a finished turn, so that no later turn uses a late answer."""
        if await self._rows.lapse(question):
            return
        row = await self._rows.get_question(question.question.id)
        if row is not None and row.state == ANSWERED:
            await self._rows.lapse(row)

    async def _wait(self, question: QuestionRecord) -> QuestionRecord | None:
        identity = question.question.id
        while (left := question.deadline - self._clock.monotonic()) > 0:
            if self._shutting_down and await self._rows.is_resumable(question):
                raise TurnSuspended
            await sleep_unless(self._clock, min(POLL_INTERVAL, left), self._waiting[identity])
            self._waiting[identity] = anyio.Event()
            if row := await self._take_answer(identity):
                return row
        if await self._rows.lapse(question):
            return None
        return await self._take_answer(identity)

    async def _take_answer(self, identity: str) -> QuestionRecord | None:
        row = await self._rows.get_question(identity)
        return None if row is None or row.state != ANSWERED else await self._mark_used(row)

    async def _mark_used(self, row: QuestionRecord) -> QuestionRecord | None:
        failpoint("approvals.before_used")
        used = structs.replace(row, state=USED)
        done = await self._rows.update(row, used)
        failpoint("approvals.used")
        return used if done else None
