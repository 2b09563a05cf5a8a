"""Open the boards of a home for one profile, on the command line or in an open profile."""

import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio

from hermes.app.board_settings import HomeBoardSettings
from hermes.app.build import App, AppOptions, open_app
from hermes.app.models import auxiliary_flags
from hermes.app.storage import open_archive, open_board
from hermes.config.env import Env, profile_env
from hermes.config.home import Home, ensure_home, profile_home
from hermes.config.loader import load_config
from hermes.config.profiles import list_profiles
from hermes.config.schema import Config
from hermes.config.sections.models import AuxiliarySlot
from hermes.kanban.boards import Boards, dispatcher_lock
from hermes.kanban.running_tasks import RunningTasks, RunRecords
from hermes.kanban.service import (
    BoardAgents,
    BoardService,
    DispatchReport,
    DownloadedFile,
    GoalVerdict,
    KnownChats,
    ServeOptions,
    closing,
)
from hermes.kanban.worker import Worker
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.file_lock import FileLock
from hermes.kit.ids import new_id
from hermes.ports.model import ModelRequest
from hermes.ports.store import Store
from hermes.schema.errors import ConfigError, ModelError, StateConflict, ToolError, UsageError
from hermes.schema.messages import Assistant, Text, Trust, User

_DOWNLOAD_SECONDS = 100.0
_ON_COMMAND_LINE = "This works only on the command line."


def build_board_service(app: App) -> BoardService:
    """Build the service for an open profile, such as that of a gateway."""
    return _service(
        app.home,
        app.config,
        app.env,
        app.store,
        app.clock,
        wake=app.bus.wake,
        agents=OpenProfileAgents(app),
    )


@asynccontextmanager
async def open_board_service(home: Home, process: Env) -> AsyncGenerator[BoardService]:
    """For the command line: the profile is opened only for what needs it."""
    ensure_home(home)
    env = profile_env(home.dotenv, process)
    config, clock = load_config(home, env).config, SystemClock()
    async with open_archive(home, clock) as store:

        def wake(topic: str, board: str) -> None:
            pass

        agents = CommandAgents(home, process)
        service = _service(home, config, env, store, clock, wake=wake, agents=agents)
        async with closing(service):
            yield service


class OpenProfileAgents:
    """Implements `BoardAgents` within an open profile, perhaps that of a serving gateway."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def dispatch(
        self, boards: Sequence[str], options: ServeOptions, *, dry_run: bool
    ) -> Sequence[DispatchReport]:
        service: BoardService = self._app.features.get("kanban")
        left_to_gateway = service.is_served and not dry_run
        reports = await _run_once(self._app, boards, options, dry_run=dry_run or left_to_gateway)
        if not left_to_gateway:
            return reports
        for board in boards:
            service.wake(board)
        return [_as_left_to_gateway(report) for report in reports]

    async def work(self, worker: Worker) -> None:
        raise UsageError(_ON_COMMAND_LINE)

    async def serve(self, options: ServeOptions) -> None:
        raise UsageError(_ON_COMMAND_LINE)

    async def ask(self, slot: str, instructions: str, text: str) -> str:
        return await _ask(self._app, slot, instructions, text)

    async def judge(self, session: str, text: str) -> GoalVerdict:
        from hermes.app.goals import judge_session  # noqa: PLC0415 - rarely needed
        from hermes.goals.judge import UnusableAnswer, Verdict  # noqa: PLC0415 - as above

        try:
            found = await judge_session(self._app, session, text)
        except UnusableAnswer as error:
            return GoalVerdict(met=False, reason=f"{error} Show that it is done.")
        return GoalVerdict(met=found.verdict is Verdict.MET, reason=found.reason)

    async def pull_request_problem(self, address: str) -> str:
        from hermes.app.pull_requests import check_problem  # noqa: PLC0415 - rarely needed

        return await check_problem(self._app, address)

    async def download(self, url: str, limit: int) -> DownloadedFile:
        return await _download(self._app.home, self._app.config, url, limit)


class CommandAgents:
    """Implements `BoardAgents` for the command line, which opens the profile for each call."""

    def __init__(self, home: Home, process: Env) -> None:
        self._home = home
        self._process = process

    async def dispatch(
        self, boards: Sequence[str], options: ServeOptions, *, dry_run: bool
    ) -> Sequence[DispatchReport]:
        async with self._open() as app:
            return await _run_once(app, boards, options, dry_run=dry_run)

    async def work(self, worker: Worker) -> None:
        from hermes.app.board_worker import build_task_runner  # noqa: PLC0415 - opens the agent
        from hermes.kanban.worker_process import (  # noqa: PLC0415 - help does without
            CLAIM_LOCK,
            take_run,
        )

        async with self._open() as app:
            service: BoardService = app.features.get("kanban")
            limit = app.config.kanban.failure_limit
            records = RunRecords(service=service, lock=service.lock, failure_limit=limit)
            work = build_task_runner(app, service, records).run
            tasks = RunningTasks(work=work, records=records, process_workers=set())
            lock = self._process.get(CLAIM_LOCK, "")
            task = await service.write_quietly(
                worker.board, lambda rows: take_run(rows, worker, os.getpid(), lock)
            )
            async with anyio.create_task_group() as group:
                tasks.serve_in(group)
                await tasks.start(worker, task)
                group.start_soon(_cancel_on_signal, group.cancel_scope)
                await tasks.wait_idle()
                group.cancel_scope.cancel()

    async def serve(self, options: ServeOptions) -> None:
        from hermes.app.board_worker import build_board_worker  # noqa: PLC0415 - opens the agent

        env = profile_env(self._home.dotenv, self._process)
        lock = FileLock(dispatcher_lock(self._home.root, env))
        if not options.force:
            _check_free(lock)
        async with self._open() as app:
            service: BoardService = app.features.get("kanban")
            worker = build_board_worker(
                app,
                service,
                lock=lock,
                process=self._process,
                starts_for=lambda profile: profile in service.profiles(),
                process_workers=set(),
                options=options,
            )
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_on_signal, group.cancel_scope)
                await worker.run()

    async def ask(self, slot: str, instructions: str, text: str) -> str:
        async with self._open() as app:
            return await _ask(app, slot, instructions, text)

    async def judge(self, session: str, text: str) -> GoalVerdict:
        raise UsageError("The work of a task can only be judged while the agent runs.")

    async def pull_request_problem(self, address: str) -> str:
        raise UsageError("Pull requests can only be checked while the agent runs.")

    async def download(self, url: str, limit: int) -> DownloadedFile:
        env = profile_env(self._home.dotenv, self._process)
        return await _download(self._home, load_config(self._home, env).config, url, limit)

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[App]:
        workspace = str(self._home.path / "workspace")
        options = AppOptions(workspace=workspace, source="kanban", logs=True)
        async with open_app(self._home, self._process, options) as app:
            yield app


def _check_free(lock: FileLock) -> None:
    if not lock.try_acquire():
        raise StateConflict(
            "Another program is already working on the tasks of these boards.",
            hint="Stop it, or add --force to wait until it ends.",
        )
    lock.release()


async def _run_once(
    app: App, boards: Sequence[str], options: ServeOptions, *, dry_run: bool
) -> Sequence[DispatchReport]:
    from hermes.app.board_worker import build_board_worker  # noqa: PLC0415 - loads the agent

    worker = build_board_worker(
        app,
        app.features.get("kanban"),
        lock=FileLock(dispatcher_lock(app.home.root, app.env)),
        process=app.env,
        starts_for=lambda profile: False,
        process_workers=set(),
        options=options,
    )
    return await worker.run_once(boards, dry_run=dry_run)


def _as_left_to_gateway(report: DispatchReport) -> DispatchReport:
    """Report these tasks as left for the gateway, whose own worker starts them."""
    left = [(task, "The gateway starts it when a worker is free.") for task in report.started]
    return DispatchReport(promoted=report.promoted, skipped=[*report.skipped, *left])


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    """Cancel on SIGTERM or SIGINT, so that claimed tasks are released."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


