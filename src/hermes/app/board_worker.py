"""Build the board worker of a profile: it runs the tasks of boards and notifies chats."""

import logging
import mimetypes
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from anyio.to_thread import run_sync

from hermes.app.build import App
from hermes.app.chat_directory import CachedSendTargets
from hermes.app.learning_commands import LearningCommands
from hermes.config.env import Env
from hermes.config.home import DEFAULT_PROFILE, Home
from hermes.gateway.messages import OutboxMessage, outbox_post, wake_outbox
from hermes.kanban.attachments import MAX_ATTACHMENT
from hermes.kanban.board_worker import BoardWorker
from hermes.kanban.dispatcher import Dispatcher, DispatchRules
from hermes.kanban.lifecycle import CLAIM_SECONDS
from hermes.kanban.notifier import Notifier
from hermes.kanban.refinement import TriagePlanner
from hermes.kanban.running_tasks import RunningTasks, RunRecords
from hermes.kanban.service import BoardService, ServeOptions
from hermes.kanban.task_runner import RunnerSettings, TaskRunner
from hermes.kanban.worker import Worker
from hermes.kanban.worker_process import WorkerProcesses, claimer_is_gone, worker_is_alive
from hermes.kanban.workspaces import Workspaces
from hermes.kit.clock import Clock
from hermes.kit.file_lock import FileLock
from hermes.kit.files import read_file_below
from hermes.kit.ids import new_worker_id
from hermes.kit.text import one_line
from hermes.ports.bus import Bus
from hermes.ports.channel import Attachment
from hermes.ports.sandbox import ProcessSpec
from hermes.ports.store import Blobs, Write
from hermes.sandbox.local import LocalSandbox
from hermes.schema.board import Task
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address, Scope

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_WORKERS = 8
"""Tasks that a profile works on at the same time, unless the settings say otherwise."""
_GIT_SECONDS = 120.0
_AS_CONFIGURED = ServeOptions()


def build_board_worker(
    app: App,
    service: BoardService,
    *,
    lock: FileLock,
    process: Mapping[str, str],
    starts_for: Callable[[str], bool],
    process_workers: set[Worker],
    channels: Collection[str] = (),
    options: ServeOptions = _AS_CONFIGURED,
) -> BoardWorker:
    """All profiles of a process share `lock` and `process_workers`; `process` is its environment.

    For profiles that `starts_for` accepts, it starts worker processes. `channels` are the gateway's
    open channels for this profile, including borrowed ones.
    """
    settings = app.config.kanban
    rules = _rules(app, options)
    # Each worker of a process has its own lock: it ends only its own runs.
    claimer = f"{service.lock}:{new_worker_id()}"
    records = RunRecords(service=service, lock=claimer, failure_limit=rules.failure_limit)
    runner = build_task_runner(app, service, records)
    processes = _worker_processes(app, service, records, process)
    work = partial(_run_task, app, runner, processes)
    tasks = RunningTasks(work=work, records=records, process_workers=process_workers)
    return BoardWorker(
        service=service,
        clock=app.clock,
        bus=app.bus,
        dispatcher=_dispatcher(app, service, rules, tasks, starts_for),
        notifier=_notifier(app, service, channels),
        tasks=tasks,
        lock=lock,
        clean_up=runner.remove_old_workspaces,
        plan=TriagePlanner(service=service, limit=_tasks_to_plan(app)).plan,
        interval=float(_option_or(options.interval, settings.dispatch_interval_seconds)),
        dispatches=_option_or(options.dispatches, settings.dispatch_in_gateway),
        report=options.report,
    )


def _option_or(option: T | None, setting: T) -> T:
    """Return the option, or the setting if the option is not given."""
    return setting if option is None else option


async def _run_task(
    app: App, runner: TaskRunner, processes: WorkerProcesses, worker: Worker, task: Task
) -> None:
    """Run a task here, or in a worker process if the settings or its assignee require one."""
    settings = app.config.kanban
    profile = task.assignee or settings.default_assignee
    if profile == app.home.profile and not settings.worker_processes:
        await runner.run(worker, task)
    else:
        await processes.run(worker, profile)


def _dispatcher(
    app: App,
    service: BoardService,
    rules: DispatchRules,
    tasks: RunningTasks,
    starts_for: Callable[[str], bool],
) -> Dispatcher:
    return Dispatcher(
        service=service,
        rules=rules,
        workers=tasks,
        can_run=lambda profile: profile == app.home.profile or starts_for(profile),
        is_gone=claimer_is_gone,
        is_alive=worker_is_alive,
    )


def _worker_processes(
    app: App, service: BoardService, records: RunRecords, environment: Mapping[str, str]
) -> WorkerProcesses:
    return WorkerProcesses(
        service=service,
        records=records,
        sandbox=LocalSandbox(app.spawner),
        command=_program,
        environment=environment,
        folder=app.home.root,
        log_limit=app.config.kanban.worker_log_rotate_bytes,
        redact=app.redactor.redact,
    )


