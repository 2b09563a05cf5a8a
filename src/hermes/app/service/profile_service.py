"""Serve one profile in the gateway process: its app, channels and gateway; host the API server."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import anyio
import anyio.abc
from msgspec import Struct

from hermes.api.settings import PLATFORM_NAME, is_enabled, read_settings
from hermes.app.build import App, AppOptions, open_app
from hermes.app.channels import ConfiguredChannels, ProcessResources
from hermes.app.chat_directory import ChatDirectory
from hermes.app.gateway import build_access, build_gateway, gateway_rules, with_retries
from hermes.app.maintenance import ProfileMaintenance
from hermes.app.service.status import PlatformState
from hermes.app.service.web_host import WebHost
from hermes.app.unsupported_features import unsupported_features
from hermes.channels import MANIFESTS
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.sections.messaging import ProfileRoute
from hermes.gateway.composition import BorrowedChannel
from hermes.gateway.gateway import Gateway, HandleInbound
from hermes.gateway.hooks import Hooks
from hermes.gateway.notices import post_restart_notices
from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.targets import home_channels
from hermes.hooks.home import open_profile_hooks
from hermes.ipc.protocol import env_fingerprint
from hermes.ipc.server import IpcServer
from hermes.kanban.worker import Worker
from hermes.kit.clock import Clock
from hermes.kit.errors import ConfigError
from hermes.kit.file_lock import FileLock
from hermes.kit.retry import Backoff
from hermes.logs import LogScope, log_to
from hermes.ports.channel import Channel, ChannelManifest
from hermes.ports.ownership import WORKER_TTL
from hermes.schema.errors import HermesError, StoreError
from hermes.schema.scope import platform_of

if TYPE_CHECKING:
    from hermes.api.server import ApiServer
    from hermes.cron.operation import CronOperation
    from hermes.cron.worker import CronWorker
    from hermes.kanban.board_worker import BoardWorker

log = logging.getLogger(__name__)


class ApiHost:
    """Runs the API server inside the gateway process if the owner's settings enable it."""

    def __init__(self, clock: Clock, status: Callable[[], bytes] | None = None) -> None:
        """`status` returns the gateway's status as JSON."""
        self._clock = clock
        self._status = status
        self._server: ApiServer | None = None
        self._failure = ""

    async def open(self, owner: App, stack: AsyncExitStack) -> None:
        """Start the server; if that fails, log it and go on without."""
        if not is_enabled(owner.config, owner.env):
            return
        from hermes.api.server import ApiServer  # noqa: PLC0415 - imported only when enabled

        try:
            settings = read_settings(owner.config, owner.env)
            server = ApiServer(settings, self._clock, status=self._status)
            self._server = await stack.enter_async_context(server)
            log.info("the API server is listening at %s", server.address)
        except ConfigError as error:
            log.warning("the API server could not start: %s", error.sentence)
            self._failure = error.sentence

    async def attach(self, profile: str, app: App) -> None:
        if self._server is None:
            return
        from hermes.api.followup_service import settle_interrupted_turns  # noqa: PLC0415 - as above
        from hermes.api.run_service import end_abandoned_runs  # noqa: PLC0415 - as above

        await end_abandoned_runs(app.store, app.clock)
        await settle_interrupted_turns(app)
        self._server.attach(profile, app)

    async def recover(self, app: App) -> None:
        """End the runs of workers that died meanwhile."""
        if self._server is not None:
            from hermes.api.run_service import end_abandoned_runs  # noqa: PLC0415 - as above

            await end_abandoned_runs(app.store, app.clock)

    def detach(self, profile: str) -> None:
        if self._server is not None:
            self._server.detach(profile)

    def drain(self) -> None:
        if self._server is not None:
            self._server.drain()

    async def wait_idle(self) -> None:
        """Wait until no API turn is running; call after `drain`."""
        if self._server is not None:
            await self._server.turn_gate.wait_idle()

    @property
    def active(self) -> int:
        return self._server.turn_gate.active if self._server is not None else 0

    def states(self) -> dict[str, PlatformState]:
        """Return the server's state for the state file."""
        if self._failure:
            state = PlatformState(
                state="fatal", error_code="not_opened", error_message=self._failure
            )
            return {PLATFORM_NAME: state}
        if self._server is None:
            return {}
        address = f"{self._server.address}/v1"
        return {PLATFORM_NAME: PlatformState(state="connected", address=address)}


