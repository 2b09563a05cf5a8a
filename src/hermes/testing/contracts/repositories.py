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
from hermes.ports.board_watches import BoardWatch, PutBoardWatch, RemoveBoardWatch
from hermes.ports.delegation import (
    AddDelegation,
    ChangeDelegation,
    CloseDelegation,
    Delegation,
    Task,
    TaskReport,
    TaskStatus,
)
from hermes.ports.goals import DeleteGoal, Goal, GoalState, SaveGoal
from hermes.ports.processes import AddProcess, BackgroundProcess, ChangeProcess, ProcessState
from hermes.ports.store import OpenSession, RecordUsage, Store
from hermes.schema.errors import StateConflict
from hermes.schema.messages import Usage
from hermes.schema.questions import Question, QuestionKind
from hermes.schema.scope import OWNER, Address, Role, Scope
from hermes.testing.contracts.chat_records import (
    ApiRecordsContract,
    ChatRecordsContract,
    LedgerRecordsContract,
    SessionRecordsContract,
    holders_of,
)
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
        question = structs.replace(
            question_record(clock, "q1"),
            request=ApprovalRequest(tool="terminal", action="ls é", reaching=Isolation.BEYOND),
            address=Address("telegram", "1", "2"),
            answer_text="because",
            holder=store.workers.own,
            deadline=1.5,
        )
        await store.commit(PutQuestion(question))
        assert await store.approvals.question("q1") == question
        assert await store.approvals.question("q2") is None

    async def test_question_changes_only_in_the_expected_state(
        self, store: Store, clock: Clock
    ) -> None:
        question = question_record(clock, "q1")
        await store.commit(PutQuestion(question))
        with pytest.raises(StateConflict):
            await store.commit(PutQuestion(question))
        answered = structs.replace(question, state="answered", answer="once")
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
            return " ".join(question.question.id for question in found)

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
        assert [approval.id for approval in await store.approvals.saved()] == ["g1", "g2"]
        assert (await store.approvals.saved())[0] == saved
        await store.commit(RevokeSavedApproval("g1"))
        assert [approval.id for approval in await store.approvals.saved()] == ["g2"]
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
        assert [question.question.id for question in await store.approvals.open_questions()] == [
            "q2"
        ]
        assert [approval.id for approval in await store.approvals.saved()] == ["g2"]
        assert not await store.approvals.yolo("s1")


def process(name: str, clock: Clock, of_session: str = "s1") -> BackgroundProcess:
    scope = Scope(profile="p", session=of_session, run="r", workspace="/w", role=Role.GUEST)
    started = clock.now()
    return BackgroundProcess(id=name, command="make", folder="/w", scope=scope, started=started)


class ProcessRecordsContract:
    async def test_process_is_read_back_unchanged(self, store: Store, clock: Clock) -> None:
        background_process = structs.replace(
            process("p1", clock),
            pid=7,
            pty=True,
            reaching=Isolation.NETWORK,
            foreign=True,
            notify=True,
            watch=("a", "b"),
            output="é",
            state=ProcessState.EXITED,
            exit_code=0,
            ended=clock.now(),
        )
        await store.commit(AddProcess(background_process, store.workers.own))
        assert await store.processes.get("p1") == background_process
        assert await store.processes.get("p2") is None
        with pytest.raises(StateConflict):
            await store.commit(AddProcess(background_process, ""))

    async def test_only_a_running_process_changes(self, store: Store, clock: Clock) -> None:
        background_process = process("p1", clock)
        await store.commit(AddProcess(background_process, ""))
        await store.commit(ChangeProcess(structs.replace(background_process, notices=1)))
        lost = structs.replace(background_process, state=ProcessState.LOST, ended=clock.now())
        await store.commit(ChangeProcess(lost))
        with pytest.raises(StateConflict):
            await store.commit(ChangeProcess(background_process))
        assert await store.processes.all() == [lost]

    async def test_running_processes_are_counted_and_abandoned(
        self, store: Store, clock: Clock
    ) -> None:
        for name, holder in holders_of(store).items():
            await store.commit(AddProcess(process(name, clock), holder))
        ended = structs.replace(process("p", clock), state=ProcessState.EXITED, ended=clock.now())
        await store.commit(AddProcess(ended, ""))
        assert await store.has_background_work()
        assert await store.processes.count_running() == 5
        assert await store.processes.count_running(not_by=store.workers.own) == 4
        abandoned = [
            background_process.id for background_process in await store.processes.abandoned()
        ]
        assert abandoned == ["old, dead", "none", "elsewhere"]
        assert await store.processes.forget(clock.now()) == 0
        assert await store.processes.forget(clock.now() + HOUR) == 1
        assert await store.processes.get("p") is None

    async def test_processes_of_a_deleted_session_are_deleted(
        self, store: Store, clock: Clock
    ) -> None:
        await store.commit(
            OpenSession(session(clock, "s1")),
            AddProcess(process("p1", clock), ""),
            AddProcess(process("p2", clock, "s2"), ""),
        )
        await store.archive_for(OWNER).delete(["s1"])
        assert [background_process.id for background_process in await store.processes.all()] == [
            "p2"
        ]


def delegation(name: str, holder: str = "") -> Delegation:
    scope = Scope(profile="p", session="s1", run="r", workspace="/w", role=Role.MEMBER)
    tasks = (Task(goal="a"), Task(goal="b"))
    return Delegation(id=name, scope=scope, tasks=tasks, reports=(None, None), holder=holder)


