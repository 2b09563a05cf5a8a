"""One profile's gateway: channels in, sessions at work, answers out, until it is closed."""

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
"""How many reactions may be under way; more are left out."""

OUTCOME_REACTIONS = {Outcome.DONE: "✅", Outcome.FAILED: "❌", Outcome.EXHAUSTED: "❌"}


class GatewayRules(Struct, frozen=True, kw_only=True):
    """`drain` is how many seconds running turns are given when the gateway closes.

    Every `look` seconds the lanes are looked into for what other processes have put there.
    `shows` says for a platform what its chats see of a running turn, `usual` for those that it
    does not name, and `unsigned` where no reactions are given. `replies` says which parts of an
    answer quote what they answer, where it is not the first. `stamps`: the model is told when a
    message was written.
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
    """A channel of another profile, through which this one may answer; `online` is its state."""

    channel: Channel
    online: Callable[[], bool]
    pacer: RateLimiter


async def no_refusal(letter: InboxMessage) -> str:
    return ""


async def no_borrowers() -> None:
    log.debug("nobody else speaks through these channels")


def ignore_met(inbound: Inbound) -> None:
    log.debug("met %s", inbound.address)


def no_targets(targets: str) -> tuple[Address, ...]:
    return ()


def no_tools(platform: str) -> Mapping[str, Tool]:
    return {}


class GatewayDeps(Struct, frozen=True, kw_only=True):
    """What a gateway is built from; `context` gives a slash command its surroundings.

    `refusal` says why a turn may not begin, `places` what the names of targets mean, `met`
    hears of everybody who was let in, and `mirror` of what was brought elsewhere. `linger` waits
    for those who still speak through these channels. Without `approvals` nobody is asked.
    `running` says when the processes began that still run for a session, `tools` which tools are
    offered on a platform.
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
    def __init__(self, house: GatewayDeps, rules: GatewayRules | None = None) -> None:
        self._house = house
        self._rules = rules or GatewayRules()
        store, clock, runner = house.store, house.clock, house.runner
        rules = self._rules
        sessions = self._sessions = ChatSessions(store, clock, house.cwd, rules.resets)
        if house.running is not None:
            sessions.waits_for(house.running)
        self._channels = dict(house.channels) | {
            name: lent.channel for name, lent in house.lent.items()
        }
        self.dead = DeadTargets(store, clock)
        self._stale_progress = StaleProgress(store, clock)
        self._questions = QuestionPosts(store, clock)
        self.actors = ActorPool(store, clock, runner, sessions, rules.actors, rules.limits)
        self.desk = CommandRunner(store, clock, runner, self.actors, sessions, self._questions)
        self.desk.knows(house.registry, house.context, house.urgent)
        self.desk.set_hooks(house.hooks)
        if not isinstance(house.hooks, NoHooks):
            runner.set_observer(TurnObserver(house.hooks, self._channels))
        self._approvals = house.approvals
        self.intake = Intake(store, clock, house.door, self.actors, self.desk, self.dead)
        self.desk.set_command_queue(self.intake.command_queue)
        self.supervisor = Supervisor(house.channels, clock, rules.supervisor)
        self.pacers = {name: RateLimiter(clock, one.caps) for name, one in house.channels.items()}
        self.pacers |= house.pacers
        self.pacers |= {name: lent.pacer for name, lent in house.lent.items()}
        self.deliveries = {
            name: Delivery(store, clock, name, channel, self.dead, rules.delivery_on(name))
            for name, channel in self._channels.items()
        }
        self._troubles = OutageNotices(clock, self._channels, self.pacers)
        self._group: anyio.abc.TaskGroup | None = None
        self._closing = anyio.Event()
        self.delivered = anyio.Event()
        """All that could be delivered before the end is."""
        self._poll_now = anyio.Event()
        self._pending_reactions = 0
        self._connect()

    async def run(self, hear: HandleInbound | None = None) -> None:
        """Until `close` is called, which drains, or until cancelled, which loses nothing either.

        `hear` is given what the channels say, when somebody else decides whom it is for.
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
                place = EditChannel(channel, partial(self._is_online, name), self.pacers[name])
                group.start_soon(self._stale_progress.run, name, place)
            group.start_soon(self.supervisor.run, hear or self.intake.deliver)
            emit_startup(self._house.hooks, self._house.channels)
            try:
                await self._closing.wait()
                await self._leave()
            finally:
                # Also when nobody waits for a good end any longer.
                self.intake.command_queue.cut_off()
            self.supervisor.close()
            group.cancel_scope.cancel()

    async def _leave(self) -> None:
        if self._approvals is not None:
            self._approvals.leave()
        begun = self._house.clock.monotonic()
        if not await self.actors.drain(self._rules.drain):
            log.warning("some turns did not end in time; they go on after the next start")
        spent = self._house.clock.monotonic() - begun
        await self.intake.command_queue.drain(max(self._rules.drain - spent, COMMAND_SECONDS))
        await self._flush_deliveries()
        self.delivered.set()
        await self._house.linger()

    def _can_later(self, address: Address) -> bool:
        channel = self._channels.get(address.channel)
        return channel is not None and channel.caps.later

    def _is_online(self, name: str) -> bool:
        lent = self._house.lent.get(name)
        return lent.online() if lent else self.supervisor.online(name)

    @property
    def drain(self) -> float:
        """Seconds that running turns are given at its end."""
        return self._rules.drain

    @property
    def shutdown_seconds(self) -> float:
        """Seconds that its end may take, apart from those who still speak through its channels."""
        return shutdown_seconds(self._rules.drain)

    async def _flush_deliveries(self) -> None:
        """What is being sent is sent to its end: cut off, it would have to be sent again."""

        async def drain() -> None:
            async with anyio.create_task_group() as group:
                for delivery in self.deliveries.values():
                    group.start_soon(delivery.drain)

        try:
            await run_with_timeout(self._house.clock, SEND_SECONDS, drain)
        except DeadlineExceeded:
            log.warning("some deliveries were not settled; they are tried again at the next start")
        try:
            await run_with_timeout(self._house.clock, PROGRESS_SECONDS, self._stale_progress.drain)
        except DeadlineExceeded:
            log.warning("some progress posts stay as they are until the next start")

    def poll_queues(self) -> None:
        """Another process may have put something into a lane."""
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
                log.warning("the lanes cannot be looked into just now: %s", error)

    def close(self) -> None:
        """Begin no turn any more, let running ones end and be delivered, then leave.

        What is said meanwhile is kept for the next start.
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
            log.warning("no channel %s: what is posted to it waits", address.channel)
        else:
            delivery.wake(topic_of(address))

    def _progress_message(self, address: Address, run: str) -> ProgressMessage | None:
        channel = self._channels.get(address.channel)
        if not self._rules.progress or not isinstance(channel, SupportsEdit | SupportsTyping):
            return None
        platform = platform_of(address.channel)
        shows = self._rules.shows.get(platform, self._rules.usual)
        tools = self._house.tools(platform)
        pacer = self.pacers[address.channel]
        place, clock, pace = platform_address(address), self._house.clock, self._rules.pace
        bubble = ProgressMessage(channel, place, clock, pace, shows, pacer)
        bubble.set_listeners(
            partial(self._stale_progress.remember, run, address),
            partial(self._stale_progress.leave, run, address),
        )
        bubble.set_asks_check(lambda name: name in tools and tools[name].spec.asks)
        bubble.set_pending_check(
            partial(self.deliveries[address.channel].has_pending, topic_of(address))
        )
        return bubble

    def _sign(self, inbound: Inbound) -> None:
        """An instant sign of life; the message waits for nobody's sake."""
        if inbound.message:
            self._add_reaction(inbound.address, inbound.message, SEEN_REACTION)

    def _run_ended(self, letter: InboxMessage, outcome: Outcome, text: str) -> None:
        for address in letter.answer_at:
            self._cross_post(address, text)
        if letter.message and outcome in OUTCOME_REACTIONS:
            self._add_reaction(letter.address, letter.message, OUTCOME_REACTIONS[outcome])

    def _cross_post(self, address: Address, text: str) -> None:
        if self._house.mirror is not None and self._group is not None:
            self._group.start_soon(self._add_cross_post, self._house.mirror, address, text)

    async def _add_cross_post(self, mirror: CrossPoster, address: Address, text: str) -> None:
        try:
            await mirror.add(address, text)
        except StoreError as error:
            log.warning("the session at %s does not know what was sent there: %s", address, error)

    def _add_reaction(self, address: Address, message: str, sign: str) -> None:
        channel = self._channels.get(address.channel)
        if platform_of(address.channel) in self._rules.unsigned or self._group is None:
            return
        if self._pending_reactions >= MAX_REACTIONS or not self.pacers[address.channel].spare(
            platform_address(address)
        ):
            return
        if isinstance(channel, SupportsReactions):
            self._pending_reactions += 1
            self._group.start_soon(self._react, channel, platform_address(address), message, sign)

    async def _react(
        self, channel: SupportsReactions, address: Address, message: str, sign: str
    ) -> None:
        try:
            limit = self._rules.pace.limit
            await run_with_timeout(
                self._house.clock, limit, lambda: channel.react(address, message, sign)
            )
        except Exception as error:  # noqa: BLE001 - a sign is a comfort, whatever a channel raises
            log.info("no sign could be given in %s: %r", address, error)
        finally:
            self._pending_reactions -= 1
