"""The way of a task through its statuses."""

import pytest

from hermes.kanban.lifecycle import (
    ClaimTerms,
    Completion,
    archive_task,
    block_task,
    claim_task,
    complete_task,
    fail_run,
    promote_task,
    reclaim_task,
    record_heartbeat,
    release_rate_limited,
    request_changes,
    request_review,
    unblock_task,
)
from hermes.kanban.tasks import NewTask, create_task, find_task, link_tasks
from hermes.ports.board import BoardRows
from hermes.schema.board import BlockKind, RunOutcome, TaskStatus
from hermes.schema.errors import LeaseLost, StateConflict, UsageError
from hermes.store.board import SqliteBoard

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000
TERMS = ClaimTerms(lock="host:1", expires=NOW + 900)


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
            failed = fail_run(
                rows, task.id, RunOutcome.CRASHED, "exit 1", NOW, limit=2, details={"pid": 1}
            )
            assert failed.status is expected
        assert kinds(rows, task.id)[-2:] == ["crashed", "gave_up"]

    await board.write(work)


async def test_review_sends_work_back_or_accepts_it(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        task = create_task(rows, NewTask(title="task"), NOW)
        run = claim_task(rows, task.id, TERMS, NOW)
        review = request_review(rows, task.id, Completion(summary="please look"), NOW, run.id)
        assert review.status is TaskStatus.REVIEW
        run = claim_task(rows, task.id, TERMS, NOW)
        changed = request_changes(rows, task.id, "no tests", NOW, author="eve", run_id=run.id)
        assert changed.status is TaskStatus.READY
        assert rows.comments(task.id)[0].body == "CHANGES REQUESTED: no tests"

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

    await board.write(work)


async def test_repeated_idempotency_key_returns_the_first_task(board: SqliteBoard) -> None:
    def work(rows: BoardRows) -> None:
        first = create_task(rows, NewTask(title="once", idempotency_key="k"), NOW)
        assert create_task(rows, NewTask(title="twice", idempotency_key="k"), NOW) == first

    await board.write(work)
