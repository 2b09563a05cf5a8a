"""Work on a claimed task in a separate process, for profiles that this process does not serve."""

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from anyio.to_thread import run_sync

from hermes.kanban.running_tasks import RunRecords
from hermes.kanban.service import BoardService
from hermes.kanban.worker import Worker
from hermes.kit.ids import is_surely_dead, pid_exists, shares_boot
from hermes.ports.board import BoardRows
from hermes.ports.sandbox import Process, ProcessSpec, Sandbox
from hermes.schema.board import JsonObject, RunChange, RunOutcome, Task, TaskChange, TaskRun
from hermes.schema.errors import StateConflict

log = logging.getLogger(__name__)

CLAIM_LOCK = "HERMES_KANBAN_CLAIM_LOCK"
"""The variable with the claim for which a worker process was started."""
_ERROR_LENGTH = 300
"""Characters of a failed worker's output that are stored with its run."""
_TAIL = 4_096
"""Bytes kept to build it: more than is stored, because a secret cut in two would not be masked."""


class WorkerProcesses:
    """Starts `hermes kanban work`; the process extends the claim and settles the task itself.

    `command` returns the command line of a profile. `environment` is that of the whole program: the
    keys of one profile must not reach another. A log file larger than `log_limit` is replaced.
    `redact` masks secrets in what is stored with a run.
    """

    def __init__(
        self,
        *,
        service: BoardService,
        records: RunRecords,
        sandbox: Sandbox,
        command: Callable[[str], Sequence[str]],
        environment: Mapping[str, str],
        folder: Path,
        log_limit: int,
        redact: Callable[[str], str],
    ) -> None:
        self._service = service
        self._records = records
        self._sandbox = sandbox
        self._command = command
        self._environment = environment
        self._folder = folder
        self._log_limit = log_limit
        self._redact = redact

    async def run(self, worker: Worker, profile: str) -> None:
        """Return when the process and everything it started have ended."""
        arguments = ("kanban", "work", worker.task, "--run", str(worker.run))
        spec = ProcessSpec(
            argv=(*self._command(profile), *arguments, "--board", worker.board),
            cwd=str(self._folder),
            env={**self._environment, CLAIM_LOCK: self._records.lock},
            timeout=0.0,
        )
        path = self._service.boards.paths(worker.board).logs / f"{worker.task}.log"
        async with self._sandbox.open(spec) as process:
            await self._service.write_quietly(
                worker.board, lambda rows: _record_start(rows, worker, process.pid, self._now())
            )
            tail = await self._keep_output(process, path)
            ended = await process.wait()
        if not await self._is_open(worker):
            return
        code = ended.exit_code
        kind = "exited" if code >= 0 else "signaled"
        details: JsonObject = {"pid": process.pid, "exit_kind": kind, "exit_code": abs(code)}
        ending = f"exit code {code}" if code >= 0 else f"signal {-code}"
        output = f": {tail}" if tail else "."
        await self._records.fail(
            worker, f"The worker process ended by {ending}{output}", RunOutcome.CRASHED, details
        )

    async def _keep_output(self, process: Process, path: Path) -> str:
        """Append the output to the log until it ends; return the end of it."""
        tail, is_logged = b"", True
        while data := await process.read():
            tail = (tail + data)[-_TAIL:]
            try:
                await run_sync(_append, path, data, self._log_limit)
            except OSError as error:
                # A full disk must not end the worker.
                if is_logged:
                    log.warning("output is missing in %s: %s", path, error)
                is_logged = False
        return self._redact(tail.decode("utf-8", "replace")).strip()[-_ERROR_LENGTH:]

    async def _is_open(self, worker: Worker) -> bool:
        task = await self._service.read(worker.board, lambda rows: rows.task(worker.task))
        return task is not None and task.current_run_id == worker.run

    def _now(self) -> int:
        return self._service.now()


def _record_start(rows: BoardRows, worker: Worker, pid: int, now: int) -> None:
    task: Task | None = rows.task(worker.task)
    if task is not None and task.current_run_id == worker.run:
        rows.change_task(worker.task, TaskChange(worker_pid=pid))
        rows.change_run(worker.run, RunChange(worker_pid=pid))
        rows.add_event(worker.task, "spawned", now, {"pid": pid}, worker.run)


def take_run(rows: BoardRows, worker: Worker, pid: int, lock: str) -> Task:
    """Record a process as the worker of a claimed run.

    `lock` names the claim for which the process was started. Raises `StateConflict` if the run has
    ended, or another process works on it.
    """
    task, run = rows.task(worker.task), rows.run(worker.run)
    if task is None or run is None or task.current_run_id != worker.run:
        raise StateConflict(f"The run {worker.run} of {worker.task} has ended.")
    other = run.worker_pid
    if other is not None and other != pid and pid_exists(other):
        raise StateConflict(f"The process {other} is already working on {worker.task}.")
    if run.claim_lock != lock and _has_program(run):
        host, claimer = (run.claim_lock or "").split(":")[:2]
        raise StateConflict(
            f"The process {claimer} on {host} is already working on {worker.task}.",
            hint=f"To take the task away from it: hermes kanban reclaim {worker.task}",
        )
    rows.change_task(worker.task, TaskChange(worker_pid=pid))
    rows.change_run(worker.run, RunChange(worker_pid=pid))
    return task


def _has_program(run: TaskRun) -> bool:
    """Whether a program claimed the run and has not ended."""
    _, _, instance = (run.claim_lock or "").partition(":")[2].partition(":")
    return bool(instance) and not claimer_is_gone(run)


def claimer_is_gone(run: TaskRun) -> bool:
    """Whether the worker of a run was a process of this machine that has ended.

    A shortcut only: claims of other machines, and those made by hand, end when they expire.
    """
    host, _, rest = (run.claim_lock or "").partition(":")
    _, _, instance = rest.partition(":")
    if host != socket.gethostname():
        return False
    if instance and not is_surely_dead(instance):
        return False  # That process watches its own workers.
    if run.worker_pid is None:
        return bool(instance)
    return bool(instance and not shares_boot(instance)) or not pid_exists(run.worker_pid)


def worker_is_alive(run: TaskRun) -> bool:
    """Whether the worker of a run is a process of this machine that has not ended."""
    host = (run.claim_lock or "").partition(":")[0]
    if host != socket.gethostname() or run.worker_pid is None:
        return False
    return pid_exists(run.worker_pid) and not claimer_is_gone(run)


def _append(path: Path, data: bytes, limit: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileNotFoundError):
        if path.stat().st_size > limit:
            path.replace(path.with_suffix(".log.1"))
    with path.open("ab") as file:
        file.write(data)