async def _ask(app: App, name: str, instructions: str, text: str) -> str:
    """Ask the model of a slot of the settings, or the default one."""
    known = app.config.auxiliary
    slots: Mapping[str, AuxiliarySlot] = {
        "triage_specifier": known.triage_specifier,
        "kanban_decomposer": known.kanban_decomposer,
        "profile_describer": known.profile_describer,
    }
    slot = slots[name]
    flags = auxiliary_flags(app.config, slot)
    with anyio.move_on_after(slot.timeout):
        model = await (app.models.model_for_flags(flags) if flags else app.models.find())
        message = User(new_id("msg"), (Text(text),), Trust.DATA)
        request = ModelRequest(instructions, [message], effort=slot.reasoning_effort or None)
        async with model.stream(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Assistant):
                    return chunk.text
    raise ModelError("The model gave no answer, or not in time.")


async def _download(home: Home, config: Config, url: str, limit: int) -> DownloadedFile:
    """Download a file, with the same checks as for web pages."""
    from hermes.tools.references import blocked_sites  # noqa: PLC0415 - rarely needed
    from hermes.tools.web_pages import PageLimits, PageReader  # noqa: PLC0415 - an HTTP client

    security = config.security
    pages = PageReader(
        allow_internal=security.allow_private_urls,
        allow_internal_redirects=security.allow_private_urls,
        blocked_sites=blocked_sites(security.website_blocklist, home),
        limits=PageLimits(size=limit, seconds=_DOWNLOAD_SECONDS),
    )
    try:
        found = await pages.download(url)
    except ToolError as error:
        raise UsageError(f"{url} cannot be attached: {error}.") from error
    return DownloadedFile(found.data, found.content_type, found.name)


def _known_chats(home: Home, env: Env) -> KnownChats:
    from hermes.app.chat_directory import load_send_targets  # noqa: PLC0415 - few actions need it

    own = load_send_targets(home, env)
    platforms = set(own.platforms)
    for profile in list_profiles(home.root):
        with suppress(ConfigError):
            platforms |= load_send_targets(profile_home(home.root, profile.name), env).platforms
    return KnownChats(platforms, own.homes)


def _service(
    home: Home,
    config: Config,
    env: Env,
    store: Store,
    clock: Clock,
    *,
    wake: Callable[[str, str], None],
    agents: BoardAgents,
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
        list_profiles=lambda: [profile.name for profile in list_profiles(home.root)],
        known_chats=lambda: _known_chats(home, env),
        wake=wake_all,
        agents=agents,
        settings=HomeBoardSettings(home, env),
    )
