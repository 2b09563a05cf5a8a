"""What a gateway of one profile is built from in tests: real parts around a model of ours."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import anyio
import msgspec
from msgspec import Raw, Struct

from hermes.agent.plan import Plan
from hermes.commands.command import Context
from hermes.commands.registry import standard_commands
from hermes.gateway.delivery import DeliveryRules
from hermes.gateway.gateway import GatewayRules, House
from hermes.gateway.intake import Door
from hermes.gateway.letters import Busy, TurnedAway, Welcome
from hermes.gateway.runs import ActorRules
from hermes.gateway.supervisor import SupervisorRules
from hermes.kit.clock import Clock
from hermes.kit.retry import Backoff
from hermes.ports.channel import Channel, Inbound
from hermes.ports.model import Model
from hermes.ports.store import Store
from hermes.ports.tool import Output, Tool, ToolContext
from hermes.schema.messages import Message, Usage
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.schema.tools import Effect, ToolSpec
from hermes.session.conversation import Conversation
from hermes.session.keys import SessionSource, build_session_key
from hermes.session.runner import Planner, Runner

SOON = Backoff(base=0.02, cap=0.2)


def patient_rules(busy: Busy = Busy.QUEUE, *, progress: bool = True) -> GatewayRules:
    """Tries often and soon, and gives nothing up: for worlds in which much goes wrong."""
    return GatewayRules(
        actors=ActorRules(busy=busy, backoff=SOON),
        delivery=DeliveryRules(backoff=SOON, attempts=200, unsure=100, stale=timedelta(days=9)),
        supervisor=SupervisorRules(backoff=SOON),
        progress=progress,
        drain=20.0,
    )


class FixedPlanner:
    """The same model, prompt and tools for every turn."""

    def __init__(self, model: Model, clock: Clock, tools: Sequence[Tool], system: str) -> None:
        self._model = model
        self._clock = clock
        self._tools: Mapping[str, Tool] = {tool.spec.name: tool for tool in tools}
        self._system = system

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        return Plan(
            scope=scope,
            model=self._model,
            system=session.system or self._system,
            history=history,
            tools=self._tools,
            clock=self._clock,
        )


class ActingTool:
    """`act` leaves a line in a file for each time it is done: an effect that can be counted."""

    spec = ToolSpec("act", "Leaves a line in a file.", {"type": "object"}, Effect.OUTSIDE)

    def __init__(self, file: Path) -> None:
        self._file = file

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        what = msgspec.json.decode(args, type=dict[str, str]).get("what", "")
        async with await anyio.open_file(self._file, "a") as file:
            await file.write(f"{what}\n")
        return Output.text("acted")


class OneModel:
    """A choice of models with one to choose."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def choose(self, name: str, provider: str | None) -> Model:
        return self._model

    async def keep(self, model: Model) -> None:
        """There is no other."""

    def current(self, session: Session) -> str:
        return self._model.name


class NoFacts:
    def status(self) -> Sequence[tuple[str, str]]:
        return []


class Household(Struct, frozen=True, kw_only=True):
    """One profile's parts. Without a `door` everybody is let in; without a `planner` each turn
    has the model, the tools and the prompt named here.
    """

    profile: str
    store: Store
    clock: Clock
    channels: Mapping[str, Channel]
    model: Model
    tools: Sequence[Tool] = ()
    system: str = "Be good."
    cwd: str = ""
    door: Door | None = None
    planner: Planner | None = None

    def build(self) -> House:
        fixed = FixedPlanner(self.model, self.clock, self.tools, self.system)
        planner = self.planner or fixed
        return House(
            store=self.store,
            clock=self.clock,
            runner=Runner(self.store, self.clock, planner, free, self.profile),
            channels=self.channels,
            door=self.door or open_door(self.profile),
            registry=standard_commands(),
            context=self._context,
            cwd=self.cwd,
        )

    def _context(self, conversation: Conversation) -> Context:
        return Context(conversation, OneModel(self.model), NoFacts())


def free(model: str, provider: str, usage: Usage) -> float | None:
    return 0.0


def open_door(profile: str) -> Door:
    """Everybody may speak; each chat is a session."""

    async def door(inbound: Inbound) -> Welcome | TurnedAway:
        return Welcome(key=key_of(inbound.address.channel, inbound.address.chat, profile))

    return door


def key_of(channel: str, chat: str, profile: str) -> str:
    return build_session_key(SessionSource(platform=channel, chat_id=chat), profile=profile)
