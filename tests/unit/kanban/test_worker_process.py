"""Workers in processes of their own: their output, and that a run has only one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.kanban.lifecycle import ClaimTerms, claim_task
from hermes.kanban.running_tasks import RunRecords
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task
from hermes.kanban.worker import Worker
from hermes.kanban.worker_process import WorkerProcesses, take_run
from hermes.kit.ids import new_worker_id
from hermes.kit.redact import Redactor
from hermes.ports.board import BoardRows
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import StateConflict


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    with Spawner(grace=0.2) as spawner:
        yield spawner


async def claimed(service: BoardService, lock: str = "host:1") -> Worker:
    def work(rows: BoardRows) -> Worker:
        task = create_task(rows, NewTask(title="task", assignee="ada"), service.now())
        terms = ClaimTerms(lock=lock, expires=service.now() + 900)
        return Worker("default", task.id, claim_task(rows, task.id, terms, service.now()).id)

    return await service.write(None, work)


async def run_script(service: BoardService, spawner: Spawner, folder: Path, script: str) -> str:
    """Run a shell script as the worker of a task; return the error of its run."""
    worker = await claimed(service)
    processes = WorkerProcesses(
        service=service,
        records=RunRecords(service=service, lock="host:1", failure_limit=2),
        sandbox=LocalSandbox(spawner),
        command=lambda profile: ("sh", "-c", script, profile),
        environment={"PATH": os.environ["PATH"]},
        folder=folder,
        log_limit=1_000,
        redact=Redactor(["hunter2-secret"]).redact,
    )
    await processes.run(worker, "ada")
    (run,) = await service.read(None, lambda rows: rows.runs(worker.task))
    assert run.outcome == "crashed"
    return run.error or ""


async def test_failed_worker_tells_no_secret(
    service: BoardService, spawner: Spawner, tmp_path: Path
) -> None:
    # Only the end of the secret is among the last 300 characters.
    script = 'printf "hunter2-secret%0285d of $0" 0; exit 3'
    error = await run_script(service, spawner, tmp_path, script)
    assert error.startswith("The worker process ended by exit code 3: ")
    assert error.endswith(" of ada")
    assert "secret" not in error


async def test_worker_continues_when_its_log_cannot_be_written(
    service: BoardService, spawner: Spawner, tmp_path: Path
) -> None:
    logs = service.boards.paths("default").logs
    logs.parent.mkdir(parents=True, exist_ok=True)
    logs.write_text("a file, not a folder")
    error = await run_script(service, spawner, tmp_path, "echo first; echo last; exit 1")
    assert error.endswith("last")


async def test_log_of_a_running_worker_is_replaced(
    service: BoardService, spawner: Spawner, tmp_path: Path
) -> None:
    script = "for i in 1 2 3 4; do head -c 60000 /dev/zero; done; exit 1"
    await run_script(service, spawner, tmp_path, script)
    assert [*service.boards.paths("default").logs.glob("*.log.1")]


async def test_run_has_only_one_process(service: BoardService) -> None:
    worker = await claimed(service)
    own = os.getpid()
    for _ in range(2):
        await service.write(None, lambda rows: take_run(rows, worker, own, ""))
    with pytest.raises(StateConflict, match=f"process {own} is already working on"):
        await service.write(None, lambda rows: take_run(rows, worker, own + 1, ""))


async def test_run_that_a_gateway_works_on_is_not_taken_by_hand(service: BoardService) -> None:
    lock = f"{service.lock}:{new_worker_id()}"
    worker = await claimed(service, lock)
    with pytest.raises(StateConflict, match="is already working on") as raised:
        await service.write(None, lambda rows: take_run(rows, worker, os.getpid(), ""))
    assert f"hermes kanban reclaim {worker.task}" in raised.value.hint
    await service.write(None, lambda rows: take_run(rows, worker, os.getpid(), lock))
