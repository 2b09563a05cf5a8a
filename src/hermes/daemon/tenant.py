"""One profile that the gateway process serves: its app, its channels, its gateway."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

import anyio
import anyio.abc
from msgspec import Struct

from hermes.app.build import App, Choices, open_app
from hermes.app.channels import Shared, Wanted
from hermes.app.directory import Directory
from hermes.app.gateway import ChatParts, build_door, build_gateway
from hermes.app.hooks import profile_hooks
from hermes.app.upkeep import Upkeep
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.sections.chats import ProfileRoute
from hermes.daemon.programs import Programs
from hermes.gateway.gateway import Gateway, Hear, Lent
from hermes.gateway.hooks import Hooks, NoHooks
from hermes.gateway.pacer import Pacer
from hermes.gateway.returning import say_back
from hermes.gateway.targets import homes_from
from hermes.kit.errors import ConfigError
from hermes.kit.retry import Backoff
from hermes.local.door import LocalDoor
from hermes.local.guest import Services
from hermes.local.marks import marks_of
from hermes.ports.channel import Channel, Manifest
from hermes.schema.errors import StoreError
from hermes.schema.scope import platform_of
from hermes.telemetry.logs import LogShare, at_work_for

log = logging.getLogger(__name__)

AGAIN = Backoff(base=1.0, cap=60.0)
GOOD = 600.0
"""Seconds after which a gateway that breaks is not breaking over and over."""


class Lodging(Struct, frozen=True, kw_only=True):
    """What all tenants of a process are given; `owner` is the home that the process is for.

    `park` sets turns aside that were interrupted, because the process ended too often. What
    fails is tried again as each part does, unless `retry` says otherwise for all of them.
    """

    owner: Home
    env: Env
    shared: Shared
    restart: Callable[[], None]
    programs: Programs
    manifests: Mapping[str, Manifest] = {}
    park: bool = False
    multiplexed: bool = False
    restarted: bool = False
    retry: Backoff | None = None


class Tenant:
    """`troubles` are platforms that could not be opened, and why."""

    def __init__(
        self,
        app: App,
        channels: Mapping[str, Channel],
        troubles: Mapping[str, str],
        hooks: Hooks,
        lodging: Lodging,
    ) -> None:
        self.app = app
        self._hooks = hooks
        self._lodging = lodging
        self.profile = app.home.profile
        self.channels = channels
        self.troubles = troubles
        self.pacers = {name: Pacer(app.clock, one.caps) for name, one in channels.items()}
        self.door = build_door(app, channels, multiplexed=lodging.multiplexed)
        self.failure = ""
        self._directory = Directory(app.home.channel_directory, app.clock)
        self.ended = anyio.Event()
        self.listening = anyio.Event()
        """Its local door is open, or will not be before it is opened a second time."""
        self._gateway: Gateway | None = None
        self._local: LocalDoor | None = None
        self._lent: Mapping[str, Lent] = {}
        self.borrowers: list[Tenant] = []
        self.closing = False
        self._closed_at = 0.0
        self._said_back = False
        self._hear: Hear | None = None
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

    def assemble(self, lent: Mapping[str, Lent]) -> None:
        self._lent = lent
        self._build()

    def _build(self) -> None:
        parts = ChatParts(
            channels=self.channels,
            door=self.door,
            directory=self._directory,
            lent=self._lent,
            pacers=self.pacers,
            hooks=self._hooks,
            linger=self._linger,
            restart=self._lodging.restart,
            park=self._lodging.park,
            retry=self._lodging.retry,
        )
        self._gateway = build_gateway(self.app, parts)

    def begin(self, hear: Hear) -> None:
        """All tenants are assembled, so that messages may pass between them."""
        self._hear = hear
        self._ready.set()

    @property
    def running(self) -> int:
        """How many turns are going on, in chats and at the local door."""
        return self.gateway.actors.running + (self._local.busy if self._local else 0)

    def close(self) -> None:
        """Begin nothing more, let what runs come to its end, then leave."""
        if not self.closing:
            self.closing, self._closed_at = True, anyio.current_time()
        self.gateway.close()
        if self._local is not None:
            self._local.close()

    async def _linger(self) -> None:
        """The last answers of others may have to leave by our channels."""
        longest = max(one.gateway.ends_within for one in (self, *self.borrowers))
        with anyio.CancelScope(deadline=self._closed_at + longest):
            for borrower in self.borrowers:
                await borrower.gateway.delivered.wait()

    async def _say_back(self) -> None:
        """To who asked for a restart, also when it went wrong, and to the home channels.

        Once: a gateway that was built anew has come back from nothing that anybody asked for.
        """
        if self._said_back:
            return
        platforms = self.app.config.platforms
        quiet = {n for n, one in platforms.items() if not one.gateway_restart_notification}
        homes = homes_from(self.app.env, platforms).values() if self._lodging.restarted else ()
        told = [one for one in (*self.channels, *self._lent) if platform_of(one) not in quiet]
        try:
            await say_back(self.app.store, self.app.clock, homes, told)
            self._said_back = True
        except StoreError as error:
            log.warning("nobody could be told that the gateway is back: %s", error)
        self.look_again()

    def look_again(self) -> None:
        """Another process has put something into the inbox or the outbox."""
        self.gateway.look_again()

    async def work_on(self) -> None:
        """Until its gateway is closed; one that breaks is built anew after a while."""
        await self._ready.wait()
        failures = 0
        while True:
            begun = self.app.clock.monotonic()
            try:
                return await self._work()
            except Exception as error:
                # One profile's trouble is not the others'.
                log.exception("the gateway of profile %s broke", self.profile)
                self.failure = str(error) or type(error).__name__
                self.listening.set()
            failures = 1 if self.app.clock.monotonic() - begun > GOOD else failures + 1
            await self.app.clock.sleep(AGAIN.delay(failures))
            if self.closing:
                return None
            self._build()
            self.failure = ""

    async def _work(self) -> None:
        services = Services(wake=self.look_again)
        marks = marks_of(self._lodging.env)
        local = LocalDoor(self.app.home.path, self.app, marks, services)
        async with anyio.create_task_group() as group:
            await group.start(local.run)
            self._local = local
            self.listening.set()
            if self.closing:
                local.close()
            group.start_soon(Upkeep(self.app).run)
            group.start_soon(self._directory.run)
            if self.app.afterwards is not None:
                group.start_soon(self.app.afterwards.run)
            await self._say_back()
            await self.gateway.run(self._hear)
            # Those at the local door and of the API were told to end together with the chats.
            with anyio.CancelScope(deadline=self._closed_at + self.gateway.drain):
                await local.idle()
                await self._lodging.programs.idle()
            group.cancel_scope.cancel()


async def keep_tenant(
    home: Home,
    lodging: Lodging,
    *,
    task_status: anyio.abc.TaskStatus[Tenant] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Open a profile, say so, serve it, and hold it until cancelled.

    Everything it logs goes to its own files.
    """
    own = home.path == lodging.owner.path
    choices = Choices(
        workspace=str(home.path / "workspace"),
        source="gateway",
        looks_back=True,
        logs=True,
        log_share=LogShare.OWN_AND_NOBODYS if own else LogShare.OWN,
    )
    with at_work_for(home.logs):
        async with AsyncExitStack() as stack:
            opening = open_app(home, lodging.env, choices, lodging.shared.engine_room)
            app = await stack.enter_async_context(opening)
            (home.path / "workspace").mkdir(mode=0o700, exist_ok=True)
            channels, troubles = await _open_channels(app, stack, lodging)
            hooks = await stack.enter_async_context(profile_hooks(home, app.clock))
            for warning in hooks.warnings:
                log.warning("%s", warning)
            heard = hooks if hooks.names else NoHooks()
            tenant = Tenant(app, channels, troubles, heard, lodging)
            task_status.started(tenant)
            try:
                await tenant.work_on()
            finally:
                lodging.programs.detach(tenant.profile)
                tenant.ended.set()
            # Its files stay open until the process is done: the last lines are written to them.
            await anyio.sleep_forever()


async def _open_channels(
    app: App, stack: AsyncExitStack, lodging: Lodging
) -> tuple[Mapping[str, Channel], Mapping[str, str]]:
    wanted = Wanted(app, lodging.manifests)
    troubles = dict.fromkeys(wanted.missing, "This version has no such channel.")
    channels: dict[str, Channel] = {}
    for name in wanted.names:
        try:
            channels[name] = await wanted.open(name, stack, lodging.shared)
        except ConfigError as error:
            troubles[name] = error.sentence
    for name, reason in troubles.items():
        log.error("the channel %s is not served: %s", name, reason)
    return channels, troubles
