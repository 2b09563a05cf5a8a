"""Serving boards: when a pass happens, and whose workers are started, counted and stopped."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.app.board_settings import HomeBoardSettings
from hermes.bus.memory import MemoryBus
from hermes.config.home import Home
from hermes.kanban.board_worker import BoardWorker
from hermes.kanban.boards import BoardInfo, Boards
from hermes.kanban.dispatcher import Dispatcher, DispatchRules
from hermes.kanban.lifecycle import (
    ClaimTerms,
    Completion,
    archive_task,
    block_task,
    claim_task,
    complete_task,
    reclaim_task,
)
from hermes.kanban.notifier import Notifier
from hermes.kanban.running_tasks import RunningTasks, RunRecords
from hermes.kanban.service import BoardService, KnownChats, closing
from hermes.kanban.tasks import NewTask, assign_task, create_task
from hermes.kanban.worker import Worker
from hermes.kit.file_lock import FileLock
from hermes.ports.board import BoardRows
from hermes.ports.message_sender import Followups
from hermes.ports.store import Store, Write
from hermes.schema.board import BlockKind, Task, TaskRun, TaskStatus
from hermes.schema.messages import Trust
from hermes.schema.scope import Address, Scope
from hermes.store.board import SqliteBoard
from hermes.testing.clock import FakeClock
from support.board_agents import NoAgents
from support.polling import TIMEOUT


class NoDelivery:
    """Implements `EventDelivery`; nobody is subscribed."""

    def problem(self, address: Address) -> str:
        return ""

    def rows(self, key: str, address: Address, text: str) -> Sequence[Write]:
        return []

    def wake(self, address: Address) -> None:
        pass


class NoSessions(Followups):
    def rows(
        self, scope: Scope, key: str, text: str, *, trust: Trust = Trust.DATA
    ) -> Sequence[Write]:
        return []

    def wake(self, scope: Scope) -> None:
        pass


class CountingNotifier(Notifier):
    """The last step of a pass over a board."""

    passes = 0

    async def notify(self, board: str) -> int:
        self.passes += 1
        return await super().notify(board)


async def nothing_left(board: str) -> None:
    pass


class Profile:
    """Serves the boards of a folder; its workers wait until they are cancelled, or raise."""

    def __init__(
        self,
        root: Path,
        name: str,
        store: Store,
        clock: FakeClock,
        lock: FileLock,
        workers: set[Worker],
    ) -> None:
        self.started: list[Worker] = []
        self.stopped: list[Worker] = []
        self.error: Exception | None = None
        self.may_end = anyio.Event()
        self.may_end.set()
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
            known_chats=lambda: KnownChats({"telegram"}, {"telegram": Address("telegram", "7")}),
            wake=self._wake,
            agents=NoAgents(),
            settings=HomeBoardSettings(Home(root, root), {}),
        )
        records = RunRecords(service=self.service, lock=f"host:1:{name}", failure_limit=2)
        tasks = RunningTasks(work=self._work, records=records, process_workers=workers)
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
                is_gone=lambda run: False,
                is_alive=lambda run: False,
            ),
            notifier=self.notifier,
            tasks=tasks,
            lock=lock,
            clean_up=nothing_left,
            plan=nothing_left,
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
            with anyio.CancelScope(shield=True):
                await self.may_end.wait()
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
async def running_workers(*profiles: Profile) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:
        for one in profiles:
            group.start_soon(one.worker.run)
        yield
        group.cancel_scope.cancel()


MakeProfile = Callable[[str], Profile]
EndTask = Callable[[BoardRows, str, int | None], Task]


def complete(rows: BoardRows, task: str, run: int | None) -> Task:
    return complete_task(rows, task, Completion(summary="done"), 1, run)


def block(rows: BoardRows, task: str, run: int | None) -> Task:
    kind = BlockKind.NEEDS_INPUT
    return block_task(rows, task, "which one?", kind, 1, author="ada", run_id=run)


@pytest.fixture
async def profile(tmp_path: Path, store: Store, clock: FakeClock) -> AsyncGenerator[MakeProfile]:
    made: list[Profile] = []
    lock = FileLock(tmp_path / "kanban" / ".dispatcher.lock")
    workers: set[Worker] = set()

    def make(name: str) -> Profile:
        made.append(Profile(tmp_path, name, store, clock, lock, workers))
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
    async with running_workers(ada):
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
    async with running_workers(ada):
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
    async with running_workers(ada, eve):
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
    async with running_workers(ada):
        await clock.advance(61)
        await clock.advance(61)
        assert (await ada.task(task)).status is TaskStatus.RUNNING


async def test_worker_that_raises_counts_as_a_failure(
    profile: MakeProfile, clock: FakeClock
) -> None:
    ada = profile("ada")
    ada.error = ExceptionGroup("several", [ValueError("a defect")])
    task = await ada.add()
    async with running_workers(ada):
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
    async with running_workers(ada):
        await clock.advance(1)
        now = ada.service.now()
        await ada.service.write(None, lambda rows: archive_task(rows, task, now))
        await clock.advance(0)
        assert ada.stopped == ada.started
        assert (await ada.task(task)).status is TaskStatus.ARCHIVED


@pytest.mark.parametrize("end", [complete, block])
async def test_worker_of_a_task_that_a_person_settled_is_stopped(
    profile: MakeProfile, clock: FakeClock, end: EndTask
) -> None:
    ada = profile("ada")
    task = await ada.add()
    async with running_workers(ada):
        await clock.advance(1)
        await ada.service.write(None, lambda rows: end(rows, task, None))
        await clock.advance(0)
        assert ada.stopped == ada.started


async def test_worker_that_settled_its_task_ends_by_itself(
    profile: MakeProfile, clock: FakeClock
) -> None:
    ada = profile("ada")
    tasks = [await ada.add(), await ada.add()]
    async with running_workers(ada):
        await clock.advance(1)
        runs = {one.task: one.run for one in ada.started}
        for task, end in zip(tasks, (complete, block), strict=True):
            await ada.service.write(
                None, lambda rows, task=task, end=end: end(rows, task, runs[task])
            )
        await clock.advance(61)
        assert not ada.stopped


async def test_all_waiters_for_workers_are_woken(profile: MakeProfile, clock: FakeClock) -> None:
    ada = profile("ada")
    task = await ada.add()
    async with running_workers(ada):
        await clock.advance(1)
        with anyio.fail_after(TIMEOUT):
            async with anyio.create_task_group() as group:
                group.start_soon(ada.worker.wait_idle)
                group.start_soon(ada.worker.wait_idle)
                await clock.advance(1)
                now = ada.service.now()
                await ada.service.write(None, lambda rows: archive_task(rows, task, now))


async def test_reclaimed_task_starts_again_when_its_worker_has_ended(
    profile: MakeProfile, clock: FakeClock
) -> None:
    ada = profile("ada")
    task = await ada.add()
    async with running_workers(ada):
        await clock.advance(1)
        now = ada.service.now()
        await ada.service.write(None, lambda rows: reclaim_task(rows, task, "again", now))
        await clock.advance(0)
        assert ada.stopped == ada.started[:1]
        assert [one.run for one in ada.started] == [1, 2]
        assert await ada.outcomes(task) == ["reclaimed", None]


async def test_task_waits_for_its_last_worker_of_another_profile(
    profile: MakeProfile, clock: FakeClock
) -> None:
    ada, eve = profile("ada"), profile("eve")
    task = await ada.add()
    async with running_workers(ada, eve):
        await clock.advance(1)
        ada.may_end = anyio.Event()

        def reassign(rows: BoardRows) -> None:
            reclaim_task(rows, task, "reassigned", ada.service.now())
            assign_task(rows, task, "eve", ada.service.now())

        await ada.service.write(None, reassign)
        await clock.advance(61)
        await clock.advance(61)
        too_early = [*eve.started]
        ada.may_end.set()
        assert not too_early
        await clock.advance(61)
        assert len(eve.started) == 1


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


async def test_at_most_eight_tasks_run_at_the_same_time(
    profile: MakeProfile, clock: FakeClock
) -> None:
    ada = profile("ada")
    tasks = [await ada.add() for _ in range(10)]
    async with running_workers(ada):
        await clock.advance(1)
        assert len(ada.started) == 8
        now = ada.service.now()
        first = ada.started[0].task
        await ada.service.write(None, lambda rows: archive_task(rows, first, now))
        await clock.advance(5)
        assert len(ada.started) == 9
    assert {one.task for one in ada.started} <= {*tasks}


async def test_board_is_opened_again_after_it_was_replaced(profile: MakeProfile) -> None:
    ada = profile("ada")
    ada.service.boards.create(BoardInfo(slug="other"))
    old = await ada.add("other")
    ada.service.boards.remove("other", 1, delete=True)
    ada.service.boards.create(BoardInfo(slug="other"))
    new = await ada.add("other")
    assert await ada.service.read("other", lambda rows: rows.task(old)) is None
    assert (await ada.task(new, "other")).id == new
