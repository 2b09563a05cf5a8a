"""Compose the boards of a home for one profile: service, notifications and workers."""

import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from hermes.app.build import App, AppOptions, open_app
from hermes.app.chat_directory import load_send_targets
from hermes.app.learning_commands import LearningCommands
from hermes.app.storage import open_archive, open_board
from hermes.config.dotenv import profile_env
from hermes.config.env import Env
from hermes.config.home import Home, ensure_home
from hermes.config.loader import load_config
from hermes.config.profiles import list_profiles
from hermes.config.schema import Config
from hermes.gateway.messages import OutboxMessage, outbox_post, wake_outbox
from hermes.kanban.board_worker import BoardWorker
from hermes.kanban.boards import Boards, file_signature
from hermes.kanban.dispatcher import Dispatcher, DispatchRules
from hermes.kanban.notifier import Notifier
from hermes.kanban.run_records import RunRecords
from hermes.kanban.running_tasks import RunningTasks
from hermes.kanban.service import BoardService, Dispatch, DispatchReport, closing
from hermes.kanban.task_runner import RunnerSettings, TaskRunner
from hermes.kanban.workspaces import Workspaces
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.file_lock import FileLock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.sandbox import ProcessSpec
from hermes.ports.store import Store, Write
from hermes.sandbox.local import LocalSandbox
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address, Scope

MAX_WORKERS = 8
"""Tasks that a profile works on at the same time, unless the settings say otherwise."""
_GIT_SECONDS = 120.0


def build_board_service(app: App) -> BoardService:
    """For the surfaces of an open profile."""

    async def dispatch(boards: Sequence[str], dry_run: bool) -> Sequence[DispatchReport]:
        if dry_run or not service.is_served:
            return await build_board_worker(app, service).run_once(boards, dry_run=dry_run)
        reports = await build_board_worker(app, service).run_once(boards, dry_run=True)
        for board in boards:
            service.wake(board)
        return [_left_to_gateway(one) for one in reports]

    service = _service(
        app.home, app.config, app.env, app.store, app.clock, wake=app.bus.wake, dispatch=dispatch
    )
    return service


@asynccontextmanager
async def open_board_service(home: Home, process: Env) -> AsyncGenerator[BoardService]:
    """For the command line: without the agent, unless tasks are run here."""
    ensure_home(home)
    env = profile_env(home.dotenv, process)
    config, clock = load_config(home, env).config, SystemClock()
    async with open_archive(home, clock) as store:

        def wake(topic: str, board: str) -> None:
            pass

        async def dispatch(boards: Sequence[str], dry_run: bool) -> Sequence[DispatchReport]:
            options = AppOptions(workspace=str(home.path / "workspace"), source="kanban", logs=True)
            async with open_app(home, process, options) as app:
                return await build_board_worker(app, service).run_once(boards, dry_run=dry_run)

        service = _service(home, config, env, store, clock, wake=wake, dispatch=dispatch)
        async with closing(service):
            yield service


def build_board_worker(
    app: App, service: BoardService, lock: FileLock | None = None
) -> BoardWorker:
    """`lock` is shared by all profiles of a process."""
    settings = app.config.kanban
    # Each worker of a process has its own lock: it ends only its own runs.
    claimer = f"{service.lock}:{new_id('worker')}"
    records = RunRecords(service=service, lock=claimer, failure_limit=settings.failure_limit)
    runner = _task_runner(app, service, records)
    tasks = RunningTasks(work=runner.run, records=records)
    dispatcher = Dispatcher(
        service=service,
        rules=DispatchRules(
            failure_limit=settings.failure_limit,
            default_assignee=settings.default_assignee,
            max_in_progress=settings.max_in_progress,
            max_in_progress_per_profile=settings.max_in_progress_per_profile,
            max_starts=settings.max_spawn,
            max_workers=settings.max_in_progress_per_profile or MAX_WORKERS,
            stale_seconds=int(settings.dispatch_stale_timeout_seconds),
        ),
        workers=tasks,
        can_run=lambda profile: profile == app.home.profile,
    )
    return BoardWorker(
        service=service,
        clock=app.clock,
        bus=app.bus,
        dispatcher=dispatcher,
        notifier=Notifier(
            service=service,
            store=app.store,
            delivery=BoardDelivery(app),
            followups=app.followups,
        ),
        tasks=tasks,
        lock=lock or FileLock(app.home.dispatcher_lock),
        clean_up=runner.remove_old_workspaces,
        interval=float(settings.dispatch_interval_seconds),
        dispatches=settings.dispatch_in_gateway,
    )


def _left_to_gateway(report: DispatchReport) -> DispatchReport:
    """What a pass would do, where another worker of the process does it."""
    left = [(task, "The gateway starts it now.") for task in report.started]
    return DispatchReport(promoted=report.promoted, skipped=[*report.skipped, *left])


class BoardDelivery:
    """Implements `hermes.kanban.notifier.EventDelivery` with the profile's outbox."""

    def __init__(self, app: App) -> None:
        self._home = app.home
        self._env = app.env
        self._clock = app.clock
        self._bus = app.bus
        self._known: tuple[object, AbstractSet[str]] = (None, frozenset())

    def problem(self, address: Address) -> str:
        if address.channel not in self._platforms():
            return f"The profile {self._home.profile} has no platform {address.channel}."
        return ""

    def _platforms(self) -> AbstractSet[str]:
        """Read again only after a change: a pass asks for each subscription."""
        home = self._home
        files = (home.config, home.dotenv, home.channel_directory)
        signature = tuple(map(file_signature, files))
        if self._known[0] != signature:
            self._known = (signature, load_send_targets(home, self._env).platforms)
        return self._known[1]

    def rows(self, key: str, address: Address, text: str) -> Sequence[Write]:
        return [outbox_post(key, OutboxMessage(address=address, text=text, at=self._clock.now()))]

    def wake(self, address: Address) -> None:
        wake_outbox(self._bus, address)


def _task_runner(app: App, service: BoardService, records: RunRecords) -> TaskRunner:
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
        settings=RunnerSettings(profile=app.home.profile),
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


def _service(
    home: Home,
    config: Config,
    env: Env,
    store: Store,
    clock: Clock,
    *,
    wake: Callable[[str, str], None],
    dispatch: Dispatch,
) -> BoardService:
    boards = Boards(root=home.root, environment=env, open_board=open_board)

    def wake_all(topic: str, board: str) -> None:
        wake(topic, board)
        with suppress(OSError):
            boards.wake_file.parent.mkdir(parents=True, exist_ok=True)
            boards.wake_file.write_bytes(b"")

    return BoardService(
        boards=boards,
        store=store,
        clock=clock,
        profile=home.profile,
        lock=f"{socket.gethostname()}:{os.getpid()}",
        subscribes_creators=config.kanban.auto_subscribe_on_create,
        environment=env,
        list_profiles=lambda: [one.name for one in list_profiles(home.root)],
        wake=wake_all,
        dispatch=dispatch,
    )
