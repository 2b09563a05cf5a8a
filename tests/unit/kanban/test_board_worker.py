"""Serving boards: when a pass happens, and whose workers are started, counted and stopped."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.bus.memory import MemoryBus
from hermes.kanban.board_worker import BoardWorker
from hermes.kanban.boards import BoardInfo, Boards
from hermes.kanban.dispatcher import Dispatcher, DispatchRules
from hermes.kanban.lifecycle import ClaimTerms, archive_task, claim_task, reclaim_task
from hermes.kanban.notifier import Notifier
from hermes.kanban.run_records import RunRecords
from hermes.kanban.running_tasks import RunningTasks
from hermes.kanban.service import BoardService, DispatchReport, closing
from hermes.kanban.tasks import NewTask, create_task
from hermes.kanban.worker import Worker
from hermes.kit.file_lock import FileLock
from hermes.ports.board import BoardRows
from hermes.ports.message_sender import Followups
from hermes.ports.store import Store, Write
from hermes.schema.board import Task, TaskRun, TaskStatus
from hermes.schema.scope import Address, Scope
from hermes.store.board import SqliteBoard
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


class NoDelivery:
    """Implements `EventDelivery`; nobody is subscribed."""

    def problem(self, address: Address) -> str:
        return ""

    def rows(self, key: str, address: Address, text: str) -> Sequence[Write]:
        return []

    def wake(self, address: Address) -> None:
        pass


class NoSessions(Followups):
    def rows(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        return []

    def wake(self, scope: Scope) -> None:
        pass


class CountingNotifier(Notifier):
    """The last step of a pass over a board."""

    passes = 0

    async def notify(self, board: str) -> int:
        self.passes += 1
        return await super().notify(board)


async def no_dispatch(boards: Sequence[str], dry_run: bool) -> Sequence[DispatchReport]:
    return []


async def nothing_left(board: str) -> None:
    pass


class Profile:
    """Serves the boards of a folder; its workers wait until they are cancelled, or raise."""

    def __init__(
        self, root: Path, name: str, store: Store, clock: FakeClock, lock: FileLock
    ) -> None:
        self.started: list[Worker] = []
        self.stopped: list[Worker] = []
        self.error: Exception | None = None
        self.bus = MemoryBus()
        self._root = root
        self.service = BoardService(
            boards=Boards(root=root, environment={}, open_board=SqliteBoard.open),
            store=store,
            clock=clock,
            profile=name,
            lock="host:1",
            subscribes_creators=True,
            environment={},
            list_profiles=lambda: ["default", "ada", "eve"],
            wake=self._wake,
            dispatch=no_dispatch,
        )
        records = RunRecords(service=self.service, lock=f"host:1:{name}", failure_limit=2)
        tasks = RunningTasks(work=self._work, records=records)
        self.notifier = CountingNotifier(
            service=self.service, store=store, delivery=NoDelivery(), followups=NoSessions()
        )
        self.worker = BoardWorker(
            service=self.service,
            clock=clock,
            bus=self.bus,
            dispatcher=Dispatcher(
                service=self.service,
                rules=DispatchRules(),
                workers=tasks,
                can_run=lambda profile: profile == name,
            ),
            notifier=self.notifier,
            tasks=tasks,
            lock=lock,
            clean_up=nothing_left,
            interval=60.0,
        )

    def _wake(self, topic: str, board: str) -> None:
        self.bus.wake(topic, board)
        (self._root / "kanban").mkdir(exist_ok=True)
        (self._root / "kanban" / ".wake").write_bytes(b"")

    async def _work(self, worker: Worker, task: Task) -> None:
        self.started.append(worker)
        if self.error is not None:
            raise self.error
        try:
            await anyio.sleep_forever()
        finally:
            self.stopped.append(worker)

    async def add(self, board: str | None = None) -> str:
        new = NewTask(title="task", assignee=self.service.profile)
        now = self.service.now()
        return (await self.service.write(board, lambda rows: create_task(rows, new, now))).id

    async def task(self, task_id: str, board: str | None = None) -> Task:
        found = await self.service.read(board, lambda rows: rows.task(task_id))
        assert found is not None
        return found

    async def outcomes(self, task_id: str) -> list[str | None]:
        def work(rows: BoardRows) -> Sequence[TaskRun]:
            return rows.runs(task_id)

        return [run.outcome for run in await self.service.read(None, work)]


@asynccontextmanager
async def serving(*profiles: Profile) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:
        for one in profiles:
            group.start_soon(one.worker.run)
        yield
        group.cancel_scope.cancel()


MakeProfile = Callable[[str], Profile]


@pytest.fixture
async def profile(tmp_path: Path, store: Store, clock: FakeClock) -> AsyncGenerator[MakeProfile]:
    made: list[Profile] = []
    lock = FileLock(tmp_path / "kanban" / ".dispatcher.lock")

    def make(name: str) -> Profile:
        made.append(Profile(tmp_path, name, store, clock, lock))
        return made[-1]

    yield make
    for one in made:
        async with closing(one.service):
            pass


async def test_idle_board_is_not_served_again_and_again(
    profile: MakeProfile, clock: FakeClock
) -> None:
    ada = profile("ada")
    await ada.add()
    waits = NewTask(title="for a person", assignee="@bob")
    await ada.service.write(None, lambda rows: create_task(rows, waits, ada.service.now()))
    async with serving(ada):
        await clock.advance(10)
        passes = ada.notifier.passes
        # The passes that its own changes caused are over.
        await clock.advance(20)
        assert ada.notifier.passes == passes
        await clock.advance(60)
        assert ada.notifier.passes == passes + 1
    assert len(ada.started) == 1


async def test_two_boards_with_equal_run_numbers(profile: MakeProfile, clock: FakeClock) -> None:
    ada = profile("ada")
    ada.service.boards.create(BoardInfo(slug="other"))
    first, second = await ada.add(), await ada.add("other")
    async with serving(ada):
        await clock.advance(1)
        assert {one.run for one in ada.started} == {1}
        now = ada.service.now()
        await ada.service.write("other", lambda rows: archive_task(rows, second, now))
        await clock.advance(1)
        assert [one.board for one in ada.stopped] == ["other"]
        await clock.advance(100)
        assert (await ada.task(first)).status is TaskStatus.RUNNING
        assert len(ada.started) == 2


async def test_profiles_of_a_process_do_not_end_the_runs_of_each_other(
    profile: MakeProfile, clock: FakeClock
) -> None:
    ada, eve = profile("ada"), profile("eve")
    tasks = [await ada.add(), await eve.add()]
    async with serving(ada, eve):
        for _ in range(4):
            await clock.advance(61)
        for task in tasks:
            assert await ada.outcomes(task) == [None]
        assert (len(ada.started), len(eve.started)) == (1, 1)
    for task in tasks:
        assert (await ada.task(task)).status is TaskStatus.READY


async def test_claim_by_hand_is_kept(profile: MakeProfile, clock: FakeClock) -> None:
    ada = profile("ada")
    task = await ada.add()
    now = ada.service.now()
    terms = ClaimTerms(lock=ada.service.lock, expires=now + 900, profile="ada")
    await ada.service.write(None, lambda rows: claim_task(rows, task, terms, now))
    async with serving(ada):
        await clock.advance(61)
        await clock.advance(61)
        assert (await ada.task(task)).status is TaskStatus.RUNNING


async def test_worker_that_raises_counts_as_a_failure(
    profile: MakeProfile, clock: FakeClock
) -> None:
    ada = profile("ada")
    ada.error = ExceptionGroup("several", [ValueError("a defect")])
    task = await ada.add()
    async with serving(ada):
        await clock.advance(1)
        await clock.advance(200)
        assert await ada.outcomes(task) == ["crashed", "crashed"]
        found = await ada.task(task)
        assert (found.status, found.consecutive_failures) == (TaskStatus.BLOCKED, 2)
        assert len(ada.started) == 2


async def test_worker_of_an_archived_task_is_stopped_at_once(
    profile: MakeProfile, clock: FakeClock
) -> None:
    ada = profile("ada")
    task = await ada.add()
    async with serving(ada):
        await clock.advance(1)
        now = ada.service.now()
        await ada.service.write(None, lambda rows: archive_task(rows, task, now))
        await clock.advance(0)
        assert ada.stopped == ada.started
        assert (await ada.task(task)).status is TaskStatus.ARCHIVED


async def test_reclaimed_task_starts_again_when_its_worker_has_ended(
    profile: MakeProfile, clock: FakeClock
) -> None:
    ada = profile("ada")
    task = await ada.add()
    async with serving(ada):
        await clock.advance(1)
        now = ada.service.now()
        await ada.service.write(None, lambda rows: reclaim_task(rows, task, "again", now))
        await clock.advance(0)
        assert ada.stopped == ada.started[:1]
        assert [one.run for one in ada.started] == [1, 2]
        assert await ada.outcomes(task) == ["reclaimed", None]


async def test_lock_of_a_profile_that_never_had_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    shared, other = FileLock(path), FileLock(path)
    assert shared.try_acquire()
    assert shared.try_acquire()
    shared.release()
    assert not other.try_acquire()
    shared.release()
    assert other.try_acquire()
    other.release()
