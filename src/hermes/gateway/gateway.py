"""The gateway of one profile: channels in, sessions, deliveries out."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias

import anyio
import anyio.abc
from msgspec import Struct, structs

from hermes.approvals.service import ApprovalService
from hermes.commands.command import CommandContext
from hermes.commands.registry import Registry
from hermes.config.home import DEFAULT_PROFILE
from hermes.gateway.actor_pool import ActorLimits, ActorPool
from hermes.gateway.chat_runs import ActorCallbacks, ActorRules, no_rejection
from hermes.gateway.chat_sessions import ChatSessions, ResetPolicy
from hermes.gateway.command_runner import CommandRunner, GatewayCommand, Shortcuts
from hermes.gateway.cross_post import CrossPoster
from hermes.gateway.delivery import Delivery
from hermes.gateway.delivery_rules import DeadTargets, DeliveryRules, QuotePolicy
from hermes.gateway.footer import AnswerFooter
from hermes.gateway.hook_events import TurnObserver, emit_startup
from hermes.gateway.hooks import Hooks, NoHooks
from hermes.gateway.intake import Authorize, Intake, MessageTimestamps
from hermes.gateway.messages import InboxMessage, platform_address, topic_of
from hermes.gateway.notices import OutageNotices
from hermes.gateway.progress_message import ProgressDisplay, ProgressMessage, ProgressTiming
from hermes.gateway.questions import QuestionAnswers, QuestionPosts
from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.shutdown_budget import (
    COMMAND_SECONDS,
    DRAIN_SECONDS,
    PROGRESS_SECONDS,
    SEND_SECONDS,
    shutdown_seconds,
)
from hermes.gateway.stale_progress import EditChannel, StaleProgress
from hermes.gateway.supervisor import Supervisor, SupervisorRules
from hermes.kit.clock import Clock
from hermes.kit.tasks import DeadlineExceeded, run_with_timeout, sleep_unless
from hermes.ports.channel import Channel, Inbound, SupportsEdit, SupportsReactions, SupportsTyping
from hermes.ports.store import Store
from hermes.ports.tool import Tool
from hermes.schema.errors import StoreError
from hermes.schema.events import Outcome
from hermes.schema.scope import Address, platform_of
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation
from hermes.session.runner import Runner

log = logging.getLogger(__name__)

HandleInbound: TypeAlias = Callable[[Inbound], Awaitable[None]]

SEEN_REACTION = "👀"
MAX_REACTIONS = 8
"""Maximum number of reactions in progress; further ones are skipped."""

OUTCOME_REACTIONS = {Outcome.DONE: "✅", Outcome.FAILED: "❌", Outcome.EXHAUSTED: "❌"}


class GatewayRules(Struct, frozen=True, kw_only=True):
    """Rules of a gateway.

    `drain`: seconds running turns get at shutdown. `poll_interval`: seconds between polls of the
    queues for rows of other processes. `progress_display`: progress display by platform,
    `default_display` for the others. `without_reactions`: platforms without reactions.
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
    progress_display: Mapping[str, ProgressDisplay] = {}
    default_display: ProgressDisplay = ProgressDisplay()
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


class BorrowedChannel(Struct, frozen=True):
    """A channel of another profile that this one may answer through."""

    channel: Channel
    online: Callable[[], bool]
    rate_limiter: RateLimiter


async def no_borrowers() -> None:
    log.debug("no other profile uses these channels")


class GatewayDeps(Struct, frozen=True, kw_only=True):
    """What a gateway is built from.

    `context`: the context of a slash command. `rejection`: why a turn may not start, or "".
    `resolve_targets`: resolve target names. `on_contact`: called for every admitted message.
    `cross_poster`: adds cross-posts to sessions. `wait_for_borrowers`: wait for other profiles that
    use these channels. `running_processes`: when a session's processes started. `tools`: the tools
    offered on a platform. Without `approvals`, no questions are asked.
    """

    store: Store
    clock: Clock
    runner: Runner
    channels: Mapping[str, Channel]
    authorize: Authorize
    registry: Registry
    context: Callable[[Conversation], CommandContext]
    profile: str = DEFAULT_PROFILE
    cwd: str = ""
    urgent: Mapping[str, GatewayCommand] = {}
    borrowed: Mapping[str, BorrowedChannel] = {}
    rate_limiters: Mapping[str, RateLimiter] = {}
    rejection: Callable[[InboxMessage], Awaitable[str]] = no_rejection
    resolve_targets: Callable[[str], tuple[Address, ...]] = lambda targets: ()
    on_contact: Callable[[Inbound], None] = lambda inbound: None
    cross_poster: CrossPoster | None = None
    hooks: Hooks = NoHooks()
    wait_for_borrowers: Callable[[], Awaitable[None]] = no_borrowers
    approvals: ApprovalService | None = None
    shortcuts: Shortcuts = Shortcuts()
    footer: AnswerFooter = AnswerFooter()
    running_processes: Callable[[Session], Sequence[datetime]] | None = None
    tools: Callable[[str], Mapping[str, Tool]] = lambda platform: {}