def _notifier(app: App, service: BoardService, channels: Collection[str]) -> Notifier:
    delivery = BoardDelivery(
        home=app.home,
        env=app.env,
        clock=app.clock,
        bus=app.bus,
        blobs=app.blobs,
        channels=channels,
    )
    return Notifier(service=service, store=app.store, delivery=delivery, followups=app.followups)


def _tasks_to_plan(app: App) -> int:
    """Only one profile of a home plans tasks."""
    settings = app.config.kanban
    plans = app.home.profile == (settings.orchestrator_profile or DEFAULT_PROFILE)
    return settings.auto_decompose_per_tick if settings.auto_decompose and plans else 0


def _rules(app: App, options: ServeOptions) -> DispatchRules:
    settings, default = app.config.kanban, DispatchRules()
    workers = options.max_workers or settings.max_in_progress_per_profile or MAX_WORKERS
    return DispatchRules(
        failure_limit=_option_or(options.failure_limit, settings.failure_limit),
        default_assignee=settings.default_assignee,
        max_in_progress=settings.max_in_progress,
        max_in_progress_per_profile=settings.max_in_progress_per_profile,
        max_starts=settings.max_spawn,
        max_workers=workers,
        stale_seconds=int(settings.dispatch_stale_timeout_seconds),
        claim_seconds=_seconds(app, "CLAIM_TTL", default.claim_seconds),
        crash_grace_seconds=_seconds(app, "CRASH_GRACE", default.crash_grace_seconds),
        rate_limit_cooldown_seconds=_seconds(
            app, "RATE_LIMIT_COOLDOWN", default.rate_limit_cooldown_seconds
        ),
    )


def _seconds(app: App, name: str, default: int) -> int:
    text = app.env.get(f"HERMES_KANBAN_{name}_SECONDS", "")
    return int(text) if text.isdecimal() else default


def _program(profile: str) -> Sequence[str]:
    return (sys.executable, "-P", "-m", "hermes", "--profile", profile)


class BoardDelivery:
    """Implements `hermes.kanban.notifier.EventDelivery` with the profile's outbox."""

    def __init__(
        self,
        *,
        home: Home,
        env: Env,
        clock: Clock,
        bus: Bus,
        blobs: Blobs,
        channels: Collection[str],
    ) -> None:
        self._blobs = blobs
        self._profile = home.profile
        self._clock = clock
        self._bus = bus
        self._channels = frozenset(channels)
        self._targets = CachedSendTargets(home, env)

    def problem(self, address: Address) -> str:
        if address.channel in self._channels or address.channel in self._targets.load().platforms:
            return ""
        return f"The profile {self._profile} has no platform {address.channel}."

    async def attachments(self, folder: Path, paths: Sequence[str]) -> Sequence[Attachment]:
        found: list[Attachment] = []
        for path in map(Path, paths):
            try:
                data = await run_sync(read_file_below, folder, path, MAX_ATTACHMENT)
            except (OSError, ValueError) as error:
                log.warning("%s is not sent: %s", path, error)
                continue
            media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            media = await self._blobs.put(data, media_type, path.name)
            found.append(Attachment(media, len(data)))
        return found

    def rows(
        self, key: str, address: Address, text: str, attachments: Sequence[Attachment] = ()
    ) -> Sequence[Write]:
        message = OutboxMessage(
            address=address, text=text, at=self._clock.now(), attachments=tuple(attachments)
        )
        return [outbox_post(key, message)]

    def wake(self, address: Address) -> None:
        wake_outbox(self._bus, address)


def build_task_runner(app: App, service: BoardService, records: RunRecords) -> TaskRunner:
    git = partial(_run_git, app)

    def workspaces(board: str) -> Workspaces:
        boards = service.boards
        return Workspaces(paths=boards.paths(board), info=boards.info(board), git=git)

    return TaskRunner(
        service=service,
        records=records,
        store=app.store,
        clock=app.clock,
        runner=app.runner,
        workspaces=workspaces,
        skill_text=LearningCommands(app.home, app.env, app.learning).skill_instructions,
        settings=RunnerSettings(
            profile=app.home.profile,
            claim_seconds=_seconds(app, "CLAIM_TTL", CLAIM_SECONDS),
            goal_turns=app.config.goals.max_turns,
        ),
    )


async def _run_git(
    app: App, arguments: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> str:
    scope = Scope(profile=app.home.profile, session="", run="", workspace=str(folder))
    spec = ProcessSpec(
        argv=("git", *arguments),
        cwd=str(folder),
        env={**app.child_env(scope), **variables},
        timeout=_GIT_SECONDS,
    )
    result = await LocalSandbox(app.spawner).run(spec)
    text = result.output.decode("utf-8", "replace")
    if result.exit_code:
        raise UsageError(f"git {arguments[0]} failed: {one_line(text, 300)}")
    return text
