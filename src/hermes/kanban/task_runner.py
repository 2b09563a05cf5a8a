"""Work on a claimed task: run turns of the assignee's profile until the task is settled."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kanban.artifacts import keep_artifacts
from hermes.kanban.completion_check import goal_reminder, pursues_goal
from hermes.kanban.context import MAX_BODY, review_text, worker_context
from hermes.kanban.lifecycle import (
    AUTHOR,
    CLAIM_SECONDS,
    block_task,
    record_heartbeat,
    release_rate_limited,
)
from hermes.kanban.running_tasks import RunRecords
from hermes.kanban.service import BoardService, task_details
from hermes.kanban.tasks import find_task
from hermes.kanban.worker import PLATFORM, Worker
from hermes.kanban.workspaces import Workspace, Workspaces
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id, new_session_id
from hermes.kit.tasks import background_tasks
from hermes.kit.text import head_and_tail, plural
from hermes.ports.board import BoardRows
from hermes.ports.store import Store, Write
from hermes.schema.board import (
    BlockKind,
    JsonObject,
    RunChange,
    RunOutcome,
    Task,
    TaskRun,
    TaskStatus,
    WorkspaceKind,
)
from hermes.schema.errors import HermesError, LeaseLost, NotFound, RateLimited
from hermes.schema.messages import Text, Trust, Usage, User
from hermes.schema.scope import OWNER, InheritedLimits
from hermes.schema.sessions import Session
from hermes.session.limited_run import LimitedRun, RunLimits, RunResult
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 60.0
MAX_REMINDERS = 2
"""Turns that end without a result before the run counts as failed."""
EXCLUDED_TOOLS = frozenset({"clarify", "send_message", "kanban_list", "kanban_unblock"})
_RULES = Path(__file__).with_name("worker.md")
_SCRATCH_TIP = (
    "A scratch workspace is deleted when its task is done. To keep the files, name them as "
    "artifacts, or create tasks with --workspace dir:/path or worktree:/repository."
)
_REMINDER = (
    "Your task is not finished. Complete it with kanban_complete, or say what you need with "
    "kanban_block."
)


class RunnerSettings(Struct, frozen=True, kw_only=True):
    profile: str
    claim_seconds: int = CLAIM_SECONDS
    idle: float = 1_800.0
    """Seconds without activity outside of tools after which a turn is ended."""
    goal_turns: int = 20
    """Turns of a task in goal mode that names no limit."""


class TaskRunner:
    """Runs tasks in this process. `skill_text` returns a skill's instructions."""

    def __init__(
        self,
        *,
        service: BoardService,
        records: RunRecords,
        store: Store,
        clock: Clock,
        runner: Runner,
        workspaces: Callable[[str], Workspaces],
        skill_text: Callable[[str, str], Awaitable[str]],
        settings: RunnerSettings,
    ) -> None:
        self._service = service
        self._records = records
        self._store = store
        self._clock = clock
        self._runner = runner
        self._workspaces = workspaces
        self._skill_text = skill_text
        self._settings = settings

    async def run(self, worker: Worker, task: Task) -> None:
        """Run until the task is settled; a task that someone took away is left alone."""
        try:
            async with background_tasks() as group:
                group.start_soon(self._beat, worker, group.cancel_scope)
                workspace = await self._workspaces(worker.board).prepare(task)
                await self._explain_scratch(worker, task)
                await self._work(worker, task, workspace)
        except LeaseLost:
            log.info("run %d of %s was taken away", worker.run, worker.task)
        except HermesError as error:
            await self._records.fail(worker, str(error))
        finally:
            # Record the cost even of a run that was cancelled.
            with anyio.CancelScope(shield=True):
                await self._try_record_cost(worker)
        await self._try_clean_up(worker)

    async def remove_old_workspaces(self, board: str) -> None:
        """Remove scratch workspaces of finished tasks that an earlier process had no time for."""
        folder = self._service.boards.paths(board).workspaces
        names = await run_sync(lambda: [path.name for path in folder.glob("*")])
        for run in await self._service.read(board, lambda rows: _last_runs(rows, names)):
            if run.profile == self._settings.profile:
                await self._try_clean_up(Worker(board, run.task_id, run.id))

    async def _explain_scratch(self, worker: Worker, task: Task) -> None:
        """Explain once per home, in log and task, that scratch workspaces are deleted."""
        if task.workspace_kind != WorkspaceKind.SCRATCH:
            return
        if await run_sync(self._service.boards.take_scratch_tip):
            log.warning("%s: %s", task.id, _SCRATCH_TIP)
            payload: JsonObject = {"message": _SCRATCH_TIP}
            now = self._service.now()
            await self._service.write_quietly(
                worker.board,
                lambda rows: rows.add_event(
                    task.id, "tip_scratch_workspace", now, payload, worker.run
                ),
            )

    async def _work(self, worker: Worker, task: Task, workspace: Workspace) -> None:
        session = self._session(worker, task, workspace)
        first = message = await self._first_message(worker, task, session)
        note: User | None = await self._note(worker)
        pursues = await self._service.read(worker.board, lambda rows: pursues_goal(rows, task))
        limit = MAX_REMINDERS + 1
        if pursues:
            limit = task.goal_max_turns or self._settings.goal_turns
        started = self._clock.monotonic()
        for number in range(1, limit + 1):
            turn = self._turn(session, message, note, new=number == 1)
            spent = self._clock.monotonic() - started
            result = await self._run_turn(task, turn, spent)
            if result.interrupted or not await self._is_open(worker):
                return
            if result.failure:
                await self._record_failure(worker, task, result)
                return
            session = await self._store.archive_for(OWNER).get(session.id)
            text = _REMINDER
            if pursues and number < limit:
                text = await goal_reminder(self._service, task, session.id, number + 1, limit)
            message = User(f"{first.id}:{number}", (Text(text),), Trust.PROGRAM)
            note = None
        await self._end_unsettled(worker, limit, pursues=pursues)

    async def _record_failure(self, worker: Worker, task: Task, result: RunResult) -> None:
        if result.code == RateLimited.code:
            await self._service.write(
                worker.board,
                lambda rows: release_rate_limited(
                    rows, worker.task, worker.run, result.failure, self._service.now()
                ),
            )
        elif result.code == "limit":
            seconds = task.max_runtime_seconds or int(self._settings.idle)
            details: JsonObject = {"limit_seconds": seconds, "sigkill": False}
            await self._records.fail(worker, result.failure, RunOutcome.TIMED_OUT, details)
        else:
            await self._records.fail(worker, result.failure)

    async def _end_unsettled(self, worker: Worker, turns: int, *, pursues: bool) -> None:
        """End an unsettled run: a person decides on an unreached goal, other work failed."""
        if not pursues:
            error = "The worker ended without a result."
            await self._records.fail(worker, error, cause="protocol_violation")
            return
        reason = f"It is not done after {plural(turns, 'turn')}, the limit."
        await self._service.write(
            worker.board,
            lambda rows: block_task(
                rows,
                worker.task,
                reason,
                BlockKind.NEEDS_INPUT,
                self._service.now(),
                author=AUTHOR,
                run_id=worker.run,
            ),
        )

    async def _run_turn(self, task: Task, turn: TurnRequest, spent: float) -> RunResult:
        """`spent`: seconds that earlier turns of this run took."""
        total = None
        if task.max_runtime_seconds:
            # A limit of 0 would mean none, so use the smallest one, which ends the turn at once.
            total = max(task.max_runtime_seconds - spent, 0.001)
        limits = RunLimits(idle=self._settings.idle, total=total)

        def end(result: RunResult) -> Sequence[Write]:
            return ()

        run = LimitedRun(runner=self._runner, clock=self._clock, limits=limits, end=end)
        return await run.run(turn)

    def _session(self, worker: Worker, task: Task, workspace: Workspace) -> Session:
        now = self._clock.now()
        return Session(
            id=new_session_id(now),
            started_at=now,
            source=PLATFORM,
            key=worker.session_key(self._settings.profile),
            title=f"{worker.task}, run {worker.run}: {task.title}"[:200],
            model=task.model_override or "",
            provider=task.provider_override or "",
            effort=task.reasoning_effort or "",
            cwd=str(workspace.path),
        )

    def _turn(
        self, session: Session, message: User, note: User | None, *, new: bool
    ) -> TurnRequest:
        return TurnRequest(
            session=session,
            message=message,
            note=note,
            run=new_id("run"),
            new=new,
            source=PLATFORM,
            async_delivery=False,
            instructions=_RULES.read_text("utf-8").strip(),
            excluded_tools=EXCLUDED_TOOLS,
            inherited_limits=InheritedLimits(platform=PLATFORM),
        )

    async def _first_message(self, worker: Worker, task: Task, session: Session) -> User:
        skills = [await self._skill_text(name, session.id) for name in task.skills]
        body = head_and_tail(task.body or "", MAX_BODY)
        # Uses the owner's trust level: text on the board, which others write, must not start or end
        # a review.
        review = await self._service.read(worker.board, lambda rows: review_text(rows, task))
        instruction = "Review" if review else "Work on"
        text = f"{instruction} the task {task.id}: {task.title}\n\n{body}".strip()
        parts = tuple(Text(one) for one in (*skills, text, review) if one)
        return User(f"kanban:{worker.board}:{worker.task}:{worker.run}", parts, Trust.OWNER)

    async def _note(self, worker: Worker) -> User:
        """Comments, results of others and file names: data, never instructions."""

        def work(rows: BoardRows) -> str:
            details = task_details(rows, find_task(rows, worker.task))
            return worker_context(rows, details, self._service.now())

        context = await self._service.read(worker.board, work)
        return User(new_id("msg"), (Text(f"The board says:\n\n{context}"),), Trust.DATA)

    async def _is_open(self, worker: Worker) -> bool:
        task = await self._service.read(worker.board, lambda rows: rows.task(worker.task))
        return task is not None and task.current_run_id == worker.run

    async def _beat(self, worker: Worker, scope: anyio.CancelScope) -> None:
        """Extend the claim; stop working when the task was taken away."""
        while True:
            await self._clock.sleep(HEARTBEAT_SECONDS)
            now = self._service.now()
            expires = now + self._settings.claim_seconds
            try:
                await self._service.write_quietly(
                    worker.board,
                    lambda rows, now=now, expires=expires: record_heartbeat(
                        rows, worker.task, expires, now, run_id=worker.run
                    ),
                )
            except (LeaseLost, NotFound):
                if await self._records.lost([worker]):
                    scope.cancel()
                return
            except (HermesError, OSError) as error:
                log.warning("the claim on %s could not be extended: %s", worker.task, error)

    async def _try_record_cost(self, worker: Worker) -> None:
        try:
            await self._record_cost(worker)
        except (HermesError, OSError) as error:
            log.warning("the cost of %s is not recorded: %s", worker.task, error)

    async def _record_cost(self, worker: Worker) -> None:
        """Store the run's usage of models; the cost is left out if a price is unknown."""
        archive = self._store.archive_for(OWNER)
        session = await archive.by_key(worker.session_key(self._settings.profile))
        used = await archive.usage(session.id) if session is not None else ()
        if not used:
            return
        total = sum((usage.usage for usage in used), Usage())
        numbers: dict[str, object] = {
            "input_tokens": total.input,
            "output_tokens": total.output,
        }
        if all(usage.cost is not None for usage in used):
            numbers["cost_usd"] = round(sum(usage.cost or 0.0 for usage in used), 6)

        def work(rows: BoardRows) -> None:
            if (run := rows.run(worker.run)) is not None:
                rows.change_run(run.id, RunChange(metadata={**(run.metadata or {}), **numbers}))

        await self._service.write_quietly(worker.board, work)

    async def _try_clean_up(self, worker: Worker) -> None:
        try:
            await self._clean_up(worker)
        except (HermesError, OSError) as error:
            log.warning("the workspace of %s is removed later: %s", worker.task, error)

    async def _clean_up(self, worker: Worker) -> None:
        """Delete the scratch folder of a task that this run finished."""
        task, run = await self._service.read(
            worker.board, lambda rows: (rows.task(worker.task), rows.run(worker.run))
        )
        if task is None or run is None or run.outcome != RunOutcome.COMPLETED:
            return
        if task.status is TaskStatus.DONE:
            await self._keep_artifacts(worker)
            await self._workspaces(worker.board).remove(task)

    async def _keep_artifacts(self, worker: Worker) -> None:
        """Copy remaining artifacts: people and other programs complete tasks without copying."""
        kept = await keep_artifacts(self._service, worker.board, worker.task, ())
        if kept.files:
            await self._service.write(
                worker.board, lambda rows: kept.store(rows, self._service.now())
            )


def _last_runs(rows: BoardRows, task_ids: Sequence[str]) -> list[TaskRun]:
    """The last run of each of these tasks that is done; names of other folders are ignored."""
    done = [
        task.id
        for task_id in task_ids
        if (task := rows.task(task_id)) is not None and task.status is TaskStatus.DONE
    ]
    return [runs[-1] for one in done if (runs := rows.runs(one))]
