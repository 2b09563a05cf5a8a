"""Run the gateway process: open the served profiles, watch them and shut down in order."""

import gc
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.abc
import msgspec
from msgspec import structs

from hermes.app.channels import ProcessResources, open_process_resources
from hermes.app.service.lifecycle import Ending, RunOptions
from hermes.app.service.notifier import Notifier
from hermes.app.service.process import (
    END_SIGNALS,
    GatewayProcess,
    hold_gateway,
    recording_failure,
    unblock_signals,
)
from hermes.app.service.profile_service import (
    ApiHost,
    ProfileService,
    ProfileServiceDeps,
    serve_profile,
)
from hermes.app.service.restart_guard import StartAdvice
from hermes.app.service.router import Router
from hermes.app.service.state_file import phase_of, platforms_of
from hermes.app.service.status import Phase, PlatformState, Snapshot
from hermes.app.service.web_host import WebHost
from hermes.config.env import Env, profile_env
from hermes.config.home import Home, profile_home
from hermes.config.loader import load_config
from hermes.config.profiles import profiles_to_serve
from hermes.config.schema import Config
from hermes.gateway.failure_messages import with_profile_flag
from hermes.gateway.shutdown_budget import stop_timeout
from hermes.kanban.boards import dispatcher_lock
from hermes.kit.clock import SystemClock
from hermes.kit.errors import ConfigError, HermesError
from hermes.kit.file_lock import FileLock
from hermes.kit.files import TEMPORARY, file_error
from hermes.kit.text import one_line
from hermes.ports.channel import ChannelManifest

log = logging.getLogger(__name__)

STATUS_INTERVAL = 2.0
"""Seconds between status updates."""

OnSnapshot = Callable[[Snapshot], None]
"""Called with the status: when serving starts, periodically, and at shutdown."""


