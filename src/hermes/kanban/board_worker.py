"""Serve the boards of a home for one profile: run its tasks and notify its chats."""

import logging
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.abc

from hermes.kanban.dispatcher import Dispatcher
from hermes.kanban.notifier import Notifier
from hermes.kanban.service import BOARD_TOPIC, BoardService, DispatchReport
from hermes.kanban.task_runner import TaskRunner
from hermes.kanban.worker import Worker
from hermes.kit.clock import Clock
from hermes.kit.file_lock import FileLock
from hermes.kit.folder_watch import folder_changes
from hermes.ports.bus import Bus, Wakeups
from hermes.schema.board import Task, TaskFilter, TaskRun, TaskStatus
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

LOCK_INTERVAL = 5.0
"""Seconds between attempts to get the dispatcher lock while another program has it."""
MIN_WAIT = 1.0


class RunningTasks:
    """The tasks that this process works on; implements `dispatcher.StartWorker`."""

    def __init__(self, runner: TaskRunner) -> None:
        self._runner = runner
        self._group: anyio.abc.TaskGroup | None = None
        self._workers: dict[int, Worker] = {}
        self._idle = anyio.Event()

    async def __call__(self, worker: Worker, task: Task, run: TaskRun) -> None:
        if self._group is None:
            raise HermesError("Tasks are not being served.")
        self._workers[worker.run] = worker
        self._group.start_soon(self._work, worker, task)

    def serve_in(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group

    def is_running(self, run: TaskRun) -> bool:
        return run.id in self._workers

    async def wait_idle(self) -> None:
        while self._workers:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def _work(self, worker: Worker, task: Task) -> None:
        try:
            await self._runner.run(worker, task)
        except Exception:
            # One task must not end the others.
            log.exception("run %d of %s failed", worker.run, worker.task)
        finally:
            with anyio.CancelScope(shield=True):
                await self._runner.release(worker)
            del self._workers[worker.run]
            self._idle.set()


class BoardWorker:
    """Holds the public system's dispatcher lock while it starts tasks."""

    def __init__(
        self,
        *,
        service: BoardService,
        clock: Clock,
        bus: Bus,
        dispatcher: Dispatcher,
        notifier: Notifier,
        tasks: RunningTasks,
        lock: FileLock,
        folders: Sequence[Path],
        interval: float,
        dispatches: bool = True,
    ) -> None:
        """`interval`: seconds after which a board with running tasks is looked at again."""
        self._service = service
        self._clock = clock
        self._bus = bus
        self._dispatcher = dispatcher
        self._notifier = notifier
        self._tasks = tasks
        self._lock = lock
        self._folders = folders
        self._interval = interval
        self._dispatches = dispatches
        self._holds_lock = False
        self._draining = False

    async def run(self) -> None:
        """Serve until cancelled."""
        with self._bus.listen(BOARD_TOPIC) as wakeups:
            async with anyio.create_task_group() as group:
                self._tasks.serve_in(group)
                for folder in self._folders:
                    group.start_soon(self._watch_files, folder)
                if self._dispatches:
                    group.start_soon(self._take_lock)
                try:
                    await self._serve(wakeups)
                finally:
                    self._lock.release()

    async def run_once(
        self, boards: Sequence[str], *, dry_run: bool = False
    ) -> list[DispatchReport]:
        """One pass over some boards; returns when the started tasks have ended."""
        reports: list[DispatchReport] = []
        async with anyio.create_task_group() as group:
            self._tasks.serve_in(group)
            reports += [await self._dispatcher.dispatch(board, dry_run=dry_run) for board in boards]
            await self._tasks.wait_idle()
        return reports

    def drain(self) -> None:
        """Start no more tasks."""
        self._draining = True

    async def wait_idle(self) -> None:
        await self._tasks.wait_idle()

    async def _serve(self, wakeups: Wakeups) -> None:
        while True:
            busy = False
            for info in self._service.boards.all():
                try:
                    busy = await self._serve_board(info.slug) or busy
                except HermesError as error:
                    log.warning("board %s: %s", info.slug, error)
            await self._sleep(wakeups, busy=busy)

    async def _serve_board(self, board: str) -> bool:
        """Return whether the board has to be looked at again without a change."""
        if self._holds_lock and not self._draining:
            report = await self._dispatcher.dispatch(board)
            if report.started or report.ended:
                log.info("board %s: started %s, ended %s", board, report.started, report.ended)
        await self._notifier.notify(board)
        running = TaskFilter(statuses=(TaskStatus.RUNNING, TaskStatus.READY), limit=1)
        return bool(await self._service.read(board, lambda rows: rows.tasks(running)))

    async def _sleep(self, wakeups: Wakeups, *, busy: bool) -> None:
        """Wait for a change; while tasks run, claims may also expire."""
        async with anyio.create_task_group() as group:

            async def wait_for_time() -> None:
                await self._clock.sleep(self._interval)
                group.cancel_scope.cancel()

            if busy:
                group.start_soon(wait_for_time)
            await wakeups.wait()
            group.cancel_scope.cancel()
        wakeups.take()

    async def _take_lock(self) -> None:
        if not await anyio.to_thread.run_sync(self._lock.try_acquire):
            log.warning("another program runs the tasks of this home's boards; waiting for it")
            await self._lock.acquire(self._clock, LOCK_INTERVAL)
        self._holds_lock = True
        self._bus.wake(BOARD_TOPIC)

    async def _watch_files(self, folder: Path) -> None:
        """Notice changes that other processes make, also the public system."""
        await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
        async for _ in folder_changes(folder):
            self._bus.wake(BOARD_TOPIC)
            # A burst of writes is one change.
            await self._clock.sleep(MIN_WAIT)
