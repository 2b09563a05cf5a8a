"""Questions, saved approvals and /yolo, which survive a restart."""

import hashlib
from collections.abc import Sequence
from datetime import timedelta

import msgspec
from msgspec import structs

from hermes.kit.clock import Clock
from hermes.kit.ids import shares_boot
from hermes.ports.approval_records import (
    LAPSED,
    USED,
    PutQuestion,
    QuestionRecord,
    RevokeSavedApproval,
    SavedApproval,
    SetYolo,
)
from hermes.ports.store import Store, Write
from hermes.schema.errors import NotFound, StateConflict
from hermes.schema.questions import ApprovalChoice, QuestionKind

INBOX = "inbox"
"""The queue of messages that start turns; its unfinished items resume after a restart."""

ANSWER_TTL = timedelta(minutes=15)
"""How long an answer counts that no process was there to receive."""
RETENTION = timedelta(days=30)


def digest_of(*parts: str) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class ApprovalStore:
    """Changes apply only to the state that was read; losing a race returns False."""

    def __init__(self, store: Store, clock: Clock, holder: str) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder

    async def get_question(self, identity: str) -> QuestionRecord | None:
        return await self._store.approvals.question(identity)

    async def session_questions(self, session: str) -> Sequence[QuestionRecord]:
        return await self._store.approvals.questions(session)

    async def count_denied(self, session: str, run: str) -> int:
        """Count the requests of a turn that were denied or timed out."""
        denied = [
            question
            for question in await self.session_questions(session)
            if question.question.run == run and question.question.kind is QuestionKind.APPROVAL
        ]
        return sum(
            question.state == LAPSED or question.answer == ApprovalChoice.DENY
            for question in denied
        )

    async def was_denied(self, session: str, run: str, digest: str) -> bool:
        """Whether a person denied this same request in this turn, and the turn has received it."""
        return any(
            (question.question.run, question.digest, question.state, question.answer)
            == (run, digest, USED, ApprovalChoice.DENY)
            for question in await self.session_questions(session)
        )

    async def all_open(self) -> Sequence[QuestionRecord]:
        return await self._store.approvals.open_questions()

    async def is_resumable(self, row: QuestionRecord) -> bool:
        """Whether its turn resumes after a restart: the message that began it is still queued."""
        return bool(row.call and row.key) and row.key in await self._store.queues.topics(INBOX)

    async def is_abandoned(self, row: QuestionRecord) -> bool:
        """Whether the worker that asked is dead."""
        return not row.holder or not await self._store.workers.alive(row.holder)

    async def update(
        self,
        before: QuestionRecord | None,
        after: QuestionRecord,
        *more: Write,
        release: bool = False,
    ) -> bool:
        """Return False if the record changed meanwhile. `release` frees it for another process."""
        holder = "" if release else self._holder
        after = structs.replace(after, at=self._clock.now(), holder=holder)
        put = PutQuestion(after, expected_state=before.state if before else "")
        try:
            await self._store.commit(put, *more)
        except StateConflict:
            return False
        return True

    async def saved_approvals(self, session: str | None = None) -> Sequence[SavedApproval]:
        """Return all of them, or those that apply to a session."""
        saved = await self._store.approvals.saved()
        return [
            approval for approval in saved if session is None or approval.session in {"", session}
        ]

    async def revoke(self, identity: str) -> SavedApproval:
        """Revoke by id or the end of one. Raises `NotFound`."""
        found = [
            approval
            for approval in await self.saved_approvals()
            if approval.id.endswith(identity) and identity
        ]
        if len(found) != 1:
            number = "More than one" if found else "No"
            raise NotFound(
                f"{number} saved approval matches {identity!r}.", hint="/approvals lists them."
            )
        await self._store.commit(RevokeSavedApproval(found[0].id))
        return found[0]

    async def yolo(self, session: str) -> bool:
        return await self._store.approvals.yolo(session)

    async def set_yolo(self, session: str, *, on: bool) -> None:
        await self._store.commit(SetYolo(session, on))

    async def lapse(self, row: QuestionRecord) -> bool:
        return await self.update(row, structs.replace(row, state=LAPSED))

    async def close_abandoned(self) -> None:
        """Close open questions that no process waits for or will resume."""
        for row in await self.all_open():
            if await self.is_abandoned(row) and not await self.is_resumable(row):
                await self.lapse(row)

    async def delete_old(self) -> None:
        """Delete closed questions after the retention period."""
        await self.close_abandoned()
        await self._store.approvals.forget_questions(self._clock.now() - RETENTION)


def is_awaited(row: QuestionRecord, clock: Clock) -> bool:
    """Whether its process, if alive, still waits.

    Uses the monotonic clock on the same boot; otherwise the wall clock, limited to the time that
    was given for an answer.
    """
    question = row.question
    if row.deadline and shares_boot(row.holder):
        return clock.monotonic() < row.deadline
    longest = timedelta(seconds=question.seconds) if question.seconds else timedelta.max
    return timedelta(0) < question.until - clock.now() <= longest
