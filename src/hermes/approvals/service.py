"""Decide whether a tool call may run: policy rules, then a model's opinion, then a person.

A question is stored before it is shown. Its answer reaches the waiting turn, even after a
restart, and counts once.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property

import anyio.to_thread
from msgspec import Struct, structs

from hermes.approvals import messages
from hermes.approvals.approval_store import (
    ApprovalStore,
    digest_of,
    is_awaited,
)
from hermes.approvals.policy import (
    Allowed,
    ApprovalRules,
    Denied,
    NeedsApproval,
    StandingApprovals,
    apply_policy,
    unreachable_reason,
)
from hermes.approvals.questions import (
    Answerer,
    ForwardedQuestions,
    QuestionForwarder,
    QuestionTimeouts,
    QuestionWaiter,
    answerable_without_id,
    chosen_answer,
    is_addressed_to,
    is_asked_at,
    matches_id,
    matching_questions,
    may_answer,
    needs_id,
    parse_choice,
    request_digest,
)
from hermes.approvals.saved_approvals import (
    can_be_saved,
    leaves_sandbox,
    make_saved_approval,
)
from hermes.approvals.smart_review import AskModel, Opinion, ask_opinion
from hermes.kit.clock import Clock
from hermes.kit.ids import new_holder_id, new_id
from hermes.ports.approval_records import ANSWERED, AddSavedApproval, QuestionRecord, SavedApproval
from hermes.ports.approvals import ApprovalRequest, Decision, RecoveredQuestions
from hermes.ports.store import Store, Write
from hermes.ports.turn import Emit
from hermes.schema.events import Notice
from hermes.schema.questions import (
    TERMINAL_ORIGIN,
    WEB_ORIGIN,
    ApprovalChoice,
    Question,
    QuestionKind,
)
from hermes.schema.scope import OWNER, Address, Role, Scope


class AnswerResult(Struct, frozen=True):
    """The reply to an answer, and how many questions it settled.

    `is_new_message` is set when the text answered a clarification that is already closed: a chat
    then treats the text as a new message.
    """

    message: str
    count: int = 0
    is_new_message: bool = False


class ApprovalService:
    """Implements `Approvals` and `PendingQuestions` of `hermes.ports`, and takes answers."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rules: ApprovalRules,
        timeouts: QuestionTimeouts | None = None,
        ask_model: AskModel | None = None,
        forwarder: QuestionForwarder | None = None,
    ) -> None:
        """`forwarder` sends members' questions to the owner's chat."""
        self._holder = new_holder_id(store.workers.own)
        self._store = store
        self._clock = clock
        self._rules = rules
        self._timeouts = timeouts or QuestionTimeouts()
        self._ask_model = ask_model
        self._forwarder = forwarder

    @cached_property
    def _rows(self) -> ApprovalStore:
        return ApprovalStore(self._store, self._clock, self._holder)

    @cached_property
    def _forwarded(self) -> ForwardedQuestions:
        return ForwardedQuestions(self._rows, self._clock, self._holder, self._forwarder)

    @cached_property
    def _waiting(self) -> QuestionWaiter:
        return QuestionWaiter(self._rows, self._clock, self._forwarded)

    @property
    def rules(self) -> ApprovalRules:
        return self._rules

    def seconds(self, kind: QuestionKind) -> float:
        return self._timeouts.approval if kind is QuestionKind.APPROVAL else self._timeouts.clarify

    def prepare_shutdown(self) -> None:
        """Prepare for shutdown: keep the questions of interrupted turns for the next start.

        Turns that only wait for a person, and can be resumed, end now.
        """
        self._waiting.prepare_shutdown()

    async def recover(self, session: str, *, resumed: bool) -> RecoveredQuestions:
        return await self._waiting.recover(session, resumed=resumed)

    async def turn_ended(self, session: str) -> None:
        await self._waiting.turn_ended(session)

    async def close_abandoned(self) -> None:
        await self._rows.close_abandoned()

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        decision = await self._apply_rules(scope, request, emit)
        # A resumed call may be decided without its earlier question.
        await self._waiting.drop_expected(scope.call)
        return decision

    async def _apply_rules(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        verdict, bound = apply_policy(self._rules, request, scope, StandingApprovals()), request
        if isinstance(verdict, NeedsApproval):
            bound = await self._sealed(scope, request)
            verdict = apply_policy(self._rules, bound, scope, await self._standing_approvals(scope))
        match verdict:
            case Allowed():
                return Decision(allowed=True)
            case Denied(why=why):
                return Decision(allowed=False, why=why)
            case NeedsApproval():
                decision = await self._decide(scope, bound, verdict, emit)
        if decision.allowed and await self._sealed(scope, request) != bound:
            return Decision(allowed=False, why=messages.FILE_CHANGED)
        return decision

    async def _sealed(self, scope: Scope, request: ApprovalRequest) -> ApprovalRequest:
        """Seal the request with the content of the files that a command names: they may change."""
        if not request.shell or request.kind or not (leaves_sandbox(request) or request.foreign):
            return request
        from hermes.approvals.seals import SealContext, seal_request  # noqa: PLC0415 - few ever need it

        context = SealContext(
            folder=request.folder, workspace=scope.workspace, path=self._rules.path
        )
        return await anyio.to_thread.run_sync(seal_request, request, context)

    async def ask_person(
        self, scope: Scope, text: str, choices: Sequence[str], emit: Emit
    ) -> str | None:
        if not scope.attended:
            return None
        question = self._question(scope, QuestionKind.CLARIFY, text, tuple(choices))
        digest = digest_of("clarify", text, *choices)
        now = self._clock.now()
        record = QuestionRecord(question=question, digest=digest, principal="", at=now)
        row = await self._waiting.ask_and_wait(scope, record, emit)
        return row.answer_text if row is not None else None

    async def _standing_approvals(self, scope: Scope) -> StandingApprovals:
        saved = await self._rows.saved_approvals(scope.session)
        owner = scope.role is Role.OWNER
        own = [
            approval
            for approval in saved
            if (approval.is_from_owner if owner else approval.asked_by == scope.principal)
        ]
        return StandingApprovals(saved=own, yolo=await self._rows.yolo(scope.session))

    async def _decide(
        self, scope: Scope, request: ApprovalRequest, verdict: NeedsApproval, emit: Emit
    ) -> Decision:
        earlier = await self._waiting.find_earlier(scope.session, request_digest(scope, request))
        if earlier is None and verdict.smart and self._ask_model is not None:
            match await ask_opinion(self._ask_model, request, verdict.why):
                case Opinion.APPROVE:
                    return Decision(allowed=True)
                case Opinion.DENY:
                    why = f"Not done: it was judged harmful. {verdict.why} Find a safer way."
                    return Decision(allowed=False, why=why)
                case Opinion.ESCALATE:
                    pass
        why = unreachable_reason(scope, verdict)
        home = await self._forwarded.owner_chat(scope, verdict) if why else None
        if why and home is None:
            if not scope.attended:
                await emit(
                    Notice(messages.refusal_notice(scope, request, verdict.why), refused=True)
                )
            return Decision(allowed=False, why=why)
        return await self._ask(scope, self._request(scope, request, verdict, home), emit)

    async def _ask(self, scope: Scope, question: QuestionRecord, emit: Emit) -> Decision:
        if question.request is not None and (why := messages.too_long_reason(question.request)):
            return Decision(allowed=False, why=why)
        if await self._rows.was_denied(scope.session, scope.run, question.digest):
            return Decision(allowed=False, why=messages.ALREADY_DENIED)
        if await self._rows.count_denied(scope.session, scope.run) >= messages.MAX_DENIALS:
            return Decision(allowed=False, why=messages.TOO_MANY_DENIALS)
        async with self._forwarded.reserve_slot(question) as full:
            if full:
                return Decision(allowed=False, why=full)
            row = await self._waiting.ask_and_wait(scope, question, emit)
        return messages.decision_of(row, question.question.seconds)

    def _request(
        self, scope: Scope, request: ApprovalRequest, verdict: NeedsApproval, home: Address | None
    ) -> QuestionRecord:
        once = (ApprovalChoice.ONCE, ApprovalChoice.DENY)
        choices = tuple(ApprovalChoice) if can_be_saved(request) else once
        text = messages.approval_prompt(request, verdict.why)
        question = structs.replace(
            self._question(scope, QuestionKind.APPROVAL, text, choices, home),
            subject=messages.request_subject(request),
            reason=messages.request_reason(request),
            answerable_by=OWNER if verdict.owner_only else scope.principal,
            elsewhere=home is not None,
        )
        return QuestionRecord(
            question=question,
            digest=request_digest(scope, request),
            principal=scope.principal,
            at=self._clock.now(),
            request=request,
            address=home,
        )

    def _question(
        self,
        scope: Scope,
        kind: QuestionKind,
        text: str,
        choices: tuple[str, ...],
        home: Address | None = None,
    ) -> Question:
        origin, seconds = messages.request_origin(scope), self.seconds(kind)
        address = home or scope.address
        if kind is QuestionKind.APPROVAL and origin in {TERMINAL_ORIGIN, WEB_ORIGIN}:
            seconds = self._timeouts.terminal
        elif kind is QuestionKind.APPROVAL and address is not None:
            seconds = self._timeouts.channels.get(address.channel, seconds)
        return Question(
            id=new_id("ask"),
            kind=kind,
            session=scope.session,
            run=scope.run,
            text=text,
            origin=origin,
            choices=choices,
            answerable_by=scope.principal,
            until=self._clock.now() + timedelta(seconds=seconds),
            seconds=seconds,
        )

    async def pending(self, answerer: Answerer) -> Sequence[QuestionRecord]:
        """Return what waits for an answer there, oldest first."""
        return [
            row
            for row in await self._rows.all_open()
            if is_asked_at(answerer, row) and await self._is_awaited(row, answerer)
        ]

    async def all_pending(self) -> Sequence[QuestionRecord]:
        """Return what waits for an answer in any session, oldest first."""
        return [
            row
            for row in await self._rows.all_open()
            if await self._is_awaited(row, Answerer(session=row.question.session))
        ]

    async def _is_awaited(self, row: QuestionRecord, answerer: Answerer) -> bool:
        if row.holder == self._holder:
            return self._waiting.is_waiting(row.question.id)
        if not await self._rows.is_abandoned(row):
            return is_awaited(row, self._clock)
        # Another session may have replaced it meanwhile; then the turn is over.
        same = row.question.elsewhere or row.question.session == answerer.session
        return same and await self._rows.is_resumable(row)

    async def answer(
        self, answerer: Answerer, choice: ApprovalChoice, *, question: str = "", words: str = "",
        everything: bool = False,
    ) -> AnswerResult:  # fmt: skip
        """Answer the only waiting approval, the one named, or all of them.

        `question` is an id or the end of one. It is required when several wait, and for
        questions that were forwarded from another chat.
        """
        waiting = await self._approvals(answerer)
        chosen = [record for record in waiting if matches_id(record.question, question)]
        if not chosen:
            latest = await self._latest_approval(answerer, question)
            other = [
                record for record in waiting if latest is None and may_answer(answerer, record)
            ]
            notice = messages.late_message(latest, self._clock)
            return AnswerResult(messages.several_message(other) if other else notice)
        own = [record for record in chosen if may_answer(answerer, record)]
        if not own:
            return AnswerResult(messages.NOT_ALLOWED)
        targets = answerable_without_id(own, choice, everything=everything) if not question else own
        if not targets or (len(targets) > 1 and not everything):
            return AnswerResult(messages.several_message(own))
        result = await self._settle_all(targets, answerer, choice, words)
        remaining = [record for record in own if record not in targets]
        if not remaining:
            return result
        return AnswerResult(
            f"{result.message}\n{messages.several_message(remaining)}", result.count
        )

    async def _settle_all(
        self,
        chosen: Sequence[QuestionRecord],
        answerer: Answerer,
        choice: ApprovalChoice,
        words: str,
    ) -> AnswerResult:
        settled: list[QuestionRecord] = []
        for row in chosen:
            # A choice that cannot be saved counts once.
            effective = choice if choice in row.question.choices else ApprovalChoice.ONCE
            if not await self._settle(row, answerer, effective, words):
                latest = await self._rows.get_question(row.question.id)
                return AnswerResult(messages.late_message(latest, self._clock), len(settled))
            settled.append(row)
        lasts = all(choice in row.question.choices for row in settled)
        return AnswerResult(
            messages.answer_message(choice, settled, shortened=not lasts), len(settled)
        )

    async def reply(
        self, answerer: Answerer, text: str, *, question: str = ""
    ) -> AnswerResult | None:
        """Take a plain message as an answer; None when it does not answer anything asked of them.

        When several approvals could be meant, none is: yes and no then need an id.
        """
        if question:
            row = next((o for o in await self.pending(answerer) if o.question.id == question), None)
            result = None if row is None else await self._reply_to(row, answerer, text)
            return result or _late_result(await self._rows.get_question(question), self._clock)
        candidates = await self._candidates(answerer, text)
        if not candidates:
            return None
        approvals = [
            record for record in candidates if record.question.kind is QuestionKind.APPROVAL
        ]
        if approvals and (len(candidates) > 1 or needs_id(candidates[0].question, text)):
            return AnswerResult(messages.several_message(approvals))
        return await self._reply_to(candidates[-1], answerer, text)

    async def _reply_to(
        self, row: QuestionRecord, answerer: Answerer, words: str
    ) -> AnswerResult | None:
        if row.question.kind is QuestionKind.APPROVAL:
            choice = parse_choice(row.question, words)
            if choice is None:
                return AnswerResult(messages.unclear_message(row.question, words))
            return await self.answer(answerer, choice, question=row.question.id)
        if row.question.answerable_by != answerer.principal or not words.strip():
            return None
        if await self._settle(row, answerer, None, chosen_answer(row.question, words)):
            return AnswerResult("", 1)
        return _late_result(await self._rows.get_question(row.question.id), self._clock)

    async def _candidates(self, answerer: Answerer, words: str) -> list[QuestionRecord]:
        """The questions that a plain message may answer, oldest first."""
        waiting = [
            question
            for question in await self.pending(answerer)
            if is_addressed_to(answerer, question)
        ]
        return matching_questions(waiting, words)

    async def has_open_questions(self) -> bool:
        """Whether any question is open."""
        return bool(await self._rows.all_open())

    async def has_request(self, answerer: Answerer, name: str) -> bool:
        """Whether a request with that id waits there."""
        return any(
            matches_id(approval.question, name) for approval in await self._approvals(answerer)
        )

    async def would_answer(self, answerer: Answerer, text: str, *, question: str = "") -> bool:
        """Whether `reply` would take the text as an answer.

        For a `question` that is closed or is someone else's to answer, only yes and no count as
        answers; any other text is a new message.
        """
        if not text.strip():
            return False
        if not question:
            return bool(await self._candidates(answerer, text))
        row = await self._rows.get_question(question)
        if row is None:
            return False
        waiting = [
            record for record in await self.pending(answerer) if is_addressed_to(answerer, record)
        ]
        if any(record.question.id == question for record in waiting):
            return True
        approval = row.question.kind is QuestionKind.APPROVAL
        return approval and parse_choice(row.question, text) is not None

    async def saved_approvals(self) -> Sequence[SavedApproval]:
        return await self._rows.saved_approvals()

    async def revoke(self, identity: str) -> SavedApproval:
        """Raises `NotFound`."""
        return await self._rows.revoke(identity)

    async def yolo(self, session: str) -> bool:
        return await self._rows.yolo(session)

    async def set_yolo(self, session: str, *, on: bool) -> None:
        await self._rows.set_yolo(session, on=on)

    async def delete_old(self) -> None:
        await self._rows.delete_old()

    async def _approvals(self, answerer: Answerer) -> list[QuestionRecord]:
        return [
            question
            for question in await self.pending(answerer)
            if question.question.kind is QuestionKind.APPROVAL
        ]

    async def _latest_approval(self, answerer: Answerer, question: str) -> QuestionRecord | None:
        rows = await self._rows.session_questions(answerer.session) if answerer.session else ()
        approvals = [row for row in rows if row.question.kind is QuestionKind.APPROVAL]
        named = [record for record in approvals if matches_id(record.question, question)]
        if named or not question:
            return named[-1] if named else None
        return await self._rows.get_question(question)

    async def _settle(
        self, row: QuestionRecord, answerer: Answerer, choice: ApprovalChoice | None, words: str
    ) -> bool:
        answer = "" if choice is None else choice.value
        after = structs.replace(
            row, state=ANSWERED, answer=answer, answer_text=words, answered_by=answerer.principal
        )
        done = await self._rows.update(
            row, after, *self._saved_approval_writes(row, answerer, choice)
        )
        if done:
            self._waiting.wake(row.question.id)
        return done

    def _saved_approval_writes(
        self, row: QuestionRecord, answerer: Answerer, choice: ApprovalChoice | None
    ) -> list[Write]:
        lasting = choice in {ApprovalChoice.SESSION, ApprovalChoice.ALWAYS}
        if not lasting or choice not in row.question.choices or row.request is None:
            return []
        session = row.question.session if choice is ApprovalChoice.SESSION else ""
        saved = make_saved_approval(
            row.request,
            new_id("grant"),
            session=session,
            by=row.principal,
            answered_by=answerer.principal,
        )
        return [AddSavedApproval(saved)]


def _late_result(latest: QuestionRecord | None, clock: Clock) -> AnswerResult:
    is_clarification = latest is not None and latest.question.kind is QuestionKind.CLARIFY
    return AnswerResult(messages.late_message(latest, clock), is_new_message=is_clarification)
