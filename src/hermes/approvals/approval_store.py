"""Store questions, saved approvals and /yolo as records that survive a restart."""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Raw, Struct, structs

from hermes.approvals.saved_approvals import SavedApproval
from hermes.kit.clock import Clock
from hermes.kit.process_identity import shares_boot
from hermes.ports.approvals import ApprovalRequest
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, StateConflict
from hermes.schema.questions import ApprovalChoice, Question, QuestionKind
from hermes.schema.scope import Address

QUESTION_KIND = "question"
GRANT_KIND = "grant"
YOLO_KIND = "yolo"

OPEN = "open"
ANSWERED = "answered"
USED = "used"
LAPSED = "lapsed"

INBOX = "inbox"
"""The queue of messages that start turns; its unfinished items resume after a restart."""

ANSWER_TTL = timedelta(minutes=15)
"""How long an answer counts that no process was there to receive."""
RETENTION = timedelta(days=30)


class QuestionRecord(Struct, frozen=True, kw_only=True):
    """A question and its outcome.

    `words` is a reason, or the answer to a clarification. `digest` identifies a repeated request,
    `principal` asked for it, and `wish` is missing for a clarification. `call` is the tool call
    that waits, `key` its session's topic in the inbox. `holder` is the worker that receives the
    answer; empty when there is none. `ends` is the deadline by its machine's monotonic clock.
    """

    question: Question
    digest: str
    principal: str
    state: str = OPEN
    wish: ApprovalRequest | None = None
    address: Address | None = None
    answer: str = ""
    words: str = ""
    by: str = ""
    at: datetime | None = None
    call: str = ""
    key: str = ""
    holder: str = ""
    ends: float = 0.0


def digest_of(*parts: str) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class ApprovalStore:
    """Changes apply only to the state that was read; losing a race returns False."""

    def __init__(self, store: Store, clock: Clock, holder: str) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder

    async def get_question(self, identity: str) -> QuestionRecord | None:
        found = await self._store.records.get(QUESTION_KIND, identity)
        return found and _decode_question(found)

    async def session_questions(self, session: str) -> Sequence[QuestionRecord]:
        found = await self._store.records.find(QUESTION_KIND, session=session, limit=100)
        return [_decode_question(one) for one in found]

    async def count_denied(self, session: str, run: str) -> int:
        """Count the requests of a turn that were denied or timed out."""
        asked = [
            one
            for one in await self.session_questions(session)
            if one.question.run == run and one.question.kind is QuestionKind.APPROVAL
        ]
        return sum(one.state == LAPSED or one.answer == ApprovalChoice.DENY for one in asked)

    async def was_denied(self, session: str, run: str, digest: str) -> bool:
        """Whether a person denied this same request in this turn, and the turn has received it."""
        return any(
            (one.question.run, one.digest, one.state, one.answer)
            == (run, digest, USED, ApprovalChoice.DENY)
            for one in await self.session_questions(session)
        )

    async def all_open(self) -> Sequence[QuestionRecord]:
        found = await self._store.records.find(QUESTION_KIND, only_open=True)
        return [_decode_question(one) for one in found]

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
        *more: PutRecord,
        release: bool = False,
    ) -> bool:
        """Return False if the record changed meanwhile. `release` frees it for another process."""
        holder = "" if release else self._holder
        after = structs.replace(after, at=self._clock.now(), holder=holder)
        record = StateRecord(
            kind=QUESTION_KIND,
            id=after.question.id,
            session=after.question.session,
            state=after.state,
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(after)),
            open=after.state == OPEN,
            holder=holder,
        )
        try:
            await self._store.commit(
                PutRecord(record, expected_state=before.state if before else ""), *more
            )
        except StateConflict:
            return False
        return True

    def saved_approval_write(self, saved: SavedApproval) -> PutRecord:
        return PutRecord(self._saved_record(saved, "given"), expected_state="")

    def _saved_record(self, saved: SavedApproval, state: str) -> StateRecord:
        return StateRecord(
            kind=GRANT_KIND,
            id=saved.id,
            session=saved.session,
            state=state,
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(saved)),
            open=state == "given",
        )

    async def saved_approvals(self, session: str | None = None) -> Sequence[SavedApproval]:
        """Return all of them, or those that apply to a session."""
        found = await self._store.records.find(GRANT_KIND, only_open=True)
        saved = [msgspec.json.decode(one.body, type=SavedApproval) for one in found]
        return [one for one in saved if session is None or one.session in {"", session}]

    async def revoke(self, identity: str) -> SavedApproval:
        """Revoke by id or the end of one. Raises `NotFound`."""
        found = [
            one for one in await self.saved_approvals() if one.id.endswith(identity) and identity
        ]
        if len(found) != 1:
            number = "More than one" if found else "No"
            raise NotFound(
                f"{number} saved approval matches {identity!r}.", hint="/approvals lists them."
            )
        revoked = self._saved_record(found[0], "revoked")
        await self._store.commit(PutRecord(revoked, expected_state="given"))
        return found[0]

    async def yolo(self, session: str) -> bool:
        found = await self._store.records.get(YOLO_KIND, session)
        return found is not None and found.open

    async def set_yolo(self, session: str, *, on: bool) -> None:
        record = StateRecord(
            kind=YOLO_KIND,
            id=session,
            session=session,
            state="on" if on else "off",
            at=self._clock.now(),
            body=Raw(b"{}"),
            open=on,
        )
        await self._store.commit(PutRecord(record))

    async def lapse(self, row: QuestionRecord) -> bool:
        return await self.update(row, structs.replace(row, state=LAPSED))

    async def close_abandoned(self) -> None:
        """Close open questions that no process waits for or will resume."""
        for row in await self.all_open():
            if await self.is_abandoned(row) and not await self.is_resumable(row):
                await self.lapse(row)

    async def delete_old(self) -> None:
        """Delete closed records after the retention period."""
        await self.close_abandoned()
        before = self._clock.now() - RETENTION
        for kind in (QUESTION_KIND, GRANT_KIND, YOLO_KIND):
            await self._store.records.forget(kind, before)


def is_awaited(row: QuestionRecord, clock: Clock) -> bool:
    """Whether its process, if alive, still waits.

    Uses the monotonic clock on the same boot; otherwise the wall clock, limited to the time that
    was given for an answer.
    """
    question = row.question
    if row.ends and shares_boot(row.holder):
        return clock.monotonic() < row.ends
    longest = timedelta(seconds=question.seconds) if question.seconds else timedelta.max
    return timedelta(0) < question.until - clock.now() <= longest


def _decode_question(record: StateRecord) -> QuestionRecord:
    row = msgspec.json.decode(record.body, type=QuestionRecord)
    return structs.replace(row, state=record.state, holder=record.holder)