class DelegationRecordsContract:
    async def test_delegation_changes_until_it_is_closed(self, store: Store) -> None:
        one = delegation("d1", store.workers.own)
        await store.commit(AddDelegation(one), AddDelegation(delegation("d2")))
        with pytest.raises(StateConflict):
            await store.commit(AddDelegation(one))
        report = TaskReport(goal="a", fate=TaskStatus.COMPLETED, summary="é")
        one = structs.replace(one, reports=(report, None))
        await store.commit(ChangeDelegation(one))
        assert await store.delegations.running() == [one, delegation("d2")]
        await store.commit(CloseDelegation("d1"))
        for late in (CloseDelegation("d1"), ChangeDelegation(one)):
            with pytest.raises(StateConflict):
                await store.commit(late)
        assert await store.delegations.running() == [delegation("d2")]

    async def test_delegations_of_dead_workers_are_abandoned(self, store: Store) -> None:
        assert not await store.has_background_work()
        for name, holder in holders_of(store).items():
            await store.commit(AddDelegation(delegation(name, holder)))
        assert await store.has_background_work()
        abandoned = [one.id for one in await store.delegations.abandoned()]
        assert abandoned == ["old, dead", "none", "elsewhere"]

    async def test_delegations_of_a_deleted_session_are_deleted(
        self, store: Store, clock: Clock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1")), AddDelegation(delegation("d1")))
        await store.archive_for(OWNER).delete(["s1"])
        assert await store.delegations.running() == []


class BoardWatchesContract:
    async def test_cursor_never_moves_back_and_the_scope_stays(self, store: Store) -> None:
        scope = Scope(profile="p", session="s1", run="r", workspace="/w", role=Role.MEMBER)
        watch = BoardWatch(
            board="b", task="t", platform="x", chat="1", thread="", cursor=5, scope=scope
        )
        await store.commit(PutBoardWatch(watch))
        later = structs.replace(watch, cursor=3, scope=None, problem="gone")
        await store.commit(PutBoardWatch(later))
        assert await store.board_watches.of_board("b") == [structs.replace(watch, problem="gone")]
        assert await store.board_watches.of_board("other") == []
        await store.commit(RemoveBoardWatch(watch))
        assert await store.board_watches.of_board("b") == []


class GoalsContract:
    async def test_goal_is_read_back_and_changed_by_its_revision(
        self, store: Store, clock: Clock
    ) -> None:
        scope = Scope(profile="p", session="s1", run="", workspace="/w", role=Role.OWNER)
        goal = Goal(session="s1", text="é", scope=scope, created_at=clock.now(), subgoals=("a",))
        await store.commit(SaveGoal(goal))
        stored = structs.replace(goal, revision=1)
        assert await store.goals.get("s1") == stored
        done = structs.replace(stored, state=GoalState.DONE, evidence=("x",), max_cost=0.5)
        await store.commit(SaveGoal(done))
        assert await store.goals.active() == []
        with pytest.raises(StateConflict):
            await store.commit(SaveGoal(stored))
        with pytest.raises(StateConflict):
            await store.commit(SaveGoal(goal))
        await store.commit(DeleteGoal("s1"))
        assert await store.goals.get("s1") is None

    async def test_older_goal_does_not_replace_the_one_set_after_it_was_deleted(
        self, store: Store, clock: Clock
    ) -> None:
        scope = Scope(profile="p", session="s1", run="", workspace="")
        new = Goal(session="s1", text="new", scope=scope, created_at=clock.now())
        old = structs.replace(new, text="old", created_at=clock.now() - timedelta(1), revision=1)
        await store.commit(SaveGoal(new))
        with pytest.raises(StateConflict):
            await store.commit(SaveGoal(old))

    async def test_cost_includes_subagents_but_no_branches(
        self, store: Store, clock: Clock
    ) -> None:
        top = session(clock, "top")
        child = structs.replace(session(clock, "child"), source="subagent", parent="top")
        below = structs.replace(session(clock, "below"), source="subagent", parent="child")
        branch = structs.replace(session(clock, "branch"), parent="top")
        for number, one in enumerate([top, child, below, branch]):
            cost = RecordUsage(one.id, "", "m", "p", Usage(1, 1), float(10**number), clock.now())
            await store.commit(OpenSession(one), cost)
        unknown = RecordUsage("top", "", "m", "p", Usage(1, 1), None, clock.now())
        await store.commit(unknown)  # must not hide known rows
        assert await store.goals.cost("top") == 111
        assert await store.goals.cost("none") == 0

    async def test_goal_of_a_deleted_session_is_deleted(self, store: Store, clock: Clock) -> None:
        scope = Scope(profile="p", session="s1", run="", workspace="")
        goal = Goal(session="s1", text="x", scope=scope, created_at=clock.now())
        await store.commit(OpenSession(session(clock, "s1")), SaveGoal(goal))
        assert [one.session for one in await store.goals.active()] == ["s1"]
        await store.archive_for(OWNER).delete(["s1"])
        assert await store.goals.get("s1") is None


class RepositoriesContract(
    ApprovalRecordsContract,
    ProcessRecordsContract,
    DelegationRecordsContract,
    ChatRecordsContract,
    SessionRecordsContract,
    ApiRecordsContract,
    LedgerRecordsContract,
    BoardWatchesContract,
    GoalsContract,
):
    """All repositories."""
