"""Which tasks are started, and which runs are ended."""

import os
import socket
import subprocess

from hermes.kanban.boards import Access, BoardInfo
from hermes.kanban.dispatcher import Dispatcher, DispatchRules
from hermes.kanban.lifecycle import (
    ClaimTerms,
    Completion,
    claim_task,
    complete_task,
    release_rate_limited,
)
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task, find_task
from hermes.kanban.worker import Worker
from hermes.kanban.worker_process import claimer_is_gone, worker_is_alive
from hermes.kit.ids import new_worker_id
from hermes.schema.board import Task, TaskStatus
from hermes.schema.errors import SandboxError
from hermes.testing.clock import FakeClock


class Workers:
    """Records what is started; the runs in `dead` have lost their worker.

    Implements `dispatcher.TaskWorkers`.
    """

    lock = "host:1:worker"
    count = 0

    def __init__(self) -> None:
        self.started: list[Worker] = []
        self.dead: set[int] = set()
        self.broken = False

    async def start(self, worker: Worker, task: Task) -> None:
        if self.broken:
            raise SandboxError("There is no sandbox.")
        self.started.append(worker)

    def is_running(self, worker: Worker) -> bool:
        return worker.run not in self.dead

    def has_worker(self, board: str, task_id: str) -> bool:
        return False

    def dispatcher(self, service: BoardService, rules: DispatchRules | None = None) -> Dispatcher:
        return Dispatcher(
            service=service,
            rules=rules or DispatchRules(),
            workers=self,
            can_run=lambda profile: profile in {"ada", "eve"},
            is_gone=claimer_is_gone,
            is_alive=worker_is_alive,
        )


async def add(service: BoardService, *titles: str, assignee: str | None = "ada") -> list[str]:
    tasks = [
        await service.write(
            None,
            lambda rows, title=title: create_task(
                rows, NewTask(title=title, assignee=assignee), service.now()
            ),
        )
        for title in titles
    ]
    return [task.id for task in tasks]


async def status_of(service: BoardService, task_id: str) -> TaskStatus:
    return (await service.read(None, lambda rows: find_task(rows, task_id))).status


async def test_ready_task_of_a_served_profile_is_started_once(service: BoardService) -> None:
    workers = Workers()
    (task,) = await add(service, "task")
    (person,) = await add(service, "for a person", assignee="@bob")
    dispatcher = workers.dispatcher(service)
    report = await dispatcher.dispatch("default")
    assert report.started == [task]
    assert [one for one, _ in report.skipped] == [person]
    assert not (await dispatcher.dispatch("default")).started
    assert [worker.task for worker in workers.started] == [task]


async def test_child_starts_after_its_parent(service: BoardService) -> None:
    workers = Workers()
    (parent,) = await add(service, "parent")
    new = NewTask(title="child", assignee="eve", parents=(parent,))
    child = await service.write(None, lambda rows: create_task(rows, new, service.now()))
    dispatcher = workers.dispatcher(service)
    await dispatcher.dispatch("default")
    run = workers.started[0].run
    await service.write(
        None,
        lambda rows: complete_task(rows, parent, Completion(summary="ok"), service.now(), run),
    )
    assert (await dispatcher.dispatch("default")).started == [child.id]


async def test_profile_limit_keeps_the_rest_waiting(service: BoardService) -> None:
    workers = Workers()
    tasks = await add(service, "one", "two", "three")
    rules = DispatchRules(max_in_progress_per_profile=2)
    report = await workers.dispatcher(service, rules).dispatch("default")
    assert report.started == tasks[:2]
    assert report.skipped == [(tasks[2], "ada is busy.")]


async def test_dead_worker_is_replaced_until_the_limit(
    service: BoardService, clock: FakeClock
) -> None:
    workers = Workers()
    (task,) = await add(service, "task")
    dispatcher = workers.dispatcher(service)
    for expected in (TaskStatus.RUNNING, TaskStatus.BLOCKED):
        await dispatcher.dispatch("default")
        workers.dead.add(workers.started[-1].run)
        await clock.advance(31)
        report = await dispatcher.dispatch("default")
        assert report.ended == [task]
        assert await status_of(service, task) is expected
    kinds = await service.read(None, lambda rows: [one.kind for one in rows.events(task, 20)])
    assert kinds[-2:] == ["crashed", "gave_up"]


async def test_expired_claim_and_exceeded_time_end_a_run(
    service: BoardService, clock: FakeClock
) -> None:
    workers = Workers()
    (silent,) = await add(service, "silent")
    terms = ClaimTerms(lock="elsewhere:1", expires=service.now() + 900, pid=os.getpid())
    await service.write(None, lambda rows: claim_task(rows, silent, terms, service.now()))
    new = NewTask(title="long", assignee="ada", max_runtime_seconds=60)
    long = (await service.write(None, lambda rows: create_task(rows, new, service.now()))).id
    dispatcher = workers.dispatcher(service)
    await dispatcher.dispatch("default")
    await clock.advance(61)
    assert (await dispatcher.dispatch("default")).ended == [long]
    await clock.advance(900)
    assert silent in (await dispatcher.dispatch("default")).ended


