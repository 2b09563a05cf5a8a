"""Compose the scheduled jobs of a profile: service, delivery and worker."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from hermes.app.build import App, AppOptions, open_app
from hermes.app.cron_delivery import DeliveryCheck, OutboxDelivery
from hermes.app.learning_commands import LearningCommands
from hermes.app.storage import open_archive
from hermes.config.env import Env, profile_env
from hermes.config.home import Home, ensure_home, profile_home
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.cron.bot_chat import BotChat
from hermes.cron.fire_runner import FireRunner, FireSettings
from hermes.cron.heartbeat import FILE as HEARTBEAT_FILE
from hermes.cron.heartbeat import ensure_heartbeat
from hermes.cron.operation import CronOperation
from hermes.cron.output import OutputFolder
from hermes.cron.scheduler import Scheduler
from hermes.cron.script import ScriptRunner
from hermes.cron.service import JobService, ModelDefaults
from hermes.cron.triggers import Triggers
from hermes.cron.worker import DEFAULT_PARALLEL, CronWorker
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.file_lock import FileLock
from hermes.ports.jobs import SCHEDULED_JOBS, Fire
from hermes.ports.store import QueueItem, Store
from hermes.sandbox.local import LocalSandbox

TICK_LOCK = ".tick.lock"
WAKE_FILE = ".wake"
"""Touched to tell the gateway of this home, in whatever process, that there is work."""
_LOCAL_TIME = Path("/etc/localtime")
_IDLE_SECONDS = 600.0


def build_job_service(app: App) -> CronOperation:
    """The jobs of an open profile, for its surfaces."""
    wake = partial(_wake, app.home.cron, lambda: app.bus.wake(SCHEDULED_JOBS))
    service = _service(app.home, app.config, app.env, app.store, app.clock, wake)
    serving = partial(is_serving, app.home)
    return CronOperation(service=service, serving=serving, work=partial(_work, app, service))


@asynccontextmanager
async def open_job_service(home: Home, process: Env) -> AsyncGenerator[CronOperation]:
    """The jobs of a home, for the command line; the agent is opened only to run a job here."""
    ensure_home(home)
    env = profile_env(home.dotenv, process)
    config, clock = load_config(home, env).config, SystemClock()
    async with open_archive(home, clock) as store:
        wake = partial(_wake, home.cron, lambda: None)
        service = _service(home, config, env, store, clock, wake)

        async def work() -> Sequence[Fire]:
            options = AppOptions(workspace=str(home.path / "workspace"), source="cron", logs=True)
            async with open_app(home, process, options) as app:
                return await _work(app, service)

        yield CronOperation(service=service, serving=partial(is_serving, home), work=work)


def build_worker(app: App, service: JobService) -> CronWorker:
    delivery = OutboxDelivery(app)
    fire_settings = _fire_settings(app)
    return CronWorker(
        store=app.store,
        clock=app.clock,
        bus=app.bus,
        service=service,
        scheduler=Scheduler(store=app.store, clock=app.clock, delivery=delivery),
        runner=_fire_runner(app, service, delivery, fire_settings),
        triggers=Triggers(store=app.store, clock=app.clock, worker=app.store.workers.own),
        bot_chat=BotChat(
            store=app.store,
            clock=app.clock,
            bus=app.bus,
            runner=app.runner,
            forward=partial(_forward, app),
            settings=fire_settings,
        ),
        tick_lock=FileLock(app.home.cron / TICK_LOCK),
        folder=app.home.cron,
        foreground=app.runner.foreground,
        parallel=_parallel(app.config.cron.max_parallel_jobs, app.env),
    )


def _fire_settings(app: App) -> FireSettings:
    """The settings of runs; creates their workspace."""
    settings = app.config.cron
    workspace = app.home.path / "workspace"
    workspace.mkdir(mode=0o700, exist_ok=True)
    return FireSettings(
        profile=app.home.profile,
        workspace=str(workspace),
        idle=_idle_seconds(app.env),
        keep=settings.output_retention or 50,
        heartbeat=app.home.path / HEARTBEAT_FILE,
        model=settings.model.strip(),
        provider=settings.model_provider.strip(),
    )


def _fire_runner(
    app: App, service: JobService, delivery: OutboxDelivery, settings: FireSettings
) -> FireRunner:
    return FireRunner(
        store=app.store,
        clock=app.clock,
        runner=app.runner,
        service=service,
        scripts=ScriptRunner(
            sandbox=LocalSandbox(app.spawner),
            env=app.child_env,
            redact=app.redactor.redact,
            folder=app.home.path / "scripts",
        ),
        delivery=delivery,
        output=OutputFolder(app.home.cron / "output", app.config.cron.output_retention),
        skill_text=LearningCommands(app.home, app.env, app.learning).skill_instructions,
        tools_of=app.toolbox.tools_named,
        settings=settings,
    )


async def start_heartbeat(app: App, service: JobService) -> None:
    """Create the heartbeat if the home has a `HEARTBEAT.md`."""
    file = app.home.path / HEARTBEAT_FILE
    await ensure_heartbeat(service, file, app.config.cron.heartbeat.strip())


def is_serving(home: Home) -> bool:
    """Whether any program holds the tick lock of this home."""
    lock = FileLock(home.cron / TICK_LOCK)
    try:
        free = lock.try_acquire()
    except OSError:
        return False
    lock.release()
    return not free


async def _work(app: App, service: JobService) -> Sequence[Fire]:
    return await build_worker(app, service).run_once()


def _service(
    home: Home,
    config: Config,
    env: Env,
    store: Store,
    clock: Clock,
    wake: Callable[[], bool],
) -> JobService:
    return JobService(
        store=store,
        clock=clock,
        folder=home.cron,
        scripts=home.path / "scripts",
        zone=config.timezone.strip() or local_zone(env),
        check_deliver=DeliveryCheck(home, env),
        wake=wake,
        defaults=ModelDefaults(config.main_model.default, config.main_model.provider),
    )


async def _forward(app: App, profile: str, item: QueueItem) -> None:
    """Store a job's result in another profile's queue; a key that is already there is ignored."""
    home = profile_home(app.home.root, profile)
    ensure_home(home)
    async with open_archive(home, app.clock) as store:
        await store.queues.put(item)
    _wake(home.cron, lambda: None)


def _wake(folder: Path, wake_here: Callable[[], None]) -> bool:
    """Wake the worker in this process or another; False if another could not be woken."""
    wake_here()
    try:
        (folder / WAKE_FILE).write_bytes(b"")
    except OSError:
        return False
    return True


def local_zone(env: Env) -> str:
    """The name of this machine's time zone, or UTC."""
    if name := env.get("TZ", "").strip().removeprefix(":"):
        return name
    try:
        target = str(_LOCAL_TIME.readlink())
    except OSError:
        return "UTC"
    return target.partition("zoneinfo/")[2] or "UTC"


def _parallel(setting: int | None, env: Env) -> int:
    variable = env.get("HERMES_CRON_MAX_PARALLEL", "").strip()
    return int(variable) if variable.isdecimal() and int(variable) else setting or DEFAULT_PARALLEL


def _idle_seconds(env: Env) -> float:
    """HERMES_CRON_TIMEOUT; 0 means no limit."""
    variable = env.get("HERMES_CRON_TIMEOUT", "").strip()
    return float(variable) if variable.isdecimal() else _IDLE_SECONDS
