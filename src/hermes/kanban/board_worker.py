"""Serve the boards of a home for one profile: run its tasks and notify its chats."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path

import anyio
import anyio.abc

from hermes.kanban.dispatcher import Dispatcher
from hermes.kanban.notifier import Notifier
from hermes.kanban.running_tasks import RunningTasks
from hermes.kanban.service import BOARD_TOPIC, BoardService, DispatchReport
from hermes.kit.clock import Clock
from hermes.kit.file_lock import FileLock
from hermes.kit.folder_watch import folder_changes
from hermes.ports.bus import Bus, Wakeups
from hermes.schema.board import TaskFilter, TaskStatus
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

LOCK_INTERVAL = 5.0
"""Seconds between attempts to get the dispatcher lock while another program has it."""
MIN_WAIT = 1.0
POLL_SECONDS = 5.0
"""Seconds between looks at a folder that cannot be watched."""


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
        clean_up: Callable[[str], Awaitable[None]],
        plan: Callable[[str], Awaitable[None]],
        interval: float,
        dispatches: bool = True,
        report: Callable[[DispatchReport], None] | None = None,
    ) -> None:
        """`interval`: seconds after which a board with running tasks is looked at again.

        `clean_up` removes what an earlier process left of a board's finished tasks; `plan` works
        on those in triage. `report` is called with what each pass over a board did.
        """
        self._service = service
        self._clock = clock
        self._bus = bus
        self._dispatcher = dispatcher
        self._notifier = notifier
        self._tasks = tasks
        self._lock = lock
        self._clean_up = clean_up
        self._plan = plan
        self._interval = interval
        self._dispatches = dispatches
        self._report = report
        self._holds_lock = False
        self._draining = False
        self._clean: set[str] = set()
        self._watches: dict[tuple[Path, int], anyio.CancelScope] = {}
        self._seen: Sequence[tuple[str, int, int]] = ()

    async def run(self) -> None:
        """Serve until cancelled."""
        with ExitStack() as stack:
            wakeups = stack.enter_context(self._bus.listen(BOARD_TOPIC))
            if self._dispatches:
                stack.enter_context(self._service.serving())
            stack.callback(self._release_lock)
            async with anyio.create_task_group() as group:
                self._tasks.serve_in(group)
                if self._dispatches:
                    group.start_soon(self._take_lock)
                await self._serve(group, wakeups)

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

    async def _serve(self, group: anyio.abc.TaskGroup, wakeups: Wakeups) -> None:
        boards = self._service.boards
        while True:
            busy = False
            self._watch_folders(group)
            for info in boards.all():
                try:
                    busy = await self._serve_board(group, info.slug) or busy
                except (HermesError, OSError) as error:
                    log.warning("board %s: %s", info.slug, error)
                    busy = True
            await self._sleep(wakeups, busy=busy)

    async def _serve_board(self, group: anyio.abc.TaskGroup, board: str) -> bool:
        """Return whether the board has to be checked again without a change."""
        await self._tasks.stop_lost(board)
        if self._holds_lock and not self._draining:
            if board not in self._clean:
                await self._clean_up(board)
                self._clean.add(board)
            group.start_soon(self._plan_tasks, board)
            report = await self._dispatcher.dispatch(board)
            if report.started or report.ended:
                log.info("board %s: started %s, ended %s", board, report.started, report.ended)
            if self._report is not None:
                self._report(report)
        await self._notifier.notify(board)
        running = TaskFilter(statuses=(TaskStatus.RUNNING, TaskStatus.READY), limit=1)
        return bool(await self._service.read(board, lambda rows: rows.tasks(running)))

    async def _plan_tasks(self, board: str) -> None:
        """Runs alongside the passes, because a model takes time."""
        await self._plan(board)

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
        waits = False
        while not await self._try_lock():
            if not waits:
                log.warning("another program runs the tasks of this home's boards; waiting for it")
                waits = True
            await self._clock.sleep(LOCK_INTERVAL)
        self._bus.wake(BOARD_TOPIC)

    async def _try_lock(self) -> bool:
        # The result of the thread must be known even if this task is cancelled meanwhile.
        with anyio.CancelScope(shield=True):
            try:
                self._holds_lock = await anyio.to_thread.run_sync(self._lock.try_acquire)
            except OSError as error:
                log.warning("the lock of the boards cannot be taken: %s", error)
        return self._holds_lock

    def _release_lock(self) -> None:
        if self._holds_lock:
            self._holds_lock = False
            self._lock.release()

    def _watch_folders(self, group: anyio.abc.TaskGroup) -> None:
        """Keep watching the folders of all boards, as boards are added and removed."""
        self._seen = self._service.boards.signature()
        folders = {(folder, _number(folder)): folder for folder in self._service.boards.folders()}
        for key in self._watches.keys() - folders.keys():
            self._watches.pop(key).cancel()
        for key in folders.keys() - self._watches.keys():
            scope = self._watches[key] = anyio.CancelScope()
            group.start_soon(self._watch_files, folders[key], scope)

    async def _watch_files(self, folder: Path, scope: anyio.CancelScope) -> None:
        """Notice changes made by other processes, including the public system."""
        with scope:
            async with aclosing(self._changes(folder)) as changes:
                async for _ in changes:
                    # Other files in the folder change much more often.
                    if self._service.boards.signature() != self._seen:
                        self._bus.wake(BOARD_TOPIC)
                        # A burst of writes is one change.
                        await self._clock.sleep(MIN_WAIT)

    async def _changes(self, folder: Path) -> AsyncGenerator[None]:
        try:
            async with aclosing(folder_changes(folder)) as changes:
                async for _ in changes:
                    yield
        except OSError as error:
            log.warning("changes in %s are noticed late: %s", folder, error)
        while True:
            await self._clock.sleep(POLL_SECONDS)
            yield


def _number(folder: Path) -> int:
    """Return a number that distinguishes a folder from its replacement."""
    try:
        return folder.stat().st_ino
    except OSError:
        return 0
