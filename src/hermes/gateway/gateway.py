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
from hermes.gateway.actor_deps import ActorCallbacks
from hermes.gateway.actor_pool import ActorLimits, ActorPool
from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.chat_sessions import ChatSessions, ResetPolicy
from hermes.gateway.command_runner import CommandRunner, GatewayCommand, Shortcuts
from hermes.gateway.cross_post import CrossPoster
from hermes.gateway.dead_targets import DeadTargets
from hermes.gateway.delivery import Delivery
from hermes.gateway.delivery_rules import DeliveryRules, QuotePolicy
from hermes.gateway.footer import AnswerFooter
from hermes.gateway.hook_events import TurnObserver, emit_startup
from hermes.gateway.hooks import Hooks, NoHooks
from hermes.gateway.intake import Authorize, Intake, MessageTimestamps
from hermes.gateway.messages import InboxMessage, platform_address, platform_of, topic_of
from hermes.gateway.outage_notice import OutageNotices
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
from hermes.kit.deadline import DeadlineExceeded, run_with_timeout, sleep_unless
from hermes.ports.channel import Channel, Inbound, SupportsEdit, SupportsReactions, SupportsTyping
from hermes.ports.store import Store
from hermes.ports.tool import Tool
from hermes.schema.errors import StoreError
from hermes.schema.events import Outcome
from hermes.schema.scope import Address
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

    `drain`: seconds running turns get at shutdown. `look`: seconds between polls of the queues for
    rows of other processes. `shows`: progress display by platform, `usual` for the others.
    `unsigned`: platforms without reactions. `replies`: which chunks quote the question, by
    platform. `stamps`: prefix messages with their time for the model.
    """

    actors: ActorRules = ActorRules()
    limits: ActorLimits = ActorLimits()
    delivery: DeliveryRules = DeliveryRules()
    supervisor: SupervisorRules = SupervisorRules()
    pace: ProgressTiming = ProgressTiming()
    progress: bool = True
    shows: Mapping[str, ProgressDisplay] = {}
    usual: ProgressDisplay = ProgressDisplay()
    unsigned: frozenset[str] = frozenset()
    resets: ResetPolicy = ResetPolicy()
    replies: Mapping[str, QuotePolicy] = {}
    stamps: bool = False
    drain: float = DRAIN_SECONDS
    look: float = 60.0

    def delivery_on(self, channel: str) -> DeliveryRules:
        own = self.replies.get(platform_of(channel))
        return structs.replace(self.delivery, replies=own) if own else self.delivery


class BorrowedChannel(Struct, frozen=True):
    """A channel of another profile that this one may answer through."""

    channel: Channel
    online: Callable[[], bool]
    pacer: RateLimiter


async def no_refusal(message: InboxMessage) -> str:
    return ""


async def no_borrowers() -> None:
    log.debug("no other profile uses these channels")


def ignore_met(inbound: Inbound) -> None:
    log.debug("message from %s", inbound.address)


def no_targets(targets: str) -> tuple[Address, ...]:
    return ()


def no_tools(platform: str) -> Mapping[str, Tool]:
    return {}


class GatewayDeps(Struct, frozen=True, kw_only=True):
    """What a gateway is built from.

    `context`: the context of a slash command. `refusal`: why a turn may not start, or "".
    `places`: resolve target names. `met`: called for every admitted message. `mirror`: adds
    cross-posts to sessions. `linger`: wait for other profiles that use these channels. `running`:
    start times of a session's processes. `tools`: the tools offered on a platform. Without
    `approvals`, no questions are asked.
    """

    store: Store
    clock: Clock
    runner: Runner
    channels: Mapping[str, Channel]
    door: Authorize
    registry: Registry
    context: Callable[[Conversation], CommandContext]
    profile: str = DEFAULT_PROFILE
    cwd: str = ""
    urgent: Mapping[str, GatewayCommand] = {}
    lent: Mapping[str, BorrowedChannel] = {}
    pacers: Mapping[str, RateLimiter] = {}
    refusal: Callable[[InboxMessage], Awaitable[str]] = no_refusal
    places: Callable[[str], tuple[Address, ...]] = no_targets
    met: Callable[[Inbound], None] = ignore_met
    mirror: CrossPoster | None = None
    hooks: Hooks = NoHooks()
    linger: Callable[[], Awaitable[None]] = no_borrowers
    approvals: ApprovalService | None = None
    shortcuts: Shortcuts = Shortcuts()
    postscript: AnswerFooter = AnswerFooter()
    running: Callable[[Session], Sequence[datetime]] | None = None
    tools: Callable[[str], Mapping[str, Tool]] = no_tools


class Gateway:
    def __init__(self, deps: GatewayDeps, rules: GatewayRules | None = None) -> None:
        self._house = deps
        self._rules = rules or GatewayRules()
        store, clock, runner = deps.store, deps.clock, deps.runner
        rules = self._rules
        sessions = self._sessions = ChatSessions(store, clock, deps.cwd, rules.resets)
        if deps.running is not None:
            sessions.waits_for(deps.running)
        self._channels = dict(deps.channels) | {
            name: borrowed.channel for name, borrowed in deps.lent.items()
        }
        self.dead = DeadTargets(store, clock)
        self._stale_progress = StaleProgress(store, clock)
        self._questions = QuestionPosts(store, clock)
        self.actors = ActorPool(store, clock, runner, sessions, rules.actors, rules.limits)
        self.desk = CommandRunner(store, clock, runner, self.actors, sessions, self._questions)
        self.desk.knows(deps.registry, deps.context, deps.urgent)
        self.desk.set_hooks(deps.hooks)
        if not isinstance(deps.hooks, NoHooks):
            runner.set_observer(TurnObserver(deps.hooks, self._channels))
        self._approvals = deps.approvals
        self.intake = Intake(store, clock, deps.door, self.actors, self.desk, self.dead)
        self.desk.set_command_queue(self.intake.command_queue)
        self.supervisor = Supervisor(deps.channels, clock, rules.supervisor)
        self.pacers = {
            name: RateLimiter(clock, channel_.caps) for name, channel_ in deps.channels.items()
        }
        self.pacers |= deps.pacers
        self.pacers |= {name: borrowed.pacer for name, borrowed in deps.lent.items()}
        self.deliveries = {
            name: Delivery(store, clock, name, channel, self.dead, rules.delivery_on(name))
            for name, channel in self._channels.items()
        }
        self._troubles = OutageNotices(clock, self._channels, self.pacers)
        self._group: anyio.abc.TaskGroup | None = None
        self._closing = anyio.Event()
        self.delivered = anyio.Event()
        """Set once everything that can be delivered before shutdown has been."""
        self._poll_now = anyio.Event()
        self._pending_reactions = 0
        self._connect()

    async def run(self, hear: HandleInbound | None = None) -> None:
        """Run until `close` (drains first) or cancellation (loses nothing either).

        `hear` receives the channels' messages in place of our intake, for routing.
        """
        await self.dead.load()
        await self.intake.command_queue.recover()
        await self._stale_progress.recover()
        await self._house.runner.close_questions()
        async with anyio.create_task_group() as group:
            self._group = group
            for delivery in self.deliveries.values():
                group.start_soon(delivery.run)
            group.start_soon(self._troubles.run)
            group.start_soon(self.intake.command_queue.run)
            group.start_soon(self.actors.run)
            group.start_soon(self._look_again)
            for name, channel in self._channels.items():
                editor = EditChannel(channel, partial(self._is_online, name), self.pacers[name])
                group.start_soon(self._stale_progress.run, name, editor)
            group.start_soon(self.supervisor.run, hear or self.intake.deliver)
            emit_startup(self._house.hooks, self._house.channels)
            try:
                await self._closing.wait()
                await self._leave()
            finally:
                # Also when the shutdown itself is cancelled.
                self.intake.command_queue.cut_off()
            self.supervisor.close()
            group.cancel_scope.cancel()

    async def _leave(self) -> None:
        if self._approvals is not None:
            self._approvals.leave()
        started = self._house.clock.monotonic()
        if not await self.actors.drain(self._rules.drain):
            log.warning("some turns did not end in time and will resume after the next start")
        spent = self._house.clock.monotonic() - started
        await self.intake.command_queue.drain(max(self._rules.drain - spent, COMMAND_SECONDS))
        await self._flush_deliveries()
        self.delivered.set()
        await self._house.linger()

    def _can_later(self, address: Address) -> bool:
        channel = self._channels.get(address.channel)
        return channel is not None and channel.caps.later

    def _is_online(self, name: str) -> bool:
        borrowed = self._house.lent.get(name)
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
            await run_with_timeout(self._house.clock, SEND_SECONDS, drain)
        except DeadlineExceeded:
            log.warning("some deliveries did not finish and will be retried at the next start")
        try:
            await run_with_timeout(self._house.clock, PROGRESS_SECONDS, self._stale_progress.drain)
        except DeadlineExceeded:
            log.warning("some progress messages could not be updated before shutdown")

    def poll_queues(self) -> None:
        """Check the queues for rows written by another process."""
        self._poll_now.set()

    async def _look_again(self) -> None:
        while True:
            await sleep_unless(self._house.clock, self._rules.look, self._poll_now)
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
            self.intake.hears(QuestionAnswers(self._approvals, self._sessions, self._questions))
        for name, delivery in self.deliveries.items():
            delivery.set_online_check(partial(self._is_online, name))
            delivery.set_rate_limiter(self.pacers[name])
            delivery.tells(self._cross_post)
            delivery.set_questions(self._questions)
            delivery.set_final_edit_wake(partial(self._stale_progress.wake, name))
            delivery.set_outage_callbacks(self._troubles.tell, self._troubles.over)
        self.actors.set_callbacks(
            ActorCallbacks(
                posted=self.posted,
                bubble=self._progress_message,
                refusal=self._house.refusal,
                ended=self._run_ended,
                hooks=self._house.hooks,
                later=self._can_later,
                trouble=self._troubles.tell,
                below=self._house.postscript.below,
                profile=self._house.profile,
            )
        )
        self.intake.minds(self._troubles.store_watch)
        self.intake.set_shortcuts(self._house.shortcuts)
        if self._rules.stamps:
            self.intake.stamps(MessageTimestamps(self._house.clock, self._rules.resets.zone))
        self.intake.set_outputs(self.posted, self._sign)
        self.intake.set_targets(self._house.places, self._cross_post, self._house.met)

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
        display = self._rules.shows.get(platform, self._rules.usual)
        tools = self._house.tools(platform)
        rate_limiter = self.pacers[address.channel]
        target, clock, pace = platform_address(address), self._house.clock, self._rules.pace
        progress = ProgressMessage(channel, target, clock, pace, display, rate_limiter)
        progress.set_listeners(
            partial(self._stale_progress.remember, run, address),
            partial(self._stale_progress.leave, run, address),
        )
        progress.set_asks_check(lambda name: name in tools and tools[name].spec.asks)
        progress.set_pending_check(
            partial(self.deliveries[address.channel].has_pending, topic_of(address))
        )
        return progress

    def _sign(self, inbound: Inbound) -> None:
        """React to the message without blocking intake."""
        if inbound.message:
            self._add_reaction(inbound.address, inbound.message, SEEN_REACTION)

    def _run_ended(self, message: InboxMessage, outcome: Outcome, text: str) -> None:
        for address in message.answer_at:
            self._cross_post(address, text)
        if message.message and outcome in OUTCOME_REACTIONS:
            self._add_reaction(message.address, message.message, OUTCOME_REACTIONS[outcome])

    def _cross_post(self, address: Address, text: str) -> None:
        if self._house.mirror is not None and self._group is not None:
            self._group.start_soon(self._add_cross_post, self._house.mirror, address, text)

    async def _add_cross_post(self, mirror: CrossPoster, address: Address, text: str) -> None:
        try:
            await mirror.add(address, text)
        except StoreError as error:
            log.warning("cannot add the cross-post to the session at %s: %s", address, error)

    def _add_reaction(self, address: Address, message: str, emoji: str) -> None:
        channel = self._channels.get(address.channel)
        if platform_of(address.channel) in self._rules.unsigned or self._group is None:
            return
        if self._pending_reactions >= MAX_REACTIONS or not self.pacers[address.channel].spare(
            platform_address(address)
        ):
            return
        if isinstance(channel, SupportsReactions):
            self._pending_reactions += 1
            self._group.start_soon(self._react, channel, platform_address(address), message, emoji)

    async def _react(
        self, channel: SupportsReactions, address: Address, message: str, emoji: str
    ) -> None:
        try:
            limit = self._rules.pace.limit
            await run_with_timeout(
                self._house.clock, limit, lambda: channel.react(address, message, emoji)
            )
        except Exception as error:  # noqa: BLE001 - reactions are optional
            log.info("cannot react in %s: %r", address, error)
        finally:
            self._pending_reactions -= 1