CRON = "cron"
"""The topic of the scheduled jobs, which also look for runs of dead workers."""
RESTART_BACKOFF = Backoff(base=1.0, cap=60.0)
STABLE_SECONDS = 600.0
"""Seconds of running after which a failure no longer counts as repeated."""


class ProfileServiceDeps(Struct, frozen=True, kw_only=True):
    """What all profile services of a process share; `owner` is the process's own home.

    `served` are the names of all profiles that the process serves.

    `park_interrupted` parks interrupted turns, because the process restarted too often. `retry`
    overrides the backoff of every part.
    """

    owner: Home
    env: Env
    shared: ProcessResources
    restart: Callable[[], None]
    api_host: ApiHost
    web_host: WebHost
    dispatcher_lock: FileLock
    board_workers: set[Worker]
    served: frozenset[str] = frozenset()
    manifests: Mapping[str, ChannelManifest] = {}
    park_interrupted: bool = False
    multiplexed: bool = False
    restarted: bool = False
    worker_ttl: timedelta = WORKER_TTL
    retry: Backoff | None = None


class ProfileService:
    """`failed_platforms` maps platforms that could not be opened to the reason."""

    def __init__(
        self,
        app: App,
        channels: Mapping[str, Channel],
        failed_platforms: Mapping[str, str],
        hooks: Hooks | None,
        deps: ProfileServiceDeps,
    ) -> None:
        self.app = app
        self._hooks = hooks
        self._deps = deps
        self.profile = app.home.profile
        self.channels = channels
        self.failed_platforms = failed_platforms
        self.rate_limiters = {
            name: RateLimiter(app.clock, one.caps) for name, one in channels.items()
        }
        self.access = build_access(app, channels, multiplexed=deps.multiplexed)
        self.failure = ""
        self._directory = ChatDirectory(app.home.channel_directory, app.clock)
        self.ended = anyio.Event()
        self.listening = anyio.Event()
        """Set once the local socket listens, or its first attempt failed."""
        self._gateway: Gateway | None = None
        self._local: IpcServer | None = None
        self._borrowed: Mapping[str, BorrowedChannel] = {}
        self.borrowers: list[ProfileService] = []
        self.closing = False
        self._closed_at = 0.0
        self._posted_restart_notices = False
        self._handle_inbound: HandleInbound | None = None
        self._ready = anyio.Event()

    @property
    def routes(self) -> Sequence[ProfileRoute]:
        config = self.app.config
        return config.gateway.profile_routes or config.profile_routes

    @property
    def gateway(self) -> Gateway:
        if self._gateway is None:
            raise RuntimeError(f"the gateway of {self.profile} is not built yet")
        return self._gateway

    def assemble(self, borrowed: Mapping[str, BorrowedChannel]) -> None:
        """Build the gateway; `borrowed` are channels of other profiles."""
        self._borrowed = borrowed
        app, deps = self.app, self._deps
        platforms = {platform_of(name) for name in (*self.channels, *borrowed)}
        rules = gateway_rules(
            app.config, app.chats, app.env, platforms, park_interrupted=deps.park_interrupted
        )
        self._gateway = build_gateway(
            app,
            channels=self.channels,
            access=self.access,
            directory=self._directory,
            borrowed=borrowed,
            rate_limiters=self.rate_limiters,
            hooks=self._hooks,
            wait_for_borrowers=self._wait_for_borrowers,
            restart=deps.restart,
            rules=rules if deps.retry is None else with_retries(rules, deps.retry),
        )

    def begin(self, handle: HandleInbound | None) -> None:
        """Start serving; call once all profiles are assembled, so that messages can be routed."""
        self._handle_inbound = handle
        self._ready.set()

    @property
    def running(self) -> int:
        """Number of running turns, in chats and over the local socket."""
        return self.gateway.actors.running + (self._local.busy if self._local else 0)

    def close(self) -> None:
        """Start nothing new, let running work finish, then stop."""
        if not self.closing:
            self.closing, self._closed_at = True, anyio.current_time()
        self.gateway.close()
        if self._local is not None:
            self._local.close()

    async def _wait_for_borrowers(self) -> None:
        """Wait for other profiles that deliver their last answers through our channels."""
        longest = max(one.gateway.shutdown_seconds for one in (self, *self.borrowers))
        with anyio.CancelScope(deadline=self._closed_at + longest):
            for borrower in self.borrowers:
                await borrower.gateway.delivered.wait()

    async def _post_restart_notices(self) -> None:
        """Notify the chats that requested a restart, and the home channels after a planned one.

        Done once: a gateway rebuilt after a failure was not requested.
        """
        if self._posted_restart_notices:
            return
        platforms = self.app.config.platforms
        muted = {n for n, one in platforms.items() if not one.gateway_restart_notification}
        homes = home_channels(self.app.env, platforms, self.channels)
        notified = [
            one for one in (*self.channels, *self._borrowed) if platform_of(one) not in muted
        ]
        try:
            await post_restart_notices(
                self.app.store,
                self.app.clock,
                homes.values() if self._deps.restarted else (),
                notified,
            )
            self._posted_restart_notices = True
        except StoreError as error:
            log.warning("cannot send the restart notices: %s", error)
        self.poll_queues()

    def poll_queues(self) -> None:
        """Check the queues for rows written by another process."""
        self.gateway.poll_queues()

    async def _recover_regularly(self) -> None:
        """Settle everything that dead workers left in this store, except messages."""
        app = self.app
        while True:
            await app.clock.sleep(app.store.workers.ttl.total_seconds())
            try:
                await app.recover()
                await self._deps.api_host.recover(app)
                app.bus.wake(CRON)
            except StoreError as error:
                log.warning("cannot recover the work of dead processes: %s", error)

    async def run(self) -> None:
        """Run until the gateway is closed; rebuild it after a failure."""
        await self._ready.wait()
        failures = 0
        while True:
            started = self.app.clock.monotonic()
            try:
                return await self._work()
            except Exception as error:
                # One failing profile must not affect the others.
                log.exception("the gateway of profile %s failed", self.profile)
                self.failure = str(error) or type(error).__name__
                self.listening.set()
            failures = 1 if self.app.clock.monotonic() - started > STABLE_SECONDS else failures + 1
            await self.app.clock.sleep(RESTART_BACKOFF.delay(failures))
            if self.closing:
                return None
            self.assemble(self._borrowed)
            self.failure = ""

    def _board_worker(self) -> "BoardWorker":
        from hermes.app.board_worker import build_board_worker  # noqa: PLC0415 - composed from the app

        deps, boards = self._deps, self.app.features.get("kanban")
        is_owner = self.app.home == deps.owner

        def starts_for(profile: str) -> bool:
            """One profile of the process starts worker processes for those not served here."""
            return is_owner and profile not in deps.served and profile in boards.profiles()

        return build_board_worker(
            self.app,
            boards,
            lock=deps.dispatcher_lock,
            process=deps.env,
            starts_for=starts_for,
            process_workers=deps.board_workers,
            channels=(*self.channels, *self._borrowed),
        )

    async def _start_heartbeat(self) -> None:
        from hermes.app.cron import start_heartbeat  # noqa: PLC0415 - composed from the app

        try:
            await start_heartbeat(self.app, self.app.features.get("cron").service)
        except (HermesError, OSError) as error:
            log.warning("there is no heartbeat: %s", error)

    def _cron_worker(self) -> "CronWorker":
        from hermes.app.cron import build_worker  # noqa: PLC0415 - composed from the app

        operation: CronOperation = self.app.features.get("cron")
        return build_worker(self.app, operation.service)

    async def _work(self) -> None:
        fingerprint = env_fingerprint(self._deps.env)
        local = IpcServer(self.app.home.path, self.app, fingerprint, self.poll_queues)
        async with anyio.create_task_group() as group:
            await group.start(local.run)
            self._local = local
            self.listening.set()
            if self.closing:
                local.close()
            group.start_soon(ProfileMaintenance(self.app).run)
            group.start_soon(self._recover_regularly)
            group.start_soon(self._directory.run)
            worker = self._cron_worker()
            await self._start_heartbeat()
            group.start_soon(worker.run)
            boards = self._board_worker()
            group.start_soon(boards.run)
            for task in self.app.plugins.gateway_tasks:
                group.start_soon(task)
            if await self.app.store.goals.active():
                group.start_soon(self.app.features.get("goals").recover)
            await self._post_restart_notices()
            await self.gateway.run(self._handle_inbound)
            # Local and API turns were asked to end together with the chats.
            with anyio.CancelScope(deadline=self._closed_at + self.gateway.drain):
                worker.drain()
                boards.drain()
                await local.wait_idle()
                await self._deps.api_host.wait_idle()
                await self._deps.web_host.wait_idle()
                await worker.wait_idle()
                await boards.wait_idle()
            group.cancel_scope.cancel()


