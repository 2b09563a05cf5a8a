"""Contracts of the repositories. Subclass `RepositoriesContract` with `store` and `clock`."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec import structs

from hermes.kit.clock import Clock
from hermes.ports.approval_records import (
    AddSavedApproval,
    PutQuestion,
    QuestionRecord,
    RevokeSavedApproval,
    SavedApproval,
    SetYolo,
)
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.store import OpenSession, Store
from hermes.schema.errors import StateConflict
from hermes.schema.questions import Question, QuestionKind
from hermes.schema.scope import OWNER, Address
from hermes.testing.contracts.samples import session

HOUR = timedelta(hours=1)


def question_record(clock: Clock, name: str, of_session: str = "s1") -> QuestionRecord:
    question = Question(
        id=name,
        kind=QuestionKind.APPROVAL,
        session=of_session,
        run="r1",
        text="May I?",
        choices=("once", "deny"),
        until=clock.now() + HOUR,
    )
    return QuestionRecord(question=question, digest="d", principal="ann", at=clock.now())


class ApprovalRecordsContract:
    async def test_question_is_read_back_unchanged(self, store: Store, clock: Clock) -> None:
        asked = structs.replace(
            question_record(clock, "q1"),
            request=ApprovalRequest(tool="terminal", action="ls é", reaching=Isolation.BEYOND),
            address=Address("telegram", "1", "2"),
            answer_text="because",
            holder=store.workers.own,
            deadline=1.5,
        )
        await store.commit(PutQuestion(asked))
        assert await store.approvals.question("q1") == asked
        assert await store.approvals.question("q2") is None

    async def test_question_changes_only_in_the_expected_state(
        self, store: Store, clock: Clock
    ) -> None:
        asked = question_record(clock, "q1")
        await store.commit(PutQuestion(asked))
        with pytest.raises(StateConflict):
            await store.commit(PutQuestion(asked))
        answered = structs.replace(asked, state="answered", answer="once")
        with pytest.raises(StateConflict):
            await store.commit(OpenSession(session(clock, "x")), PutQuestion(answered, "used"))
        await store.commit(PutQuestion(answered, "open"))
        assert await store.approvals.question("q1") == answered
        assert await store.archive_for(OWNER).latest() is None

    async def test_questions_are_listed_by_session_and_state(
        self, store: Store, clock: Clock
    ) -> None:
        for name, of_session in (("q1", "s1"), ("q2", "s2"), ("q3", "s1"), ("q4", "s1")):
            await store.commit(PutQuestion(question_record(clock, name, of_session)))
        closed = structs.replace(question_record(clock, "q3"), state="used")
        await store.commit(PutQuestion(closed, "open"))

        def ids(found: Sequence[QuestionRecord]) -> str:
            return " ".join(one.question.id for one in found)

        assert ids(await store.approvals.questions("s1")) == "q1 q3 q4"
        assert ids(await store.approvals.questions("s1", 2)) == "q3 q4"
        assert ids(await store.approvals.open_questions()) == "q1 q2 q4"
        assert ids(await store.approvals.open_questions("s1")) == "q1 q4"
        assert await store.approvals.forget_questions(clock.now()) == 0
        assert await store.approvals.forget_questions(clock.now() + HOUR) == 1
        assert ids(await store.approvals.questions("s1")) == "q1 q4"

    async def test_saved_approval_counts_until_revoked(self, store: Store) -> None:
        saved = SavedApproval(
            id="g1", tool="t", reaching=Isolation.OPEN, argv=("ls", "-l"), asked_by="ann"
        )
        await store.commit(AddSavedApproval(saved))
        await store.commit(AddSavedApproval(structs.replace(saved, id="g2", session="s1")))
        assert [one.id for one in await store.approvals.saved()] == ["g1", "g2"]
        assert (await store.approvals.saved())[0] == saved
        await store.commit(RevokeSavedApproval("g1"))
        assert [one.id for one in await store.approvals.saved()] == ["g2"]
        with pytest.raises(StateConflict):
            await store.commit(RevokeSavedApproval("g1"))

    async def test_yolo_is_on_until_it_is_turned_off(self, store: Store) -> None:
        await store.commit(SetYolo("s1", on=True))
        await store.commit(SetYolo("s1", on=True))
        assert await store.approvals.yolo("s1")
        assert not await store.approvals.yolo("s2")
        await store.commit(SetYolo("s1", on=False))
        assert not await store.approvals.yolo("s1")

    async def test_approvals_of_a_deleted_session_are_deleted(
        self, store: Store, clock: Clock
    ) -> None:
        saved = SavedApproval(id="g1", tool="t", reaching=Isolation.OPEN, session="s1")
        await store.commit(
            OpenSession(session(clock, "s1")),
            PutQuestion(question_record(clock, "q1")),
            PutQuestion(question_record(clock, "q2", "s2")),
            AddSavedApproval(saved),
            AddSavedApproval(structs.replace(saved, id="g2", session="")),
            SetYolo("s1", on=True),
        )
        await store.archive_for(OWNER).delete(["s1"])
        assert [one.question.id for one in await store.approvals.open_questions()] == ["q2"]
        assert [one.id for one in await store.approvals.saved()] == ["g2"]
        assert not await store.approvals.yolo("s1")


class RepositoriesContract(ApprovalRecordsContract):
    """All repositories."""
