"""The tenants of one process: opened, joined, watched, and let go in order."""

import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

import anyio
import anyio.abc
import msgspec
from msgspec import structs

from hermes.app.channels import Shared
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.daemon.hub import Hub
from hermes.daemon.notify import Notifier
from hermes.daemon.options import Ending
from hermes.daemon.platforms import phase_of, platforms_of
from hermes.daemon.programs import Programs
from hermes.daemon.signals import ENDING, let_through
from hermes.daemon.starts import Advice
from hermes.daemon.state import Phase, PlatformState, Snapshot
from hermes.daemon.tenant import Lodging, Tenant, keep_tenant
from hermes.daemon.tenure import Tenure
from hermes.gateway.ending import waited_for
from hermes.gateway.failures import for_profile
from hermes.kit.clock import SystemClock
from hermes.kit.collecting import settle
from hermes.kit.errors import HermesError
from hermes.kit.text import one_line
from hermes.ports.channel import Manifest

log = logging.getLogger(__name__)

LOOK = 2.0
"""Seconds between two looks at how everybody is."""

Tell = Callable[[Snapshot], None]
"""Hears how it goes: when it begins to serve, every now and then, and when it is to end."""


class Service:
    """`signal` and `failure` say, after the end, what brought it about."""

    def __init__(
        self,
        tenure: Tenure,
        env: Env,
        notifier: Notifier,
        manifests: Mapping[str, Manifest],
        tell: Tell,
    ) -> None:
        self._tenure = tenure
        self._env = env
        self._notifier = notifier
        self._manifests = manifests
        self._tell = tell
        self._clock = SystemClock()
        self._tenants: dict[str, Tenant] = {}
        self._programs = Programs(self._clock, self.status)
        self._absent: dict[str, str] = {}
        self._ending: Ending | None = None
        self._assembled = False
        self._closing = anyio.Event()
        self.signal = 0
        self.failure = ""

    async def run(
        self, homes: Sequence[Home], shared: Shared, advice: Advice, *, multiplexed: bool
    ) -> Ending:
        lodging = Lodging(
            owner=homes[0],
            env=self._env,
            shared=shared,
            manifests=self._manifests,
            restart=self.restart,
            programs=self._programs,
            park=advice.park,
            multiplexed=multiplexed,
            restarted=self._tenure.before is Ending.RESTART,
        )
        async with anyio.create_task_group() as group, AsyncExitStack() as stack:
            await group.start(self._hear_signals, group.cancel_scope)
            if advice.wait:
                self._notifier.waiting(advice.wait, advice.reason)
                await self._clock.sleep(advice.wait)
            await self._open(homes, lodging, group)
            # Only now there are files to write it to.
            log.info("the gateway starts for %s", ", ".join(self._tenants))
            # Before anybody is at work: a tenant that is told to end would take its app along.
            await self._programs.open(self._tenants[homes[0].profile].app, stack)
            for tenant in self._tenants.values():
                await self._programs.attach(tenant.profile, tenant.app)
            Hub(self._tenants).assemble()
            self._assembled = True
            for tenant in self._tenants.values():
                await tenant.listening.wait()
            group.start_soon(self._tenure.state.keep)
            group.start_soon(self._notifier.keep_alive, self._clock)
            group.start_soon(self._watch)
            settle()
            snapshot = self._snapshot()
            self._tenure.state.write(snapshot)
            self._tell(snapshot)
            self._notifier.ready(sentence(snapshot))
            log.info("the gateway is ready: %s", _in_full(snapshot))
            await self._until_ended()
            await stack.aclose()
            log.info("the gateway has ended: %s", self._ending or Ending.FAILED)
            group.cancel_scope.cancel()
        return self._ending or Ending.FAILED

    def status(self) -> bytes:
        return msgspec.json.encode(self._snapshot())

    def restart(self) -> None:
        """Let running turns end, then leave with the word that we want to be started again."""
        self._close(Ending.RESTART)

    async def _open(
        self, homes: Sequence[Home], lodging: Lodging, group: anyio.abc.TaskGroup
    ) -> None:
        """A profile that cannot be opened is left out, unless it is the process's own."""
        for home in homes:
            try:
                tenant: Tenant = await group.start(keep_tenant, home, lodging)
            except HermesError as error:
                if home == lodging.owner:
                    raise
                reason = for_profile(error.sentence, home.profile)
                log.warning("the profile %s is not served: %s", home.profile, reason)
                self._absent[home.profile] = reason
                continue
            self._tenants[home.profile] = tenant
            # What nobody's work logs goes to the owner's files, whoever's secret it may hold.
            self._tenants[lodging.owner.profile].app.hide_in_logs(tenant.app.redactor)

    async def _until_ended(self) -> None:
        for tenant in self._tenants.values():
            await tenant.ended.wait()
        if self._ending is None:
            failed = [f"{one.profile}: {one.failure}" for one in self._tenants.values()]
            self.failure = "; ".join(failed)

    async def _hear_signals(
        self,
        scope: anyio.CancelScope,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        with anyio.open_signal_receiver(*ENDING) as signals:
            let_through()
            task_status.started()
            async for one in signals:
                if self._ending is not None:
                    log.warning("signal %d again: not waiting any longer", one)
                    scope.cancel()
                    return
                if one is signal.SIGUSR1:
                    self.restart()
                else:
                    self.signal = one
                    self._close(self._tenure.ending_for(one))
                if not self._assembled:
                    scope.cancel()

    def _close(self, ending: Ending) -> None:
        if self._ending is not None:
            return
        self._ending = ending
        if not self._assembled:
            return
        log.info("the gateway is to end (%s); running turns may end first", ending)
        drain = max((one.gateway.drain for one in self._tenants.values()), default=0.0)
        self._notifier.stopping("letting running turns end", waited_for(drain))
        self._closing.set()
        self._programs.drain()
        for tenant in self._tenants.values():
            tenant.close()
        snapshot = self._snapshot()
        self._tenure.state.put(snapshot)
        self._tell(snapshot)

    async def _watch(self) -> None:
        told = ""
        while True:
            snapshot = self._snapshot()
            self._tenure.state.put(snapshot)
            self._tell(snapshot)
            if told != (told := sentence(snapshot)) and self._ending is None:
                self._notifier.status(told)
            await self._clock.sleep(LOOK)

    def _snapshot(self) -> Snapshot:
        platforms: dict[str, PlatformState] = {}
        phases: set[Phase] = set()
        active = self._programs.active
        for tenant in self._tenants.values():
            states = tenant.gateway.supervisor.snapshot()
            told = platforms_of(states) | _troubles(tenant)
            told = {name: _aimed(state, tenant.profile) for name, state in told.items()}
            platforms |= {self._named(tenant, name): state for name, state in told.items()}
            phases.add(Phase.DEGRADED if tenant.failure or tenant.troubles else phase_of(states))
            active += tenant.running
        programs = self._programs.states()
        own = self._tenure.home.profile
        platforms |= {name: _aimed(state, own) for name, state in programs.items()}
        phases |= {Phase.DEGRADED for one in programs.values() if one.error_code}
        for profile, reason in self._absent.items():
            platforms[profile] = _fatal("profile_not_served", reason)
            phases.add(Phase.DEGRADED)
        return structs.replace(
            self._tenure.state.snapshot,
            gateway_state=self._phase(phases),
            restart_requested=self._ending is Ending.RESTART,
            active_agents=active,
            platforms=platforms,
            served_profiles=tuple(sorted(self._tenants)),
            sandboxes=self._sandboxes(),
        )

    def _sandboxes(self) -> dict[str, tuple[str, ...]]:
        found = {one.profile: one.app.toolbox.sandboxes.found() for one in self._tenants.values()}
        return {profile: tuple(lines) for profile, lines in found.items() if lines}

    def _phase(self, phases: set[Phase]) -> Phase:
        if self._ending is not None:
            return Phase.DRAINING
        return Phase.DEGRADED if Phase.DEGRADED in phases else Phase.RUNNING

    def _named(self, tenant: Tenant, platform: str) -> str:
        own = tenant.profile == self._tenure.home.profile
        return platform if own else f"{tenant.profile}/{platform}"


def sentence(snapshot: Snapshot) -> str:
    """For whoever looks at the unit: who is served, and which platforms are not there."""
    parts = [f"serving {', '.join(snapshot.served_profiles)}"]
    for state in ("connecting", "retrying", "paused", "fatal"):
        found = sorted(item for item in snapshot.platforms.items() if item[1].state == state)
        if found:
            parts.append(f"{state}: {', '.join(_with_reason(*one) for one in found)}")
    return "; ".join(parts)


def _in_full(snapshot: Snapshot) -> str:
    """The same with every platform that is there."""
    there = sorted(name for name, one in snapshot.platforms.items() if one.state == "connected")
    return f"{sentence(snapshot)}; connected: {', '.join(there) or 'none'}"


def _with_reason(name: str, platform: PlatformState) -> str:
    """What does not mend itself is told of with its reason."""
    if platform.state != "fatal" or not platform.error_message:
        return name
    return f"{name} ({one_line(platform.error_message, 300)})"


def _aimed(platform: PlatformState, profile: str) -> PlatformState:
    """What it says to do next is about that profile."""
    why = platform.error_message
    return structs.replace(platform, error_message=for_profile(why, profile)) if why else platform


def _troubles(tenant: Tenant) -> dict[str, PlatformState]:
    troubles = {name: _fatal("not_opened", why) for name, why in tenant.troubles.items()}
    if tenant.failure:
        troubles["gateway"] = _fatal("failed", tenant.failure)
    return troubles


def _fatal(code: str, reason: str) -> PlatformState:
    return PlatformState(state="fatal", error_code=code, error_message=reason)
