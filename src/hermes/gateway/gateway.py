"""The gateway of one profile: run its channels, sessions and deliveries, and shut them down."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import TypeAlias

import anyio
from msgspec import Struct, structs

from hermes.approvals.service import ApprovalService
from hermes.gateway.actor_pool import ActorLimits, ActorPool
from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.chat_sessions import ResetPolicy
from hermes.gateway.command_queue import CommandQueue
from hermes.gateway.delivery import Delivery
from hermes.gateway.delivery_rules import DeadTargets, DeliveryRules, QuotePolicy
from hermes.gateway.hook_events import TurnObserver, emit_startup
from hermes.gateway.hooks import Hooks
from hermes.gateway.intake import Intake
from hermes.gateway.notices import OutageNotices
from hermes.gateway.progress_message import ProgressDisplay, ProgressTiming
from hermes.gateway.run_display import RunDisplay
from hermes.gateway.shutdown_budget import (
    COMMAND_SECONDS,
    DRAIN_SECONDS,
    LAST_EDIT_SECONDS,
    PROGRESS_SECONDS,
    SEND_SECONDS,
    shutdown_seconds,
)
from hermes.gateway.stale_progress import StaleProgress
from hermes.gateway.supervisor import Supervisor, SupervisorRules
from hermes.kit.clock import Clock
from hermes.kit.tasks import BackgroundTasks, DeadlineExceeded, sleep_unless, time_limit
from hermes.ports.channel import Inbound
from hermes.schema.errors import StoreError
from hermes.schema.scope import Address, platform_of
from hermes.session.runner import Runner

log = logging.getLogger(__name__)

HandleInbound: TypeAlias = Callable[[Inbound], Awaitable[None]]


class GatewayRules(Struct, frozen=True, kw_only=True):
    """Rules of a gateway.

    `drain`: seconds running turns get at shutdown. `poll_interval`: seconds between polls of the
    queues for rows of other processes. `display_on`: the progress display of a chat.
    `without_reactions`: platforms without reactions.
    `reactions_in_context`: platforms whose reactions the model learns of.
    `quote_policies`: which chunks quote the question, by platform. `timestamps`: prefix messages
    with their time for the model.
    """

    actors: ActorRules = ActorRules()
    limits: ActorLimits = ActorLimits()
    delivery: DeliveryRules = DeliveryRules()
    supervisor: SupervisorRules = SupervisorRules()
    progress_timing: ProgressTiming = ProgressTiming()
    progress: bool = True
    display_on: Callable[[Address], ProgressDisplay] = lambda address: ProgressDisplay()
    without_reactions: frozenset[str] = frozenset()
    reactions_in_context: frozenset[str] = frozenset()
    resets: ResetPolicy = ResetPolicy()
    quote_policies: Mapping[str, QuotePolicy] = {}
    timestamps: bool = False
    drain: float = DRAIN_SECONDS
    poll_interval: float = 60.0

    def delivery_on(self, channel: str) -> DeliveryRules:
        own = self.quote_policies.get(platform_of(channel))
        return structs.replace(self.delivery, replies=own) if own else self.delivery


class Gateway:
    """`wait_for_borrowers` waits for other profiles that use these channels, if there are any."""

    def __init__(
        self,
        *,
        clock: Clock,
        runner: Runner,
        approvals: ApprovalService,
        supervisor: Supervisor,
        intake: Intake,
        command_queue: CommandQueue,
        actors: ActorPool,
        display: RunDisplay,
        deliveries: Mapping[str, Delivery],
        stale_progress: StaleProgress,
        dead: DeadTargets,
        outages: OutageNotices,
        background: BackgroundTasks,
        hooks: Hooks | None,
        wait_for_borrowers: Callable[[], Awaitable[None]] | None,
        rules: GatewayRules,
    ) -> None:
        self._clock = clock
        self._runner = runner
        self._approvals = approvals
        self.supervisor = supervisor
        self.intake = intake
        self.command_queue = command_queue
        self.actors = actors
        self._display = display
        self.deliveries = deliveries
        self._outgoing: set[str] = set()
        """Channels this worker delivers to."""
        self._stale_progress = stale_progress
        self._dead = dead
        self._hooks = hooks
        self._wait_for_borrowers = wait_for_borrowers
        self._rules = rules
        self._services = (background, outages, command_queue, actors)
        self._closing, self._poll_now = anyio.Event(), anyio.Event()
        self.delivered = anyio.Event()
        """Set once everything that can be delivered before shutdown has been."""

    async def run(self, handle: HandleInbound | None = None) -> None:
        """Run until `close`, which drains first, or until cancelled, which loses nothing either.

        `handle` receives the channels' messages instead of the intake, to route them.
        """
        await self._dead.load()
        await self.command_queue.recover()
        await self._stale_progress.recover()
        await self._runner.recover_partial_answers()
        await self._runner.close_questions()
        await self.supervisor.claim_free()
        with ExitStack() as stack:
            if self._hooks is not None:
                observer = TurnObserver(self._hooks, self.deliveries)
                stack.enter_context(self._runner.observed_by(observer))
            await self._run(handle or self.intake.accept)

    async def _run(self, handle: HandleInbound) -> None:
        async with anyio.create_task_group() as group:
            for service in self._services:
                group.start_soon(service.run)
            for name in self.deliveries:
                group.start_soon(self._serve_outgoing, name, group)
            group.start_soon(self._poll)
            group.start_soon(self.supervisor.run, handle)
            if self._hooks is not None:
                emit_startup(self._hooks, self.supervisor.snapshot())
            try:
                await self._closing.wait()
                await self._shut_down()
            finally:
                # Also when the shutdown itself is cancelled.
                self.command_queue.cancel_all()
            self.supervisor.close()
            group.cancel_scope.cancel()

    async def _serve_outgoing(self, name: str, group: anyio.abc.TaskGroup) -> None:
        """Deliver to a channel once this worker has claimed it, also what others left there."""
        if await self.supervisor.wait_claimed(name):
            self.poll_queues()
        self._outgoing.add(name)
        group.start_soon(self.deliveries[name].run)
        group.start_soon(self._stale_progress.run, name)

    async def _shut_down(self) -> None:
        self._approvals.prepare_shutdown()
        started = self._clock.monotonic()
        if not await self.actors.drain(self._rules.drain):
            log.warning("some turns did not end in time and will resume after the next start")
        left = self._rules.drain - (self._clock.monotonic() - started)
        await self._display.drain(min(left, LAST_EDIT_SECONDS))
        left = self._rules.drain - (self._clock.monotonic() - started)
        await self.command_queue.drain(max(left, COMMAND_SECONDS))
        await self._flush_deliveries()
        self.delivered.set()
        if self._wait_for_borrowers is not None:
            await self._wait_for_borrowers()

    @property
    def drain(self) -> float:
        """Seconds running turns get at shutdown."""
        return self._rules.drain

    @property
    def shutdown_seconds(self) -> float:
        """Seconds shutdown may take, without waiting for other users of the channels."""
        return shutdown_seconds(self._rules.drain)

    async def _flush_deliveries(self) -> None:
        """Finish sends in progress; an aborted one would have to be repeated."""
        try:
            async with (
                time_limit(self._clock, SEND_SECONDS),
                anyio.create_task_group() as group,
            ):
                for name in self._outgoing:
                    group.start_soon(self.deliveries[name].drain)
        except DeadlineExceeded:
            log.warning("some deliveries did not finish and will be retried at the next start")
        try:
            async with time_limit(self._clock, PROGRESS_SECONDS):
                await self._stale_progress.drain()
        except DeadlineExceeded:
            log.warning("some progress messages could not be updated before shutdown")

    def poll_queues(self) -> None:
        """Check the queues for rows written by another process."""
        self._poll_now.set()

    async def _poll(self) -> None:
        while True:
            await sleep_unless(self._clock, self._rules.poll_interval, self._poll_now)
            self._poll_now = anyio.Event()
            try:
                await self.command_queue.recover()
                await self._stale_progress.recover_abandoned()
                await self.actors.poll_queues()
                for delivery in self.deliveries.values():
                    await delivery.poll_queues()
            except StoreError as error:
                log.warning("the queues cannot be polled: %s", error)

    def close(self) -> None:
        """Start no more turns, let running ones finish and be delivered, then stop.

        Messages received meanwhile are kept for the next start.
        """
        self._closing.set()
