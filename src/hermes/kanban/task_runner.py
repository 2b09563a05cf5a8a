"""Work on a claimed task: run turns of the assignee's profile until the task is settled."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from hermes.kanban.attachments import attach_file
from hermes.kanban.context import worker_context
from hermes.kanban.lifecycle import fail_run, reclaim_task, record_heartbeat, release_rate_limited
from hermes.kanban.service import BoardService, TaskDetails, task_details
from hermes.kanban.tasks import find_task
from hermes.kanban.worker import PLATFORM, Worker
from hermes.kanban.workspaces import Workspace, Workspaces
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id, new_session_id
from hermes.ports.board import BoardRows
from hermes.ports.store import Store, Write
from hermes.schema.board import RunOutcome, Task, TaskStatus, WorkspaceKind
from hermes.schema.errors import HermesError, LeaseLost, RateLimited, StoreError, UsageError
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import InheritedLimits
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
_REMINDER = (
    "Your task is not settled yet. Finish it with kanban_complete, or say with kanban_block what "
    "you need."
)


class RunnerSettings(Struct, frozen=True, kw_only=True):
    profile: str
    failure_limit: int = 2
    claim_seconds: int = 900
    idle: float = 1_800.0
    """Seconds without activity outside of tools after which a turn is ended."""


class TaskRunner:
    """Runs tasks in this process. `skill_text` returns a skill's instructions."""

    def __init__(
        self,
        *,
        service: BoardService,
        store: Store,
        clock: Clock,
        runner: Runner,
        workspaces: Callable[[str], Workspaces],
        skill_text: Callable[[str, str], Awaitable[str]],
        settings: RunnerSettings,
    ) -> None:
        self._service = service
        self._store = store
        self._clock = clock
        self._runner = runner
        self._workspaces = workspaces
        self._skill_text = skill_text
        self._settings = settings

    async def run(self, worker: Worker, task: Task) -> None:
        """Run until the task is settled; a task that somebody took away is left alone."""
        try:
            workspace = await self._workspaces(worker.board).prepare(task)
            async with anyio.create_task_group() as group:
                group.start_soon(self._beat, worker, group.cancel_scope)
                await self._work(worker, task, workspace)
                group.cancel_scope.cancel()
        except LeaseLost:
            log.info("run %d of %s was taken away", worker.run, worker.task)
        except HermesError as error:
            await self._fail(worker, RunOutcome.CRASHED, str(error))
        await self._clean_up(worker)

    async def release(self, worker: Worker) -> None:
        """Give the task back when this process ends before its worker."""
        try:
            await self._service.write(
                worker.board, lambda rows: _release(rows, worker, self._service.now())
            )
        except StoreError as error:
            log.warning("%s stays claimed until it expires: %s", worker.task, error)

    async def _work(self, worker: Worker, task: Task, workspace: Workspace) -> None:
        session = self._session(worker, task, workspace)
        message = await self._first_message(worker, task, session)
        for attempt in range(MAX_REMINDERS + 1):
            turn = self._turn(session, message, new=attempt == 0)
            result = await self._run_turn(task, turn)
            if result.interrupted or not await self._is_open(worker):
                return
            if result.code == RateLimited.code:
                await self._service.write(
                    worker.board,
                    lambda rows, why=result.failure: release_rate_limited(
                        rows, worker.task, worker.run, why, self._service.now()
                    ),
                )
                return
            if result.failure:
                await self._fail(worker, RunOutcome.CRASHED, result.failure)
                return
            session = await self._store.archive_for("owner").get(session.id)
            message = User(f"{message.id}:{attempt + 1}", (Text(_REMINDER),), Trust.PROGRAM)
        await self._fail(worker, RunOutcome.CRASHED, "The worker ended without a result.")

    async def _run_turn(self, task: Task, turn: TurnRequest) -> RunResult:
        limits = RunLimits(idle=self._settings.idle, total=task.max_runtime_seconds)

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

    def _turn(self, session: Session, message: User, *, new: bool) -> TurnRequest:
        return TurnRequest(
            session=session,
            message=message,
            run=new_id("run"),
            new=new,
            source=PLATFORM,
            async_delivery=False,
            instructions=_RULES.read_text("utf-8").strip(),
            excluded_tools=EXCLUDED_TOOLS,
            inherited_limits=InheritedLimits(platform=PLATFORM),
        )

    async def _first_message(self, worker: Worker, task: Task, session: Session) -> User:
        def work(rows: BoardRows) -> str:
            details = task_details(rows, find_task(rows, worker.task))
            return worker_context(rows, details, self._service.now())

        context = await self._service.read(worker.board, work)
        skills = [await self._skill_text(name, session.id) for name in task.skills]
        parts = tuple(map(Text, [*skills, f"Work on this task.\n\n{context}"]))
        return User(f"kanban:{worker.board}:{worker.task}:{worker.run}", parts, Trust.OWNER)

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
            except LeaseLost:
                if await self._was_taken_away(worker):
                    scope.cancel()
                return
            except StoreError as error:
                log.warning("the claim on %s could not be extended: %s", worker.task, error)

    async def _was_taken_away(self, worker: Worker) -> bool:
        """False if the worker settled the task itself and is about to end."""
        run = await self._service.read(worker.board, lambda rows: rows.run(worker.run))
        own = {RunOutcome.COMPLETED, RunOutcome.BLOCKED, RunOutcome.CHANGES_REQUESTED}
        return run is None or run.outcome not in own

    async def _fail(self, worker: Worker, outcome: RunOutcome, error: str) -> None:
        def fail(rows: BoardRows) -> None:
            fail_run(
                rows,
                worker.task,
                outcome,
                error,
                self._service.now(),
                limit=self._settings.failure_limit,
                details={"claimer": self._service.lock, "error": error},
                run_id=worker.run,
            )

        try:
            await self._service.write(worker.board, fail)
        except LeaseLost as lost:
            log.info("%s", lost)

    async def _clean_up(self, worker: Worker) -> None:
        """Keep the artifacts of a finished task, then delete its scratch workspace."""
        details = await self._service.read(
            worker.board, lambda rows: task_details(rows, find_task(rows, worker.task))
        )
        task = details.task
        if task.status is not TaskStatus.DONE or task.workspace_kind != WorkspaceKind.SCRATCH:
            return
        workspaces = self._workspaces(worker.board)
        folder = (await workspaces.prepare(task)).path
        for path in _artifacts(details, worker.run, folder):
            try:
                await attach_file(self._service, worker.board, task.id, path)
            except UsageError as error:
                log.warning("an artifact of %s was not kept: %s", task.id, error)
        await workspaces.remove(task)


def _artifacts(details: TaskDetails, run_id: int, folder: Path) -> list[Path]:
    """The files a run delivered; only those in its workspace are its own."""
    for run in details.runs:
        if run.id == run_id and run.metadata:
            named = msgspec.convert(run.metadata.get("artifacts", []), list[str])
            paths = [Path(one).resolve() for one in named]
            return [path for path in paths if path.is_relative_to(folder.resolve())]
    return []


def _release(rows: BoardRows, worker: Worker, now: int) -> None:
    task = find_task(rows, worker.task)
    if task.current_run_id == worker.run:
        reclaim_task(rows, worker.task, "The gateway stopped.", now)