class Gateway:
    def __init__(self, deps: GatewayDeps, rules: GatewayRules | None = None) -> None:
        self._deps = deps
        self._rules = rules or GatewayRules()
        store, clock, runner = deps.store, deps.clock, deps.runner
        rules = self._rules
        sessions = self._sessions = ChatSessions(store, clock, deps.cwd, rules.resets)
        if deps.running_processes is not None:
            sessions.set_running_processes(deps.running_processes)
        borrowed = {name: borrowed.channel for name, borrowed in deps.borrowed.items()}
        self._channels = {**deps.channels, **borrowed}
        self.dead = DeadTargets(store, clock)
        self._stale_progress = StaleProgress(store, clock)
        self._questions = QuestionPosts(store, clock)
        self.actors = ActorPool(store, clock, runner, sessions, rules.actors, rules.limits)
        commands = CommandRunner(store, clock, runner, self.actors, sessions, self._questions)
        commands.set_commands(deps.registry, deps.context, deps.urgent)
        commands.set_hooks(deps.hooks)
        self.command_runner = commands
        if not isinstance(deps.hooks, NoHooks):
            runner.set_observer(TurnObserver(deps.hooks, self._channels))
        self._approvals = deps.approvals
        self.intake = Intake(
            store,
            clock,
            deps.authorize,
            self.actors,
            commands,
            self.dead,
            reactions_in_context=rules.reactions_in_context,
        )
        commands.set_command_queue(self.intake.command_queue)
        self.supervisor = Supervisor(deps.channels, clock, rules.supervisor)
        self.rate_limiters = {
            **{name: RateLimiter(clock, own.caps) for name, own in deps.channels.items()},
            **deps.rate_limiters,
            **{name: borrowed.rate_limiter for name, borrowed in deps.borrowed.items()},
        }
        self.deliveries = {
            name: Delivery(store, clock, name, channel, self.dead, rules.delivery_on(name))
            for name, channel in self._channels.items()
        }
        self._outage_notices = OutageNotices(clock, self._channels, self.rate_limiters)
        self._group: anyio.abc.TaskGroup | None = None
        self._closing = anyio.Event()
        self.delivered = anyio.Event()
        """Set once everything that can be delivered before shutdown has been."""
        self._poll_now = anyio.Event()
        self._pending_reactions = 0
        self._connect()

    async def run(self, handle: HandleInbound | None = None) -> None:
        """Run until `close` (drains first) or cancellation (loses nothing either).

        `handle` receives the channels' messages in place of our intake, for routing.
        """
        await self.dead.load()
        await self.intake.command_queue.recover()
        await self._stale_progress.recover()
        await self._deps.runner.close_questions()
        async with anyio.create_task_group() as group:
            self._group = group
            for delivery in self.deliveries.values():
                group.start_soon(delivery.run)
            group.start_soon(self._outage_notices.run)
            group.start_soon(self.intake.command_queue.run)
            group.start_soon(self.actors.run)
            group.start_soon(self._poll)
            for name, channel in self._channels.items():
                online, limiter = partial(self._is_online, name), self.rate_limiters[name]
                editor = EditChannel(channel, online, limiter)
                group.start_soon(self._stale_progress.run, name, editor)
            group.start_soon(self.supervisor.run, handle or self.intake.accept)
            emit_startup(self._deps.hooks, self._deps.channels)
            try:
                await self._closing.wait()
                await self._shut_down()
            finally:
                # Also when the shutdown itself is cancelled.
                self.intake.command_queue.cancel_all()
            self.supervisor.close()
            group.cancel_scope.cancel()

    async def _shut_down(self) -> None:
        if self._approvals is not None:
            self._approvals.prepare_shutdown()
        started = self._deps.clock.monotonic()
        if not await self.actors.drain(self._rules.drain):
            log.warning("some turns did not end in time and will resume after the next start")
        spent = self._deps.clock.monotonic() - started
        await self.intake.command_queue.drain(max(self._rules.drain - spent, COMMAND_SECONDS))
        await self._flush_deliveries()
        self.delivered.set()
        await self._deps.wait_for_borrowers()

    def _can_send_later(self, address: Address) -> bool:
        channel = self._channels.get(address.channel)
        return channel is not None and channel.caps.async_delivery

    def _is_online(self, name: str) -> bool:
        borrowed = self._deps.borrowed.get(name)
        return borrowed.online() if borrowed else self.supervisor.online(name)

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

        async def drain() -> None:
            async with anyio.create_task_group() as group:
                for delivery in self.deliveries.values():
                    group.start_soon(delivery.drain)

        try:
            await run_with_timeout(self._deps.clock, SEND_SECONDS, drain)
        except DeadlineExceeded:
            log.warning("some deliveries did not finish and will be retried at the next start")
        try:
            await run_with_timeout(self._deps.clock, PROGRESS_SECONDS, self._stale_progress.drain)
        except DeadlineExceeded:
            log.warning("some progress messages could not be updated before shutdown")

    def poll_queues(self) -> None:
        """Check the queues for rows written by another process."""
        self._poll_now.set()

    async def _poll(self) -> None:
        while True:
            await sleep_unless(self._deps.clock, self._rules.poll_interval, self._poll_now)
            self._poll_now = anyio.Event()
            try:
                await self.intake.command_queue.recover()
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

    def _connect(self) -> None:
        if self._approvals is not None:
            self.intake.set_answers(
                QuestionAnswers(self._approvals, self._sessions, self._questions)
            )
        for name, delivery in self.deliveries.items():
            delivery.set_online_check(partial(self._is_online, name))
            delivery.set_rate_limiter(self.rate_limiters[name])
            delivery.set_arrived_callback(self._cross_post)
            delivery.set_questions(self._questions)
            delivery.set_final_edit_wake(partial(self._stale_progress.wake, name))
            delivery.set_outage_callbacks(self._outage_notices.notify, self._outage_notices.clear)
        self.actors.set_callbacks(
            ActorCallbacks(
                posted=self.posted,
                progress_message=self._progress_message,
                rejection=self._deps.rejection,
                ended=self._run_ended,
                hooks=self._deps.hooks,
                can_send_later=self._can_send_later,
                store_failed=self._outage_notices.notify,
                footer=self._deps.footer.text_for,
                profile=self._deps.profile,
            )
        )
        self.intake.set_store_watch(self._outage_notices.store_watch)
        self.intake.set_shortcuts(self._deps.shortcuts)
        if self._rules.timestamps:
            self.intake.set_timestamps(MessageTimestamps(self._deps.clock, self._rules.resets.zone))
        self.intake.set_outputs(self.posted, self._react_seen)
        self.intake.set_targets(self._deps.resolve_targets, self._cross_post, self._deps.on_contact)

    def posted(self, address: Address) -> None:
        delivery = self.deliveries.get(address.channel)
        if delivery is None:
            log.warning("no channel %s: its messages stay queued", address.channel)
        else:
            delivery.wake(topic_of(address))

    def _progress_message(self, address: Address, run: str) -> ProgressMessage | None:
        channel = self._channels.get(address.channel)
        if not self._rules.progress or not isinstance(channel, SupportsEdit | SupportsTyping):
            return None
        platform = platform_of(address.channel)
        display = self._rules.progress_display.get(platform, self._rules.default_display)
        tools = self._deps.tools(platform)
        progress = ProgressMessage(
            channel,
            platform_address(address),
            self._deps.clock,
            self._rules.progress_timing,
            display,
            self.rate_limiters[address.channel],
        )
        progress.set_listeners(
            partial(self._stale_progress.add_live, run, address),
            partial(self._stale_progress.add_final_edit, run, address),
        )
        progress.set_asks_check(lambda name: name in tools and tools[name].spec.asks)
        progress.set_pending_check(
            partial(self.deliveries[address.channel].has_pending, topic_of(address))
        )
        return progress

    def _react_seen(self, inbound: Inbound) -> None:
        if inbound.message:
            self._add_reaction(inbound.address, inbound.message, SEEN_REACTION)

    def _run_ended(self, message: InboxMessage, outcome: Outcome, text: str) -> None:
        for address in message.answer_at:
            self._cross_post(address, text)
        if message.message and outcome in OUTCOME_REACTIONS:
            self._add_reaction(message.address, message.message, OUTCOME_REACTIONS[outcome])

    def _cross_post(self, address: Address, text: str) -> None:
        if self._deps.cross_poster is not None and self._group is not None:
            self._group.start_soon(self._add_cross_post, self._deps.cross_poster, address, text)

    async def _add_cross_post(self, mirror: CrossPoster, address: Address, text: str) -> None:
        try:
            await mirror.add(address, text)
        except StoreError as error:
            log.warning("cannot add the cross-post to the session at %s: %s", address, error)

    def _add_reaction(self, address: Address, message: str, emoji: str) -> None:
        channel = self._channels.get(address.channel)
        if platform_of(address.channel) in self._rules.without_reactions or self._group is None:
            return
        if self._pending_reactions >= MAX_REACTIONS:
            return
        to = platform_address(address)
        free = self.rate_limiters[address.channel].try_acquire(to)
        if free and isinstance(channel, SupportsReactions):
            self._pending_reactions += 1
            self._group.start_soon(self._react, channel, to, message, emoji)

    async def _react(
        self, channel: SupportsReactions, address: Address, message: str, emoji: str
    ) -> None:
        try:
            clock, limit = self._deps.clock, self._rules.progress_timing.timeout
            await run_with_timeout(clock, limit, lambda: channel.react(address, message, emoji))
        except Exception as error:  # noqa: BLE001 - reactions are optional
            log.info("cannot react in %s: %r", address, error)
        finally:
            self._pending_reactions -= 1
