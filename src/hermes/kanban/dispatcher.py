"""Start workers for ready tasks, and end runs whose workers are gone."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from hermes.kanban.boards import Access, BoardInfo
from hermes.kanban.lifecycle import (
    CLAIM_SECONDS,
    ClaimTerms,
    RunFailure,
    claim_task,
    extend_claim,
    fail_run,
    promote_ready,
    reject_early_claim,
)
from hermes.kanban.service import BoardService, DispatchReport
from hermes.kanban.tasks import last_event
from hermes.kanban.worker import Worker
from hermes.ports.board import BoardRows
from hermes.schema.board import RunOutcome, Task, TaskFilter, TaskRun, TaskStatus
from hermes.schema.errors import HermesError, StateConflict

log = logging.getLogger(__name__)


class DispatchRules(Struct, frozen=True, kw_only=True):
    """Limits from the settings; None is unlimited."""

    failure_limit: int = 2
    default_assignee: str = ""
    max_in_progress: int | None = None
    max_in_progress_per_profile: int | None = None
    max_starts: int | None = None
    max_workers: int = 8
    """Tasks of all boards that this profile works on at the same time."""
    claim_seconds: int = CLAIM_SECONDS
    stale_seconds: int = 14_400
    crash_grace_seconds: int = 30
    rate_limit_cooldown_seconds: int = 300


_STALE = "Its worker has not reported for hours."


class TaskWorkers(Protocol):
    """The workers of this process for one profile; `lock` is in the claims of their runs."""

    @property
    def lock(self) -> str: ...

    @property
    def count(self) -> int: ...

    async def start(self, worker: Worker, task: Task) -> None:
        """Start to work on a claimed task. Raises `HermesError` if that is impossible."""
        ...

    def is_running(self, worker: Worker) -> bool: ...

    def has_worker(self, board: str, task_id: str) -> bool:
        """Whether a worker, perhaps of an earlier run or another profile, has not ended yet."""
        ...


class Dispatcher:
    """Serves the boards for the profiles that this process can run."""

    def __init__(
        self,
        *,
        service: BoardService,
        rules: DispatchRules,
        workers: TaskWorkers,
        can_run: Callable[[str], bool],
        is_gone: Callable[[TaskRun], bool],
        is_alive: Callable[[TaskRun], bool],
    ) -> None:
        """`is_gone` and `is_alive` judge workers of other processes, as far as known."""
        self._service = service
        self._rules = rules
        self._workers = workers
        self._can_run = can_run
        self._is_gone = is_gone
        self._is_alive = is_alive

    async def dispatch(self, board: str, *, dry_run: bool = False) -> DispatchReport:
        """Do what is due on one board: end, promote, start."""
        now = self._service.now()

        def prepare(rows: BoardRows) -> tuple[list[str], list[str], list[Task], dict[str, int]]:
            ended = [] if dry_run else self._end_dead_runs(rows, board, now)
            promoted = list(rows.promotable()) if dry_run else promote_ready(rows, now)
            statuses = (TaskStatus.READY, TaskStatus.REVIEW)
            ready = list(rows.tasks(TaskFilter(statuses=statuses)))
            running = rows.tasks(TaskFilter(statuses=(TaskStatus.RUNNING,)))
            return ended, promoted, ready, Counter(map(self._assignee, running))

        run = self._service.read if dry_run else self._service.write_quietly
        ended, promoted, ready, running = await run(board, prepare)
        started: list[str] = []
        skipped: list[tuple[str, str]] = []
        info = self._service.boards.info(board)
        for task in ready:
            reason = self._reason_to_wait(info, task, running, len(started))
            if not reason and not dry_run:
                reason = await self._claim_and_start(board, task)
            if reason:
                skipped.append((task.id, reason))
                continue
            started.append(task.id)
            assignee = self._assignee(task)
            running[assignee] = running.get(assignee, 0) + 1
        if not dry_run and (ended or promoted or started):
            # A pass that changes nothing must not cause the next one.
            self._service.wake(board)
        return DispatchReport(promoted=promoted, started=started, ended=ended, skipped=skipped)

    def _assignee(self, task: Task) -> str:
        return task.assignee or self._rules.default_assignee

    def _reason_to_wait(
        self, board: BoardInfo, task: Task, running: dict[str, int], started: int
    ) -> str:
        assignee = self._assignee(task)
        if not assignee:
            return "It has no assignee."
        if assignee.startswith("@"):
            return f"It is waiting for {assignee}."
        if not self._can_run(assignee):
            return f"The profile {assignee} is not served here."
        if not board.allows(assignee, Access.WRITE):
            return f"The profile {assignee} may not work on this board."
        if self._workers.has_worker(board.slug, task.id):
            return "Its last worker has not ended yet."
        return self._exceeded_limit(assignee, running, started)

    def _exceeded_limit(self, assignee: str, running: dict[str, int], started: int) -> str:
        rules = self._rules
        if rules.max_starts is not None and started >= rules.max_starts:
            return "Enough workers were started in this pass."
        if self._workers.count >= rules.max_workers:
            return f"{assignee} is busy."
        if rules.max_in_progress is not None and sum(running.values()) >= rules.max_in_progress:
            return "Enough tasks are running."
        limit = rules.max_in_progress_per_profile
        if limit is not None and running.get(assignee, 0) >= limit:
            return f"{assignee} is busy."
        return ""

    async def _claim_and_start(self, board: str, task: Task) -> str:
        """Return why it could not be started; empty if a worker has it."""
        now = self._service.now()
        terms = ClaimTerms(
            lock=self._workers.lock,
            expires=now + self._rules.claim_seconds,
            profile=self._assignee(task),
        )

        def claim(rows: BoardRows) -> TaskRun | str:
            if self._is_cooling_down(rows, task.id, now):
                return "Its provider rejected it a moment ago."
            if refusal := reject_early_claim(rows, task.id, now):
                return refusal
            return claim_task(rows, task.id, terms, now)

        try:
            run = await self._service.write_quietly(board, claim)
        except StateConflict as error:
            return str(error)
        if isinstance(run, str):
            return run
        worker = Worker(board, task.id, run.id)
        try:
            await self._workers.start(worker, task)
        except HermesError as error:
            await self._fail_start(worker, error)
            return str(error)
        return ""

    def _is_cooling_down(self, rows: BoardRows, task_id: str, now: int) -> bool:
        guarded = last_event(rows, task_id, "respawn_guarded")
        cooldown = self._rules.rate_limit_cooldown_seconds
        return guarded is not None and now - guarded.created_at < cooldown

    async def _fail_start(self, worker: Worker, error: HermesError) -> None:
        text = str(error)
        failure = RunFailure(outcome=RunOutcome.SPAWN_FAILED, error=text, details={"error": text})
        limit = self._rules.failure_limit

        def fail(rows: BoardRows) -> None:
            now = self._service.now()
            fail_run(rows, worker.task, failure, now, limit=limit, run_id=worker.run)

        await self._service.write(worker.board, fail)

    def _end_dead_runs(self, rows: BoardRows, board: str, now: int) -> list[str]:
        """End runs that lost their worker, exceeded their time or stopped reporting.

        A living worker may be late, for example because the machine slept; it keeps its claim.
        """
        ended: list[str] = []
        for task in rows.tasks(TaskFilter(statuses=(TaskStatus.RUNNING,))):
            run = rows.run(task.current_run_id) if task.current_run_id is not None else None
            if run is None:
                continue
            if (found := self._end_of(board, task, run, now)) is None:
                if _has_expired(task, now):
                    extend_claim(rows, task, run, now + self._rules.claim_seconds, now)
                continue
            outcome, error = found
            failure = RunFailure(
                outcome=outcome,
                error=error,
                details=_details(outcome, task, run, now),
                cause="stale" if error == _STALE else "",
            )
            limit = self._rules.failure_limit
            fail_run(rows, task.id, failure, now, limit=limit, run_id=run.id)
            log.info("run %d of %s ended: %s", run.id, task.id, error)
            ended.append(task.id)
        return ended

    def _end_of(
        self, board: str, task: Task, run: TaskRun, now: int
    ) -> tuple[RunOutcome, str] | None:
        limit = task.max_runtime_seconds
        # A limit of 0 means none, as for the worker.
        if limit and now - run.started_at > limit:
            return RunOutcome.TIMED_OUT, f"It ran longer than {limit} s."
        grace = self._rules.crash_grace_seconds
        if now - run.started_at >= grace and self._is_dead(board, run):
            return RunOutcome.CRASHED, "Its worker ended without a result."
        if _has_expired(task, now) and not self._lives(board, run):
            return RunOutcome.CRASHED, "Its worker no longer reports."
        seen = task.last_heartbeat_at or run.started_at
        if now - seen > self._rules.stale_seconds:
            return RunOutcome.CRASHED, _STALE
        return None

    def _is_dead(self, board: str, run: TaskRun) -> bool:
        """Whether the worker of a run has ended, in this process or in another one."""
        if run.claim_lock == self._workers.lock:
            return not self._workers.is_running(Worker(board, run.task_id, run.id))
        return self._is_gone(run)

    def _lives(self, board: str, run: TaskRun) -> bool:
        """Whether the worker of a run is known to be alive, in this process or in another one."""
        if run.claim_lock == self._workers.lock:
            return self._workers.is_running(Worker(board, run.task_id, run.id))
        return self._is_alive(run)


def _has_expired(task: Task, now: int) -> bool:
    return task.claim_expires is not None and now >= task.claim_expires


def _details(outcome: RunOutcome, task: Task, run: TaskRun, now: int) -> dict[str, object]:
    if outcome is RunOutcome.TIMED_OUT:
        return {
            "pid": run.worker_pid,
            "elapsed_seconds": now - run.started_at,
            "limit_seconds": task.max_runtime_seconds,
            "sigkill": False,
        }
    return {"pid": run.worker_pid, "claimer": run.claim_lock, "exit_kind": "unknown"}