async def serve_profile(
    home: Home,
    deps: ProfileServiceDeps,
    *,
    task_status: anyio.abc.TaskStatus[ProfileService] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Open a profile, report it as started, serve it and keep it open until cancelled.

    Everything it logs goes to its own files.
    """
    own = home.path == deps.owner.path
    options = AppOptions(
        workspace=str(home.path / "workspace"),
        source="gateway",
        reviews_turns=True,
        logs=True,
        log_scope=LogScope.OWN_AND_SHARED if own else LogScope.OWN,
        worker_ttl=deps.worker_ttl,
    )
    with log_to(home.logs):
        async with AsyncExitStack() as stack:
            opening = open_app(home, deps.env, options, deps.shared.plugins)
            app = await stack.enter_async_context(opening)
            (home.path / "workspace").mkdir(mode=0o700, exist_ok=True)
            known = {*MANIFESTS, *deps.manifests}
            for missing in unsupported_features(home, app.config, app.env, known):
                log.warning("%s", missing.sentence)
            channels, failed = await _open_channels(app, stack, deps)
            hooks = await stack.enter_async_context(open_profile_hooks(home, app.clock))
            active_hooks = hooks if hooks.names else None
            service = ProfileService(app, channels, failed, active_hooks, deps)
            task_status.started(service)
            try:
                await service.run()
            finally:
                deps.api_host.detach(service.profile)
                deps.web_host.detach(service.profile)
                service.ended.set()
            # Keep its files open until the process ends, for the last log lines.
            await anyio.sleep_forever()


async def _open_channels(
    app: App, stack: AsyncExitStack, deps: ProfileServiceDeps
) -> tuple[Mapping[str, Channel], Mapping[str, str]]:
    configured = ConfiguredChannels(app, deps.manifests)
    failed = dict.fromkeys(configured.missing, "This version does not have this channel.")
    channels: dict[str, Channel] = {}
    for name in configured.names:
        try:
            channels[name] = await configured.open(name, stack, deps.shared)
        except ConfigError as error:
            failed[name] = error.sentence
    for name, reason in failed.items():
        log.error("channel %s is not served: %s", name, reason)
    return channels, failed
