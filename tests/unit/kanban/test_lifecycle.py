"""The way of a task through its statuses."""

import pytest

from hermes.kanban.context import worker_context
from hermes.kanban.lifecycle import (
    ClaimTerms,
    Completion,
    RunFailure,
    archive_task,
    block_task,
    claim_task,
    complete_task,
    fail_run,
    promote_task,
    reclaim_task,
    record_heartbeat,
    reject_early_claim,
    release_rate_limited,
    unblock_task,
)
from hermes.kanban.reviews import request_changes, request_review
from hermes.kanban.service import task_details
from hermes.kanban.tasks import NewTask, create_task, find_task, link_tasks
from hermes.ports.board import BoardRows
from hermes.schema.board import BlockKind, RunOutcome, TaskChange, TaskStatus
from hermes.schema.errors import LeaseLost, StateConflict, UsageError
from hermes.store.board import SqliteBoard

NOW = 1_800_000_000
TERMS = ClaimTerms(lock="host:1", expires=NOW + 900)
CRASH = RunFailure(outcome=RunOutcome.CRASHED, error="exit 1", details={"pid": 1})


def kinds(rows: BoardRows, task_id: str) -> list[str]:
    return [event.kind for event in rows.events(task_id, 100)]


async def test_child_becomes_ready_when_its_last_parent_is_done(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        first = create_task(rows, NewTask(title="first"), NOW)
        second = create_task(rows, NewTask(title="second"), NOW)
        child = create_task(rows, NewTask(title="child", parents=(first.id, second.id)), NOW)
        assert child.status is TaskStatus.TODO
        complete_task(rows, first.id, Completion(summary="ok"), NOW)
        assert find_task(rows, child.id).status is TaskStatus.TODO
        complete_task(rows, second.id, Completion(summary="ok"), NOW)
        assert find_task(rows, child.id).status is TaskStatus.READY
        assert kinds(rows, child.id) == ["created", "promoted"]

    await board.write(work)


async def test_only_one_worker_claims_a_task(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        task = create_task(rows, NewTask(title="task", assignee="ada"), NOW)
        run = claim_task(rows, task.id, TERMS, NOW)
        assert (run.profile, run.status) == ("ada", "running")
        with pytest.raises(StateConflict):
            claim_task(rows, task.id, ClaimTerms(lock="host:2", expires=NOW + 900), NOW)

    await board.write(work)


async def test_worker_without_its_claim_changes_nothing(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> str:
        task = create_task(rows, NewTask(title="task"), NOW)
        lost = claim_task(rows, task.id, TERMS, NOW).id
        reclaim_task(rows, task.id, "stale", NOW)
        claim_task(rows, task.id, TERMS, NOW)
        for change in (
            lambda: complete_task(rows, task.id, Completion(summary="late"), NOW, lost),
            lambda: block_task(
                rows, task.id, "late", BlockKind.TRANSIENT, NOW, author="ada", run_id=lost
            ),
            lambda: record_heartbeat(rows, task.id, NOW + 1, NOW, run_id=lost),
            lambda: release_rate_limited(rows, task.id, lost, "429", NOW),
        ):
            with pytest.raises(LeaseLost):
                change()
        return task.id

    task_id = await board.write(work)
    task = await board.read(lambda rows: find_task(rows, task_id))
    assert (task.status, task.consecutive_failures) == (TaskStatus.RUNNING, 0)


async def test_second_block_of_the_same_kind_goes_to_triage(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        task = create_task(rows, NewTask(title="task"), NOW)
        for expected in (TaskStatus.BLOCKED, TaskStatus.TRIAGE):
            claim_task(rows, task.id, TERMS, NOW)
            blocked = block_task(
                rows, task.id, "which key?", BlockKind.NEEDS_INPUT, NOW, author="ada"
            )
            assert blocked.status is expected
            unblock_task(rows, task.id, NOW)
        assert [run.outcome for run in rows.runs(task.id)] == ["blocked", "blocked"]
        assert rows.comments(task.id)[0].body == "BLOCKED: which key?"

    await board.write(work)


async def test_failures_in_a_row_give_up_and_rate_limits_do_not_count(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        task = create_task(rows, NewTask(title="task"), NOW)
        run = claim_task(rows, task.id, TERMS, NOW)
        assert release_rate_limited(rows, task.id, run.id, "429", NOW).consecutive_failures == 0
        for expected in (TaskStatus.READY, TaskStatus.BLOCKED):
            claim_task(rows, task.id, TERMS, NOW)
            failed = fail_run(rows, task.id, CRASH, NOW, limit=2)
            assert failed.status is expected
        assert kinds(rows, task.id)[-2:] == ["crashed", "gave_up"]
        expected = "BLOCKED: gave up after 2 failures in a row. Last: exit 1"
        assert rows.comments(task.id)[-1].body == expected

    await board.write(work)


def in_review(rows: BoardRows, reviewer: str | None = "eve") -> str:
    """A task that ada did and eve reviews."""
    task = create_task(rows, NewTask(title="task", assignee="ada"), NOW)
    run = claim_task(rows, task.id, TERMS, NOW)
    done = Completion(summary="please look")
    request_review(rows, task.id, done, NOW, reviewer=reviewer, run_id=run.id)
    return task.id


async def test_reviewed_work_returns_to_its_author(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        task = find_task(rows, in_review(rows))
        assert (task.status, task.assignee) == (TaskStatus.REVIEW, "eve")
        run = claim_task(rows, task.id, TERMS, NOW)
        context = worker_context(rows, task_details(rows, find_task(rows, task.id)), NOW)
        assert "done by ada; you review it" in context
        changed = request_changes(rows, task.id, "no tests", NOW, author="eve", run_id=run.id)
        assert (changed.status, changed.assignee) == (TaskStatus.READY, "ada")
        assert rows.comments(task.id)[0].body == "CHANGES REQUESTED: no tests"
        run = claim_task(rows, task.id, TERMS, NOW)
        context = worker_context(rows, task_details(rows, find_task(rows, task.id)), NOW)
        assert "you review it" not in context
        with pytest.raises(StateConflict, match="not in review"):
            request_changes(rows, task.id, "own work", NOW, author="ada", run_id=run.id)

    await board.write(work)


async def test_author_does_not_review_and_without_a_reviewer_a_person_does(
    board: SqliteBoard,
) -> None:
    def work(rows: BoardRows) -> None:
        with pytest.raises(UsageError, match="ada did the work"):
            in_review(rows, "ada")
        assert find_task(rows, in_review(rows, None)).assignee == "@owner"
        done = create_task(rows, NewTask(title="done"), NOW)
        complete_task(rows, done.id, Completion(summary="ok"), NOW)
        with pytest.raises(StateConflict, match="is done"):
            request_review(rows, done.id, Completion(summary="again"), NOW)

    await board.write(work)


async def test_interrupted_review_stays_a_review(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        task = in_review(rows)
        run = claim_task(rows, task, TERMS, NOW)
        with pytest.raises(StateConflict, match="already in review"):
            request_review(rows, task, Completion(summary="x"), NOW, run_id=run.id)
        failed = fail_run(rows, task, CRASH, NOW, limit=2)
        assert failed.status is TaskStatus.REVIEW
        claim_task(rows, task, TERMS, NOW)
        assert reclaim_task(rows, task, "stale", NOW).status is TaskStatus.REVIEW
        claim_task(rows, task, TERMS, NOW)
        block_task(rows, task, "which key?", BlockKind.NEEDS_INPUT, NOW, author="eve")
        assert unblock_task(rows, task, NOW).status is TaskStatus.REVIEW

    await board.write(work)


async def test_third_request_for_changes_blocks_the_task(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        task = in_review(rows)
        for expected in (TaskStatus.READY, TaskStatus.READY, TaskStatus.BLOCKED):
            changed = request_changes(rows, task, "no tests", NOW, author="eve")
            assert (changed.status, changed.assignee) == (expected, "ada")
            if expected is TaskStatus.READY:
                claim_task(rows, task, TERMS, NOW)
                request_review(rows, task, Completion(summary="again"), NOW, reviewer="eve")
        assert rows.comments(task)[-1].body.startswith("BLOCKED: Changes were requested 3 times")
        assert unblock_task(rows, task, NOW).status is TaskStatus.READY

    await board.write(work)


async def test_early_claim_is_rejected_and_recorded(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        parent = create_task(rows, NewTask(title="parent"), NOW)
        child = create_task(rows, NewTask(title="child", parents=(parent.id,)), NOW)
        # As another program may have left it.
        rows.change_task(child.id, TaskChange(status=TaskStatus.READY))
        assert parent.id in reject_early_claim(rows, child.id, NOW)
        assert find_task(rows, child.id).status is TaskStatus.TODO
        assert kinds(rows, child.id)[-1] == "claim_rejected"
        assert not reject_early_claim(rows, parent.id, NOW)

    await board.write(work)


async def test_initial_status_running_starts_normally(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        new = NewTask(title="task", initial_status=TaskStatus.RUNNING)
        assert create_task(rows, new, NOW).status is TaskStatus.READY

    await board.write(work)


async def test_archived_task_takes_its_claim_away_and_frees_its_children(
    board: SqliteBoard,
) -> None:
    def work(rows: BoardRows) -> None:
        task = create_task(rows, NewTask(title="task"), NOW)
        child = create_task(rows, NewTask(title="child", parents=(task.id,)), NOW)
        run = claim_task(rows, task.id, TERMS, NOW)
        archive_task(rows, task.id, NOW)
        with pytest.raises(LeaseLost):
            record_heartbeat(rows, task.id, NOW + 1, NOW, run_id=run.id)
        assert find_task(rows, child.id).status is TaskStatus.READY

    await board.write(work)


async def test_cycle_is_refused(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        first = create_task(rows, NewTask(title="first"), NOW)
        second = create_task(rows, NewTask(title="second", parents=(first.id,)), NOW)
        with pytest.raises(UsageError, match="already waits"):
            link_tasks(rows, second.id, first.id, NOW)

    await board.write(work)


async def test_promoting_needs_force_while_parents_are_open(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        parent = create_task(rows, NewTask(title="parent"), NOW)
        child = create_task(rows, NewTask(title="child", parents=(parent.id,)), NOW)
        with pytest.raises(StateConflict, match=parent.id):
            promote_task(rows, child.id, "now", NOW, force=False)
        promoted = promote_task(rows, child.id, "now", NOW, force=True)
        assert promoted.status is TaskStatus.READY
        claim_task(rows, child.id, TERMS, NOW)
        assert reclaim_task(rows, child.id, "stale", NOW).status is TaskStatus.READY

    await board.write(work)


async def test_repeated_idempotency_key_returns_the_first_task(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        first = create_task(rows, NewTask(title="once", idempotency_key="k"), NOW)
        assert create_task(rows, NewTask(title="twice", idempotency_key="k"), NOW) == first

    await board.write(work)
