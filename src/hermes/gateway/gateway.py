"""One profile's gateway: channels in, sessions at work, answers out, until it is closed."""

import logging
from collections.abc import Callable, Mapping

import anyio
import anyio.abc
from msgspec import Struct

from hermes.commands.command import Context
from hermes.commands.registry import Registry
from hermes.gateway.actors import ActorLimits, Actors
from hermes.gateway.bubble import Bubble, Pace
from hermes.gateway.dead_targets import DeadTargets
from hermes.gateway.deadline import within
from hermes.gateway.delivery import Delivery, DeliveryRules
from hermes.gateway.desk import Desk, Urgent
from hermes.gateway.intake import Door, Intake
from hermes.gateway.letters import topic_of
from hermes.gateway.runs import ActorRules
from hermes.gateway.sessions import ChatSessions
from hermes.gateway.supervisor import Supervisor, SupervisorRules
from hermes.kit.clock import Clock
from hermes.ports.channel import Channel, Edits, Inbound, Reacts, Types
from hermes.ports.store import Store
from hermes.schema.scope import Address
from hermes.session.conversation import Conversation
from hermes.session.runner import Runner

log = logging.getLogger(__name__)

SEEN = "👀"


class GatewayRules(Struct, frozen=True, kw_only=True):
    """`drain` is how many seconds running turns are given when the gateway closes."""

    actors: ActorRules = ActorRules()
    limits: ActorLimits = ActorLimits()
    delivery: DeliveryRules = DeliveryRules()
    supervisor: SupervisorRules = SupervisorRules()
    pace: Pace = Pace()
    progress: bool = True
    drain: float = 60.0


class House(Struct, frozen=True, kw_only=True):
    """What a gateway is built from; `context` gives a slash command its surroundings."""

    store: Store
    clock: Clock
    runner: Runner
    channels: Mapping[str, Channel]
    door: Door
    registry: Registry
    context: Callable[[Conversation], Context]
    cwd: str = ""
    urgent: Mapping[str, Urgent] = {}


class Gateway:
    def __init__(self, house: House, rules: GatewayRules | None = None) -> None:
        self._house = house
        self._rules = rules or GatewayRules()
        store, clock, runner = house.store, house.clock, house.runner
        sessions = ChatSessions(store, clock, house.cwd)
        rules = self._rules
        self.dead = DeadTargets(store, clock)
        self.actors = Actors(store, clock, runner, sessions, rules.actors, rules.limits)
        self.desk = Desk(store, clock, runner, self.actors, sessions)
        self.desk.knows(house.registry, house.context, house.urgent)
        self.intake = Intake(store, clock, house.door, self.actors, self.desk, self.dead)
        self.supervisor = Supervisor(house.channels, clock, rules.supervisor)
        self.deliveries = {
            name: Delivery(store, clock, name, channel, self.dead, rules.delivery)
            for name, channel in house.channels.items()
        }
        self._group: anyio.abc.TaskGroup | None = None
        self._closing = anyio.Event()
        self._connect()

    async def run(self) -> None:
        """Until `close` is called, which drains, or until cancelled, which loses nothing either."""
        await self.dead.load()
        await self.intake.recover()
        async with anyio.create_task_group() as group:
            self._group = group
            for delivery in self.deliveries.values():
                group.start_soon(delivery.run)
            group.start_soon(self.actors.run)
            group.start_soon(self.supervisor.run, self.intake.deliver)
            await self._closing.wait()
            self.supervisor.close()
            if not await self.actors.drain(self._rules.drain):
                log.warning("some turns did not end in time; they go on after the next start")
            group.cancel_scope.cancel()

    def close(self) -> None:
        """Hear nothing more, let running turns end for a while, then leave."""
        self._closing.set()

    def _connect(self) -> None:
        for name, delivery in self.deliveries.items():
            delivery.depends_on(lambda name=name: self.supervisor.online(name))
        self.actors.speaks_through(self._posted, self._bubble)
        self.intake.speaks_through(self._posted, self._sign)

    def _posted(self, address: Address) -> None:
        delivery = self.deliveries.get(address.channel)
        if delivery is None:
            log.warning("no channel %s: what is posted to it waits", address.channel)
        else:
            delivery.wake(topic_of(address))

    def _bubble(self, address: Address) -> Bubble | None:
        channel = self._house.channels.get(address.channel)
        if not self._rules.progress or not isinstance(channel, Edits | Types):
            return None
        return Bubble(channel, address, self._house.clock, self._rules.pace)

    def _sign(self, inbound: Inbound) -> None:
        """An instant sign of life; the message waits for nobody's sake."""
        channel = self._house.channels.get(inbound.address.channel)
        if self._group is not None and isinstance(channel, Reacts) and inbound.message:
            self._group.start_soon(self._react, channel, inbound.address, inbound.message)

    async def _react(self, channel: Reacts, address: Address, message: str) -> None:
        try:
            limit = self._rules.pace.limit
            await within(self._house.clock, limit, lambda: channel.react(address, message, SEEN))
        except Exception as error:  # noqa: BLE001 - a sign is a comfort, whatever a channel raises
            log.info("no sign could be given in %s: %r", address, error)