class GatewayService:
    """After `run`, `signal` and `failure` tell why it ended."""

    def __init__(
        self,
        gateway_process: GatewayProcess,
        env: Env,
        notifier: Notifier,
        manifests: Mapping[str, ChannelManifest],
        on_snapshot: OnSnapshot,
    ) -> None:
        self._gateway_process = gateway_process
        self._env = env
        self._notifier = notifier
        self._manifests = manifests
        self._on_snapshot = on_snapshot
        self._clock = SystemClock()
        self._profile_services: dict[str, ProfileService] = {}
        self._api_host = ApiHost(self._clock, self.status)
        self._web_host = WebHost(self._clock)
        self._unserved: dict[str, str] = {}
        self._ending: Ending | None = None
        self._assembled = False
        self._closing = anyio.Event()
        self.signal = 0
        self.failure = ""

    async def run(
        self,
        homes: Sequence[Home],
        shared: ProcessResources,
        advice: StartAdvice,
        *,
        multiplexed: bool,
    ) -> Ending:
        deps = ProfileServiceDeps(
            owner=homes[0],
            env=self._env,
            shared=shared,
            manifests=self._manifests,
            restart=self.restart,
            api_host=self._api_host,
            web_host=self._web_host,
            dispatcher_lock=FileLock(self._dispatcher_lock(homes[0])),
            board_workers=set(),
            served=frozenset(home.profile for home in homes),
            park_interrupted=advice.park,
            multiplexed=multiplexed,
            worker_ttl=self._gateway_process.options.worker_ttl,
            restarted=self._gateway_process.previous_ending is Ending.RESTART,
        )
        async with anyio.create_task_group() as group, AsyncExitStack() as stack:
            await group.start(self._handle_signals, group.cancel_scope)
            await self._wait_before_start(advice)
            await self._open(homes, deps, group)
            await self._start(homes[0], stack)
            group.start_soon(self._gateway_process.state.keep)
            group.start_soon(self._notifier.keep_alive, self._clock)
            group.start_soon(self._watch)
            tune_gc()
            self._report_ready()
            await self._until_ended()
            await stack.aclose()
            log.info("the gateway has ended: %s", self._ending or Ending.FAILED)
            group.cancel_scope.cancel()
        return self._ending or Ending.FAILED

    async def _wait_before_start(self, advice: StartAdvice) -> None:
        """Delay the start of a gateway that was started too often."""
        if advice.wait:
            self._notifier.waiting(advice.wait, advice.reason)
            await self._clock.sleep(advice.wait)

    def _dispatcher_lock(self, owner: Home) -> Path:
        return dispatcher_lock(owner.root, profile_env(owner.dotenv, self._env))

    async def _start(self, owner: Home, stack: AsyncExitStack) -> None:
        """Start the API server and the opened profiles; return once they listen."""
        # Logged only now, because the log files were not open before.
        log.info("starting the gateway for %s", ", ".join(self._profile_services))
        # Before the profiles start: a profile that is closed takes its app with it.
        await self._api_host.open(self._profile_services[owner.profile].app, stack)
        await self._web_host.open(self._profile_services[owner.profile].app, stack)
        for service in self._profile_services.values():
            await self._api_host.attach(service.profile, service.app)
            self._web_host.attach(service.profile, service.app)
        Router(self._profile_services).assemble()
        self._assembled = True
        for service in self._profile_services.values():
            await service.listening.wait()

    def _report_ready(self) -> None:
        snapshot = self._snapshot()
        self._gateway_process.state.write(snapshot)
        self._on_snapshot(snapshot)
        self._notifier.ready(status_line(snapshot))
        log.info("the gateway is ready: %s", _full_status_line(snapshot))

    def status(self) -> bytes:
        return msgspec.json.encode(self._snapshot())

    def restart(self) -> None:
        """Let running turns finish, then exit with the code that requests a restart.

        Raises `ConfigError` and goes on if the settings are wrong: it could not start again.
        """
        home = self._gateway_process.home
        load_config(home, profile_env(home.dotenv, self._env))
        self._close(Ending.RESTART)

    async def _open(
        self, homes: Sequence[Home], deps: ProfileServiceDeps, group: anyio.abc.TaskGroup
    ) -> None:
        """Open the profiles; one that fails is left out, unless it is the process's own."""
        for home in homes:
            try:
                service: ProfileService = await group.start(serve_profile, home, deps)
            except HermesError as error:
                if home == deps.owner:
                    raise
                reason = with_profile_flag(error.sentence, home.profile)
                log.warning("profile %s is not served: %s", home.profile, reason)
                self._unserved[home.profile] = reason
                continue
            self._profile_services[home.profile] = service
            # Unscoped log lines go to the owner's files and may contain any profile's secrets.
            self._profile_services[deps.owner.profile].app.add_log_redactor(service.app.redactor)

    async def _until_ended(self) -> None:
        for service in self._profile_services.values():
            await service.ended.wait()
        if self._ending is None:
            services = self._profile_services.values()
            self.failure = "; ".join(
                f"{profile_service.profile}: {profile_service.failure}"
                for profile_service in services
            )

    async def _handle_signals(
        self,
        scope: anyio.CancelScope,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        with anyio.open_signal_receiver(*END_SIGNALS) as signals:
            unblock_signals()
            task_status.started()
            async for number in signals:
                if self._ending is not None:
                    log.warning("second signal %d: exiting without waiting", number)
                    scope.cancel()
                    return
                if number is signal.SIGUSR1:
                    try:
                        self.restart()
                    except ConfigError as error:
                        log.warning("the gateway does not restart: %s", error.sentence)
                        continue
                else:
                    self.signal = number
                    self._close(self._gateway_process.ending_of_signal(number))
                if not self._assembled:
                    scope.cancel()

    def _close(self, ending: Ending) -> None:
        if self._ending is not None:
            return
        self._ending = ending
        if not self._assembled:
            return
        log.info("shutting down (%s); waiting for running turns", ending)
        drain = max(
            (profile_service.gateway.drain for profile_service in self._profile_services.values()),
            default=0.0,
        )
        self._notifier.stopping("waiting for running turns", stop_timeout(drain))
        self._closing.set()
        self._api_host.drain()
        self._web_host.drain()
        for service in self._profile_services.values():
            service.close()
        snapshot = self._snapshot()
        self._gateway_process.state.put(snapshot)
        self._on_snapshot(snapshot)

    async def _watch(self) -> None:
        line = ""
        while True:
            snapshot = self._snapshot()
            self._gateway_process.state.put(snapshot)
            self._on_snapshot(snapshot)
            if line != (line := status_line(snapshot)) and self._ending is None:
                self._notifier.status(line)
            await self._clock.sleep(STATUS_INTERVAL)

    def _snapshot(self) -> Snapshot:
        platforms: dict[str, PlatformState] = {}
        phases: set[Phase] = set()
        active = self._api_host.active + self._web_host.active
        for service in self._profile_services.values():
            states = service.gateway.supervisor.snapshot()
            found = platforms_of(states) | _failed_platforms(service)
            found = {
                name: _with_profile_hint(state, service.profile) for name, state in found.items()
            }
            own = service.profile == self._gateway_process.home.profile
            prefix = "" if own else f"{service.profile}/"
            platforms |= {prefix + name: state for name, state in found.items()}
            phases.add(
                Phase.DEGRADED if service.failure or service.failed_platforms else phase_of(states)
            )
            active += service.running
        api = self._api_host.states() | self._web_host.states()
        owner = self._gateway_process.home.profile
        platforms |= {name: _with_profile_hint(state, owner) for name, state in api.items()}
        phases |= {Phase.DEGRADED for api_state in api.values() if api_state.error_code}
        for profile, reason in self._unserved.items():
            platforms[profile] = _fatal("profile_not_served", reason)
            phases.add(Phase.DEGRADED)
        phase = Phase.DEGRADED if Phase.DEGRADED in phases else Phase.RUNNING
        return structs.replace(
            self._gateway_process.state.snapshot,
            gateway_state=phase if self._ending is None else Phase.DRAINING,
            restart_requested=self._ending is Ending.RESTART,
            active_agents=active,
            platforms=platforms,
            served_profiles=tuple(sorted(self._profile_services)),
            sandboxes={
                profile_service.profile: tuple(lines)
                for profile_service in self._profile_services.values()
                if (lines := profile_service.app.sandboxes.tried())
            },
        )


def status_line(snapshot: Snapshot) -> str:
    """Summarize for `systemctl status`: served profiles and platforms that are not connected."""
    parts = [f"serving {', '.join(snapshot.served_profiles)}"]
    for state in ("connecting", "standby", "retrying", "paused", "fatal"):
        found = sorted(item for item in snapshot.platforms.items() if item[1].state == state)
        if found:
            parts.append(f"{state}: {', '.join(_with_reason(*one) for one in found)}")
    return "; ".join(parts)


def _full_status_line(snapshot: Snapshot) -> str:
    """Add the connected platforms."""
    connected = sorted(
        name for name, platform in snapshot.platforms.items() if platform.state == "connected"
    )
    return f"{status_line(snapshot)}; connected: {', '.join(connected) or 'none'}"


def _with_reason(name: str, platform: PlatformState) -> str:
    """Add the reason of failures that need the owner."""
    if platform.state != "fatal" or not platform.error_message:
        return name
    return f"{name} ({one_line(platform.error_message, 300)})"


def _with_profile_hint(platform: PlatformState, profile: str) -> PlatformState:
    """Address the commands in its hint to that profile."""
    if not platform.error_message:
        return platform
    message = with_profile_flag(platform.error_message, profile)
    return structs.replace(platform, error_message=message)


def _failed_platforms(service: ProfileService) -> dict[str, PlatformState]:
    failed = {
        name: _fatal("not_opened", reason) for name, reason in service.failed_platforms.items()
    }
    if service.failure:
        failed["gateway"] = _fatal("failed", service.failure)
    return failed


def _fatal(code: str, reason: str) -> PlatformState:
    return PlatformState(state="fatal", error_code=code, error_message=reason)


def run_gateway(
    home: Home,
    env: Env,
    options: RunOptions,
    manifests: Mapping[str, ChannelManifest] | None = None,
    on_snapshot: OnSnapshot = lambda snapshot: None,
) -> int:
    """Run the gateway until it ends and return the exit code.

    `manifests` are additional channels; `on_snapshot` receives the status. Raises `ConfigError` for
    wrong settings, `TemporaryError` if the machine lacks a resource, and `AlreadyRunning`.
    """
    notifier = Notifier(env, options.ready_fd)
    try:
        with recording_failure(home, SystemClock()):
            config = load_config(home, profile_env(home.dotenv, env)).config
            homes = homes_to_serve(home, config)
        with hold_gateway(home, homes, options, SystemClock()) as gateway_process:
            service = GatewayService(gateway_process, env, notifier, manifests or {}, on_snapshot)
            try:
                ending = anyio.run(_serve, service, gateway_process, homes, config)
            except BaseExceptionGroup as errors:
                raise _cause_of(errors) from errors
            return gateway_process.end(ending, service.signal, service.failure)
    finally:
        notifier.close()


def _cause_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the single known error of a group, or the group itself."""
    match errors.exceptions:
        case [BaseExceptionGroup() as inner]:
            return _cause_of(inner)
        case [HermesError() as error]:
            return error
        case [OSError(errno=number) as error] if number in TEMPORARY:
            return file_error(error, f"{error.filename or 'A file'}: {error.strerror}")
        case _:
            return errors


def homes_to_serve(home: Home, config: Config) -> list[Home]:
    """Return the own home first, then the others that `gateway.served_profiles` allows."""
    profiles = [name for name, _ in profiles_to_serve(config.multiplexed, home)]
    allowed = config.gateway.served_profiles
    others = [
        profile_home(home.root, name)
        for name in profiles
        if name != home.profile and (not allowed or name in allowed)
    ]
    return [home, *others]


async def _serve(
    service: GatewayService, gateway_process: GatewayProcess, homes: Sequence[Home], config: Config
) -> Ending:
    advice = gateway_process.count_start(config.gateway)
    if advice.reason:
        log.warning("%s", advice.reason)
    async with open_process_resources() as shared:
        return await service.run(homes, shared, advice, multiplexed=config.multiplexed)


_GC_THRESHOLDS = (20_000, 20, 20)
"""A turn creates thousands of objects without cycles; Python's default thresholds spent a tenth
of the time of concurrent turns on collection."""


def tune_gc() -> None:
    """Freeze the objects that exist now, so that collections do not scan them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