async def test_worker_that_lives_keeps_its_expired_claim(
    service: BoardService, clock: FakeClock
) -> None:
    """A worker of this process, and another process of this machine, until they are stale."""
    own, other = await add(service, "own", "other")
    expires = service.now() + 900
    lock = f"{socket.gethostname()}:1"
    terms = ClaimTerms(lock=lock, expires=expires, pid=os.getpid())
    await service.write(None, lambda rows: claim_task(rows, other, terms, service.now()))
    dispatcher = Workers().dispatcher(service)
    await dispatcher.dispatch("default")
    clock.skip(901)
    assert not (await dispatcher.dispatch("default")).ended
    assert not (await dispatcher.dispatch("default")).ended
    for task in (own, other):
        events = await service.read(None, lambda rows, task=task: rows.events(task, 20))
        (extended,) = [one for one in events if one.kind == "claim_extended"]
        assert extended.payload is not None
        assert extended.payload["reason"] == "pid_alive"
        assert extended.payload["claim_expires_was"] == expires
        assert extended.payload["claim_expires_now"] == service.now() + 900
    assert extended.payload["worker_pid"] == os.getpid()
    clock.skip(14_400)
    assert set((await dispatcher.dispatch("default")).ended) == {own, other}


async def test_time_limit_of_zero_is_none(service: BoardService, clock: FakeClock) -> None:
    workers = Workers()
    new = NewTask(title="long", assignee="ada", max_runtime_seconds=0)
    await service.write(None, lambda rows: create_task(rows, new, service.now()))
    dispatcher = workers.dispatcher(service)
    await dispatcher.dispatch("default")
    await clock.advance(61)
    assert not (await dispatcher.dispatch("default")).ended


async def test_rate_limited_task_waits_for_its_cooldown(
    service: BoardService, clock: FakeClock
) -> None:
    workers = Workers()
    (task,) = await add(service, "task")
    dispatcher = workers.dispatcher(service)
    await dispatcher.dispatch("default")
    run = workers.started[0].run
    await service.write(
        None, lambda rows: release_rate_limited(rows, task, run, "429", service.now())
    )
    assert not (await dispatcher.dispatch("default")).started
    await clock.advance(301)
    assert (await dispatcher.dispatch("default")).started == [task]


async def test_failed_start_counts_as_a_failure(service: BoardService) -> None:
    workers = Workers()
    workers.broken = True
    (task,) = await add(service, "task")
    dispatcher = workers.dispatcher(service)
    assert (await dispatcher.dispatch("default")).skipped == [(task, "There is no sandbox.")]
    await dispatcher.dispatch("default")
    assert await status_of(service, task) is TaskStatus.BLOCKED


async def test_dry_run_changes_nothing(service: BoardService, woken: list[str]) -> None:
    workers = Workers()
    (task,) = await add(service, "task")
    woken.clear()
    report = await workers.dispatcher(service).dispatch("default", dry_run=True)
    assert report.started == [task]
    assert not workers.started
    assert not woken
    assert await status_of(service, task) is TaskStatus.READY


def ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


async def test_run_of_a_dead_process_of_this_machine_ends_after_the_grace(
    service: BoardService, clock: FakeClock
) -> None:
    """Not a claim by hand, whose process ends at once, nor that of another machine."""
    host, dead, own = socket.gethostname(), ended_process(), new_worker_id()
    _, place, pid, start, token = own.split("/")
    locks = {
        f"{host}:{dead}:{host}/{place}/{dead}/{start}/{token}": True,
        f"{host}:{pid}:{host}/another-boot.1/{pid}/{start}/{token}": True,
        f"{host}:{pid}:{own}": False,
        f"{host}:{dead}": False,
        f"elsewhere:{dead}:elsewhere/{place}/{dead}/{start}/{token}": False,
    }
    tasks = await add(service, *locks, assignee="ada")
    for task, lock in zip(tasks, locks, strict=True):
        terms = ClaimTerms(lock=lock, expires=service.now() + 900)
        await service.write(
            None,
            lambda rows, task=task, terms=terms: claim_task(rows, task, terms, service.now()),
        )
    dispatcher = Workers().dispatcher(service)
    assert not (await dispatcher.dispatch("default")).ended
    await clock.advance(31)
    ended = (await dispatcher.dispatch("default")).ended
    assert ended == [task for task, gone in zip(tasks, locks.values(), strict=True) if gone]


async def test_profile_without_access_to_the_board_gets_no_task(service: BoardService) -> None:
    service.boards.save(BoardInfo(slug="default", access={"eve": Access.WRITE}))
    (task,) = await add(service, "task")
    report = await Workers().dispatcher(service).dispatch("default")
    assert report.skipped == [(task, "The profile ada may not work on this board.")]


async def test_run_with_a_silent_worker_is_stale_after_hours(
    service: BoardService, clock: FakeClock
) -> None:
    workers = Workers()
    (task,) = await add(service, "one")
    rules = DispatchRules(claim_seconds=100_000, stale_seconds=3_600)
    await workers.dispatcher(service, rules).dispatch("default")
    clock.skip(3_601)
    await workers.dispatcher(service, rules).dispatch("default")
    events = await service.read(None, lambda rows: rows.events(task, 50))
    kinds = [event.kind for event in events]
    assert kinds[kinds.index("stale") + 1] == "crashed"
