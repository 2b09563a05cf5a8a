"""One profile's gateway: channels in, sessions at work, answers out, until it is closed."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias

import anyio
import anyio.abc
from msgspec import Struct, structs

from hermes.approvals.desk import ApprovalDesk
from hermes.commands.command import Context
from hermes.commands.registry import Registry
from hermes.config.home import DEFAULT
from hermes.gateway.actors import ActorLimits, Actors
from hermes.gateway.answers import Answers
from hermes.gateway.bubble import Bubble, Pace, Shows
from hermes.gateway.dead_targets import DeadTargets
from hermes.gateway.delivery import Delivery
from hermes.gateway.delivery_rules import DeliveryRules, Replies
from hermes.gateway.desk import Desk, Urgent
from hermes.gateway.ending import COMMANDS, DRAIN, FAREWELLS, LAST_POSTS, ends_within
from hermes.gateway.hooks import Hooks, NoHooks
from hermes.gateway.intake import Door, Intake
from hermes.gateway.leftovers import Leftovers, Place
from hermes.gateway.letters import Letter, as_spoken, platform_of, topic_of
from hermes.gateway.mirror import Mirror
from hermes.gateway.occasions import Onlooking, tell_startup
from hermes.gateway.pacer import Pacer
from hermes.gateway.postscript import Postscript
from hermes.gateway.question_posts import QuestionPosts
from hermes.gateway.resets import ResetPolicy
from hermes.gateway.runs import ActorRules
from hermes.gateway.sessions import ChatSessions
from hermes.gateway.shortcuts import Shortcuts
from hermes.gateway.stamps import Stamps
from hermes.gateway.supervisor import Supervisor, SupervisorRules
from hermes.gateway.surroundings import Surroundings
from hermes.gateway.troubles import Troubles
from hermes.kit.clock import Clock
from hermes.kit.deadline import TooLong, sleep_unless, within
from hermes.ports.channel import Channel, Edits, Inbound, Reacts, Types
from hermes.ports.store import Store
from hermes.ports.tool import Tool
from hermes.schema.errors import StoreError
from hermes.schema.events import Outcome
from hermes.schema.scope import Address
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation
from hermes.session.runner import Runner

log = logging.getLogger(__name__)

Hear: TypeAlias = Callable[[Inbound], Awaitable[None]]

SEEN = "👀"
SIGNS = 8
"""How many reactions may be under way; more are left out."""

ENDS = {Outcome.DONE: "✅", Outcome.FAILED: "❌", Outcome.EXHAUSTED: "❌"}


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
    pace: Pace = Pace()
    progress: bool = True
    shows: Mapping[str, Shows] = {}
    usual: Shows = Shows()
    unsigned: frozenset[str] = frozenset()
    resets: ResetPolicy = ResetPolicy()
    replies: Mapping[str, Replies] = {}
    stamps: bool = False
    drain: float = DRAIN
    look: float = 60.0

    def delivery_on(self, channel: str) -> DeliveryRules:
        own = self.replies.get(platform_of(channel))
        return structs.replace(self.delivery, replies=own) if own else self.delivery


class Lent(Struct, frozen=True):
    """A channel of another profile, through which this one may answer; `online` is its state."""

    channel: Channel
    online: Callable[[], bool]
    pacer: Pacer


async def no_refusal(letter: Letter) -> str:
    return ""


async def nobody_waits() -> None:
    log.debug("nobody else speaks through these channels")


def nobody_asks(inbound: Inbound) -> None:
    log.debug("met %s", inbound.address)


def nowhere_else(targets: str) -> tuple[Address, ...]:
    return ()


def no_tools(platform: str) -> Mapping[str, Tool]:
    return {}


class House(Struct, frozen=True, kw_only=True):
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
    door: Door
    registry: Registry
    context: Callable[[Conversation], Context]
    profile: str = DEFAULT
    cwd: str = ""
    urgent: Mapping[str, Urgent] = {}
    lent: Mapping[str, Lent] = {}
    pacers: Mapping[str, Pacer] = {}
    refusal: Callable[[Letter], Awaitable[str]] = no_refusal
    places: Callable[[str], tuple[Address, ...]] = nowhere_else
    met: Callable[[Inbound], None] = nobody_asks
    mirror: Mirror | None = None
    hooks: Hooks = NoHooks()
    linger: Callable[[], Awaitable[None]] = nobody_waits
    approvals: ApprovalDesk | None = None
    shortcuts: Shortcuts = Shortcuts()
    postscript: Postscript = Postscript()
    running: Callable[[Session], Sequence[datetime]] | None = None
    tools: Callable[[str], Mapping[str, Tool]] = no_tools


class Gateway:
    def __init__(self, house: House, rules: GatewayRules | None = None) -> None:
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
        self._leftovers = Leftovers(store, clock)
        self._questions = QuestionPosts(store, clock)
        self.actors = Actors(store, clock, runner, sessions, rules.actors, rules.limits)
        self.desk = Desk(store, clock, runner, self.actors, sessions, self._questions)
        self.desk.knows(house.registry, house.context, house.urgent)
        self.desk.heeds(house.hooks)
        if not isinstance(house.hooks, NoHooks):
            runner.is_overheard_by(Onlooking(house.hooks, self._channels))
        self._approvals = house.approvals
        self.intake = Intake(store, clock, house.door, self.actors, self.desk, self.dead)
        self.desk.ends_too(self.intake.chores)
        self.supervisor = Supervisor(house.channels, clock, rules.supervisor)
        self.pacers = {name: Pacer(clock, one.caps) for name, one in house.channels.items()}
        self.pacers |= house.pacers
        self.pacers |= {name: lent.pacer for name, lent in house.lent.items()}
        self.deliveries = {
            name: Delivery(store, clock, name, channel, self.dead, rules.delivery_on(name))
            for name, channel in self._channels.items()
        }
        self._troubles = Troubles(clock, self._channels, self.pacers)
        self._group: anyio.abc.TaskGroup | None = None
        self._closing = anyio.Event()
        self.delivered = anyio.Event()
        """All that could be delivered before the end is."""
        self._poked = anyio.Event()
        self._signing = 0
        self._connect()

    async def run(self, hear: Hear | None = None) -> None:
        """Until `close` is called, which drains, or until cancelled, which loses nothing either.

        `hear` is given what the channels say, when somebody else decides whom it is for.
        """
        await self.dead.load()
        await self.intake.chores.recover()
        await self._leftovers.recover()
        await self._house.runner.close_questions()
        async with anyio.create_task_group() as group:
            self._group = group
            for delivery in self.deliveries.values():
                group.start_soon(delivery.run)
            group.start_soon(self._troubles.run)
            group.start_soon(self.intake.chores.run)
            group.start_soon(self.actors.run)
            group.start_soon(self._look_again)
            for name, channel in self._channels.items():
                place = Place(channel, partial(self._is_online, name), self.pacers[name])
                group.start_soon(self._leftovers.run, name, place)
            group.start_soon(self.supervisor.run, hear or self.intake.deliver)
            tell_startup(self._house.hooks, self._house.channels)
            try:
                await self._closing.wait()
                await self._leave()
            finally:
                # Also when nobody waits for a good end any longer.
                self.intake.chores.cut_off()
            self.supervisor.close()
            group.cancel_scope.cancel()

    async def _leave(self) -> None:
        if self._approvals is not None:
            self._approvals.leave()
        begun = self._house.clock.monotonic()
        if not await self.actors.drain(self._rules.drain):
            log.warning("some turns did not end in time; they go on after the next start")
        spent = self._house.clock.monotonic() - begun
        await self.intake.chores.drain(max(self._rules.drain - spent, COMMANDS))
        await self._deliver_the_last()
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
    def ends_within(self) -> float:
        """Seconds that its end may take, apart from those who still speak through its channels."""
        return ends_within(self._rules.drain)

    async def _deliver_the_last(self) -> None:
        """What is being sent is sent to its end: cut off, it would have to be sent again."""

        async def drain() -> None:
            async with anyio.create_task_group() as group:
                for delivery in self.deliveries.values():
                    group.start_soon(delivery.drain)

        try:
            await within(self._house.clock, LAST_POSTS, drain)
        except TooLong:
            log.warning("some deliveries were not settled; they are tried again at the next start")
        try:
            await within(self._house.clock, FAREWELLS, self._leftovers.drain)
        except TooLong:
            log.warning("some progress posts stay as they are until the next start")

    def look_again(self) -> None:
        """Another process may have put something into a lane."""
        self._poked.set()

    async def _look_again(self) -> None:
        while True:
            await sleep_unless(self._house.clock, self._rules.look, self._poked)
            self._poked = anyio.Event()
            try:
                await self.intake.chores.recover()
                await self.actors.look_again()
                for delivery in self.deliveries.values():
                    await delivery.look_again()
            except StoreError as error:
                log.warning("the lanes cannot be looked into just now: %s", error)

    def close(self) -> None:
        """Begin no turn any more, let running ones end and be delivered, then leave.

        What is said meanwhile is kept for the next start.
        """
        self._closing.set()

    def _connect(self) -> None:
        if self._approvals is not None:
            self.intake.hears(Answers(self._approvals, self._sessions, self._questions))
        for name, delivery in self.deliveries.items():
            delivery.depends_on(partial(self._is_online, name))
            delivery.keeps_pace_with(self.pacers[name])
            delivery.tells(self._mirrored)
            delivery.notes_questions(self._questions)
            delivery.leaves_to(partial(self._leftovers.wake, name))
            delivery.complains_to(self._troubles.tell, self._troubles.over)
        self.actors.work_in(
            Surroundings(
                posted=self.posted,
                bubble=self._bubble,
                refusal=self._house.refusal,
                ended=self._run_ended,
                hooks=self._house.hooks,
                later=self._can_later,
                trouble=self._troubles.tell,
                below=self._house.postscript.below,
                profile=self._house.profile,
            )
        )
        self.intake.minds(self._troubles.minding)
        self.intake.understands(self._house.shortcuts)
        if self._rules.stamps:
            self.intake.stamps(Stamps(self._house.clock, self._rules.resets.zone))
        self.intake.speaks_through(self.posted, self._sign)
        self.intake.brings_elsewhere(self._house.places, self._mirrored, self._house.met)

    def posted(self, address: Address) -> None:
        delivery = self.deliveries.get(address.channel)
        if delivery is None:
            log.warning("no channel %s: what is posted to it waits", address.channel)
        else:
            delivery.wake(topic_of(address))

    def _bubble(self, address: Address, run: str) -> Bubble | None:
        channel = self._channels.get(address.channel)
        if not self._rules.progress or not isinstance(channel, Edits | Types):
            return None
        platform = platform_of(address.channel)
        shows = self._rules.shows.get(platform, self._rules.usual)
        tools = self._house.tools(platform)
        pacer = self.pacers[address.channel]
        place, clock, pace = as_spoken(address), self._house.clock, self._rules.pace
        bubble = Bubble(channel, place, clock, pace, shows, pacer)
        bubble.is_watched_by(
            partial(self._leftovers.remember, run, address),
            partial(self._leftovers.leave, run, address),
        )
        bubble.passes_over(lambda name: name in tools and tools[name].spec.asks)
        bubble.comes_after(partial(self.deliveries[address.channel].owes, topic_of(address)))
        return bubble

    def _sign(self, inbound: Inbound) -> None:
        """An instant sign of life; the message waits for nobody's sake."""
        if inbound.message:
            self._give_sign(inbound.address, inbound.message, SEEN)

    def _run_ended(self, letter: Letter, outcome: Outcome, text: str) -> None:
        for address in letter.answer_at:
            self._mirrored(address, text)
        if letter.message and outcome in ENDS:
            self._give_sign(letter.address, letter.message, ENDS[outcome])

    def _mirrored(self, address: Address, text: str) -> None:
        if self._house.mirror is not None and self._group is not None:
            self._group.start_soon(self._add_to_mirror, self._house.mirror, address, text)

    async def _add_to_mirror(self, mirror: Mirror, address: Address, text: str) -> None:
        try:
            await mirror.add(address, text)
        except StoreError as error:
            log.warning("the session at %s does not know what was sent there: %s", address, error)

    def _give_sign(self, address: Address, message: str, sign: str) -> None:
        channel = self._channels.get(address.channel)
        if platform_of(address.channel) in self._rules.unsigned or self._group is None:
            return
        if self._signing >= SIGNS or not self.pacers[address.channel].spare(as_spoken(address)):
            return
        if isinstance(channel, Reacts):
            self._signing += 1
            self._group.start_soon(self._react, channel, as_spoken(address), message, sign)

    async def _react(self, channel: Reacts, address: Address, message: str, sign: str) -> None:
        try:
            limit = self._rules.pace.limit
            await within(self._house.clock, limit, lambda: channel.react(address, message, sign))
        except Exception as error:  # noqa: BLE001 - a sign is a comfort, whatever a channel raises
            log.info("no sign could be given in %s: %r", address, error)
        finally:
            self._signing -= 1
